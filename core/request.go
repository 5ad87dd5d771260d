package core

import (
	"context"
	"fmt"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
)

// A request is a decision that is being made: a Call, and the Reply to it. Backends get pointers to both
// through an interface, so Go allocates them on the heap. A pool of requests saves these allocations.
type request struct {
	call     decision.Call
	reply    decision.Reply
	redisErr error      // why Redis has already failed to decide on the keys of multi at once, or nil
	multi    *multiCall // the decision on several keys to which this request belongs, or nil
}

var requests = sync.Pool{New: func() any { return new(request) }}

// newRequest returns a request for n units of key. The caller must recycle it.
func (l *Limiter) newRequest(key string, n int64, op algorithm.Op) *request {
	req := requests.Get().(*request) //nolint:forcetypeassert // the pool has no others
	c := &req.call
	c.Set, c.Key, c.N, c.Op, c.Bans = l.set, key, n, op, len(l.family.bans) > 0 && !l.bansNobody
	return req
}

// recycle returns req to the pool. Afterwards, nothing must refer to its call or its reply. Code that
// needs the Reply for longer must copy it with CopyTo.
func (req *request) recycle() {
	*req = request{}
	requests.Put(req)
}

// check returns an error if req cannot be decided; see checkCall.
func (req *request) check(ctx context.Context) error { return checkCall(ctx, req.call.Key, req.call.N) }

// checkCall returns the error of a call that must not be sent: its cost n or its key is not allowed, or ctx
// has already ended.
func checkCall(ctx context.Context, key string, n int64) error {
	switch {
	case n < 0:
		return fmt.Errorf("%w: it is %d, and must not be negative", ErrInvalidCost, n)
	case key == "":
		return ErrInvalidKey
	}
	return ctx.Err()
}
