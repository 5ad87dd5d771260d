package guard

import (
	"context"
	"errors"

	"github.com/redislimit/redislimit/core"
)

// maxCost bounds what SetCost charges: what a Limiter settles at most.
const maxCost = 1_000_000_000

// Settles reports whether [Guard.Finish] must be called for a request that is served
// with the Verdict v: with [CountIf] and with [CostAfter], which charge when the response
// ends, and where it holds slots of [core.InFlight].
func (g *Guard) Settles(v Verdict) bool { return g.reserves() || v.Context != nil }

// reserves reports whether what is charged is known only when the response ends.
func (g *Guard) reserves() bool { return g.countIf != nil || g.costAfter }

// ask has lim decide about n units, and charge or reserve them. What is reserved is kept
// from expiring, for a response may take long.
func (g *Guard) ask(ctx context.Context, lim *core.Limiter, key string, n int64) (core.Result, error) {
	if !g.reserves() {
		return lim.AllowN(ctx, key, n)
	}
	res, err := lim.Reserve(ctx, key, n)
	if err == nil && res.Allowed {
		lim.KeepHeld(res)
	}
	return res, err
}

// Finish settles what Check reserved for v, and frees its slots, when the response has
// ended with this status. It must be called even if the handler panicked, which is a 500,
// or took over the connection, which is a 101. ctx may have ended. Only the first call for
// a request does something.
func (g *Guard) Finish(ctx context.Context, v Verdict, status int) {
	if v.Context != nil {
		defer v.cancel()
	}
	switch {
	case !v.Result.Allowed:
		return
	case !g.reserves():
		v.release(ctx)
		return
	}
	actual := v.cost
	defer func() { v.settle(ctx, actual) }() // also if countIf panics: otherwise the units stay held
	switch {
	case g.countIf != nil && !g.countIf(status):
		actual = 0
	case g.costAfter:
		actual = g.actualCost(ctx, v)
	}
}

// actualCost returns the cost that a handler set, or what was reserved.
func (g *Guard) actualCost(ctx context.Context, v Verdict) int64 {
	set := v.seen.cost.Load()
	if set == nil {
		return v.cost
	}
	actual := *set
	switch {
	case actual < 0:
		actual = v.cost
	case actual > maxCost:
		actual = maxCost
	}
	if actual != *set {
		g.wrongCostLogged.Do(func() {
			logError(ctx, v.limiter, "redislimit: a wrong cost was given to SetCost; this is logged once",
				core.ErrInvalidCost, "cost", *set, "charged", actual)
		})
	}
	return actual
}

// SetCost has the middlewares of the request with [CostAfter] charge n units. The
// function SetCost of an adapter calls it. It does nothing if s is nil.
func (s *Seen) SetCost(n int64) {
	if s != nil {
		s.cost.Store(&n)
	}
}

// settle charges actual in place of what is held. What fails is not repeated: while
// Redis does not answer, the units stay held, and are charged when the hold expires.
func (v Verdict) settle(ctx context.Context, actual int64) {
	ctx = context.WithoutCancel(ctx) // the client may have disconnected
	v.logFailure(ctx, "redislimit: not settled", v.limiter.Settle(ctx, v.Result, actual))
}

// release frees the slots, if there are any. What fails is not repeated: they are free
// when they expire.
func (v Verdict) release(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	v.logFailure(ctx, "redislimit: not released", v.limiter.Release(ctx, v.Result))
}

// refund takes back what was charged or reserved. While Redis does not answer it stays
// charged.
func (v Verdict) refund(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	v.logFailure(ctx, "redislimit: no refund", v.limiter.Refund(ctx, v.Result))
}

// logFailure logs err, but not an outage, which the limiter logs, once.
func (v Verdict) logFailure(ctx context.Context, message string, err error) {
	if err != nil && !errors.Is(err, core.ErrUnavailable) {
		logError(ctx, v.limiter, message, err)
	}
}
