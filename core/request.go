package core

import (
	"context"
	"fmt"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
)

// A request is a decision in the making: the Call of a user, and the Reply to it. Backends get
// pointers to both through an interface, so Go allocates them on the heap. The pool reuses them.
type request struct {
	call     decision.Call
	reply    decision.Reply
	redisErr error      // why Redis has already failed to decide this call, or nil
	multi    *multiCall // the call about several keys of which this is one, or nil
}

var requests = sync.Pool{New: func() any { return new(request) }}

// newRequest returns a request about n units of key. The caller recycles it.
func (l *Limiter) newRequest(key string, n int64, op algorithm.Op) *request {
	req := requests.Get().(*request) //nolint:forcetypeassert // the pool has no others
	c := &req.call
	c.Set, c.Key, c.N, c.Op, c.Bans = l.set, key, n, op, len(l.family.bans) > 0 && !l.bansNobody
	return req
}

// recycle returns req to the pool. Nothing may refer to its call or reply afterwards: whoever keeps
// a Reply for longer copies it with CopyTo.
func (req *request) recycle() {
	*req = request{}
	requests.Put(req)
}

// check returns the error of a request that cannot be decided.
func (req *request) check(ctx context.Context) error { return checkCall(ctx, req.call.Key, req.call.N) }

// checkCall returns the error of a call about n units of key that cannot be decided.
func checkCall(ctx context.Context, key string, n int64) error {
	switch {
	case n < 0:
		return fmt.Errorf("%w: it is %d, and must not be negative", ErrInvalidCost, n)
	case key == "":
		return ErrInvalidKey
	}
	return ctx.Err()
}
