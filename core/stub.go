package core

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
)

// NewStub returns a Limiter of package limittest, which has a stub in place of Redis and of memory.
func (inside) NewStub(name string, opts []Option, s hook.Stub) (*Limiter, error) {
	c, err := configure(name, []Option{options(opts), anyLimit{}})
	if err != nil {
		return nil, err
	}
	f := newFamily(name, c)
	f.stub = s
	f.renewer.Close() // nothing expires
	return f.limiter(c.limits), nil
}

func (inside) Stub(l *Limiter) hook.Stub { return l.stub }

// anyLimit is a limit that is hardly ever reached, if no other was given.
type anyLimit struct{}

func (anyLimit) apply(c *config) {
	if len(c.limits) == 0 {
		FixedWindow(PerMinute(maxCount)).apply(c)
	}
}

// stubAt is the instant of all decisions of stubs, in microseconds since the epoch: the
// beginning of 2000, as in testing/synctest.
const stubAt = 946_684_800_000_000

// decideByStub answers what the stub admits as if nothing had been charged to the key
// before, and what it denies as if all were used.
func (l *Limiter) decideByStub(c call, to target) error {
	method := "AllowN"
	switch {
	case c.op == algorithm.OpEvaluate:
		method = "Peek"
	case c.op == algorithm.OpReserve:
		method = "Reserve"
	case to.reservation != nil:
		method = "Acquire"
	}
	retryAfter, err := l.stub.Call(method, c.key, c.n)
	if err != nil {
		return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, l.name, err)
	}
	if c.n == 0 {
		c.op = algorithm.OpEvaluate
	}
	answers := make([]algorithm.Answer, len(l.by.Members))
	for i, m := range l.by.Members {
		answers[i].Evaluate(m.Evaluator, &algorithm.State{}, stubAt, c.n)
		answers[i].Admits = answers[i].Admits && retryAfter <= 0
	}
	c.fill(to.Result, l.by, answers, SourceMemory)
	if retryAfter > 0 {
		useUp(to.Result, retryAfter)
	}
	if to.Allowed {
		to.ends(to.newHold(l, c, l.by), l.keeper)
	}
	return nil
}

// useUp turns r, of a key to which nothing was charged, into one of a key of which all
// is used for so long.
func useUp(r *Result, d time.Duration) {
	r.Remaining, r.Delay = 0, 0
	if r.Window > 0 { // when slots are free is not known
		r.ResetAfter = d
	}
	if !r.Allowed && r.RetryAfter != Never {
		r.RetryAfter = d
	}
	if r.all != nil {
		for i := range *r.all {
			useUp(&(*r.all)[i], d)
		}
	}
}
