package adapter

import (
	"context"
	"errors"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/inside"
)

// maxCost bounds what SetCost charges: what a Limiter settles at most.
const maxCost = 1_000_000_000

// NeedsFinish reports whether [Guard.Finish] must be called for a request that is served with the
// Verdict v: with [guard.CountIf] and with [guard.CostAfter], which charge when the response ends,
// and where it holds slots of [core.InFlight].
func (g *Guard) NeedsFinish(v Verdict) bool {
	return v.admitted != nil && (g.reserves() || v.Context != nil)
}

// reserves reports whether what is charged is known only when the response ends.
func (g *Guard) reserves() bool { return g.settings.CountIf != nil || g.settings.CostAfter }

// Finish settles what Check reserved for v, and frees its slots, when the response has ended with
// this status. It must be called even if the handler panicked, which is a 500, or took over the
// connection, which is a 101. What was admitted ends once: a second call charges and frees nothing, but
// asks CountIf again. ctx bounds only how long it waits for the reply of Redis, which it does where
// it frees slots, or where what it settles decides about the next request.
func (g *Guard) Finish(ctx context.Context, v Verdict, status int) {
	if v.Context != nil {
		defer v.cancel()
		v.state.forgetSlot(v.slot)
	}
	if !v.Result.Allowed {
		return
	}
	switch admitted := v.admitted.(type) {
	case *core.Permit:
		v.logFailure(ctx, "redislimit: not released", admitted.Release(ctx))
	case *core.Reservation:
		g.settle(ctx, v, admitted, status)
	}
}

// settle charges what a request has cost that ended with this status.
func (g *Guard) settle(ctx context.Context, v Verdict, r *core.Reservation, status int) {
	if g.settings.CostAfter {
		v.state.charges.Store(hasCharged)
	}
	actual := v.cost
	defer func() { // also if CountIf panics: otherwise the units stay held
		v.logFailure(ctx, "redislimit: not settled", inside.Core.SettleLater(ctx, r, actual))
	}()
	switch refused := int(v.state.refused.Load()); {
	case refused > 0 && status == refused: // by a middleware further in: no handler has run
		actual = hook.Canceled
	case g.settings.CountIf != nil && !g.settings.CountIf(status, v.Code):
		actual = hook.Canceled
	case g.settings.CostAfter:
		actual = g.actualCost(ctx, v)
	}
}

// actualCost returns the cost that a handler set, or what was reserved.
func (g *Guard) actualCost(ctx context.Context, v Verdict) int64 {
	set := v.state.cost.Load()
	if set == nil || set == v.others {
		return v.cost
	}
	set.charged.Store(true)
	actual := set.n
	switch {
	case actual < 0:
		actual = v.cost
	case actual > maxCost:
		actual = maxCost
	}
	if actual != set.n {
		g.wrongCostLogged.Do(func() {
			logError(ctx, v.limiter, "redislimit: a wrong cost was given to SetCost; this is logged once",
				core.ErrInvalidCost, "cost", set.n, "charged", actual)
		})
	}
	return actual
}

// logFailure logs err, but not an outage, which the limiter logs, once, and not that nobody waits
// for the reply. What fails is not repeated: what is held is charged, and slots are free, when they
// expire.
func (v *Verdict) logFailure(ctx context.Context, message string, err error) {
	if err != nil && !errors.Is(err, core.ErrUnavailable) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		logError(ctx, v.limiter, message, err)
	}
}

// answerTime is for how long an answer is awaited when the client has left, or the request is over.
const answerTime = time.Second

// WhenOver has f called after the request with the context ctx, unless stop is called before ctx
// ends: for adapters of frameworks that answer an error further out, and perhaps never, f is what
// happens without an answer. Where the status decides what is charged, f waits a second longer: ctx
// ends, too, when the client leaves, who would otherwise choose the status while the application
// answers.
func (g *Guard) WhenOver(ctx context.Context, f func()) (stop func() bool) {
	wait := time.Duration(0)
	if g.reserves() {
		wait = answerTime
	}
	return context.AfterFunc(ctx, func() { time.AfterFunc(wait, f) })
}
