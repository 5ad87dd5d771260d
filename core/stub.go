package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
)

// The Limiters of package limittest have a stub in place of Redis and of memory.
var _ = hook.SetStub(
	func(name string, opts any, s hook.Stub) (any, error) {
		c, err := configure(name, []Option{options(opts.([]Option)), anyLimit{}}) //nolint:forcetypeassert // limittest passes it
		if err != nil {
			return nil, err
		}
		f, limits := newFamily(name, c)
		f.stub = s
		f.renewer.close() // nothing expires
		return f.limiter(limits), nil
	},
	func(l any) hook.Stub { return l.(*Limiter).stub }, //nolint:forcetypeassert // limittest passes it
)

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
func (l *Limiter) decideByStub(ctx context.Context, res *Result, key string, n int64, op algorithm.Op) error {
	var method string
	switch op {
	case algorithm.OpEvaluate:
		method = "Peek"
	case algorithm.OpReserve:
		method = "Reserve"
	default:
		method = "AllowN"
	}
	retryAfter, err := l.stub.Call(method, key, n)
	if err != nil {
		return l.failure(ctx, err)
	}
	if n == 0 {
		op = algorithm.OpEvaluate
	}
	answers := make([]algorithm.Answer, len(l.limits.members))
	for i, m := range l.limits.members {
		answers[i].Evaluate(m.Evaluator, &algorithm.State{}, stubAt, n)
		answers[i].Admits = answers[i].Admits && retryAfter <= 0
	}
	l.limits.fill(res, answers, n, op != algorithm.OpEvaluate, SourceMemory)
	if retryAfter > 0 {
		useUp(res, retryAfter)
	}
	switch {
	case !res.Allowed:
	case l.limits.holds(op):
		held := newReservation(l.id, l.limits, SourceMemory, op)
		res.receipt = held.receipt(key, n)
	case op == algorithm.OpCharge:
		res.receipt = receipt{limits: l.limits, claim: newRedisDecision(l.id, 1).set.Only(), key: key, n: n, id: res.receipt.id}
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

// callStub calls the stub about what is no decision.
func (l *Limiter) callStub(ctx context.Context, method, key string, n int64) error {
	_, err := l.stub.Call(method, key, n)
	return l.failure(ctx, err)
}
