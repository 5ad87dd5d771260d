package adapter

import (
	"context"
	"errors"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
)

// maxCost is the largest cost that is charged for a call of SetCost, because a Limiter settles no more.
const maxCost = 1_000_000_000

// NeedsFinish reports whether the adapter must call [Guard.Finish] for a request that it serves with
// the Verdict v. It must do so if [guard.CountIf] or [guard.CostAfter] is given, because they charge
// when the response ends, or if the request holds slots of [core.InFlight].
func (g *Guard) NeedsFinish(v Verdict) bool {
	return v.admitted != nil && (g.reserves() || v.Context != nil)
}

// reserves reports whether units are reserved, because their charge is known only when the response ends.
func (g *Guard) reserves() bool { return g.settings.CountIf != nil || g.settings.CostAfter }

// NoAnswer is the status for Finish if nobody has answered a request, as far as the adapter knows.
const NoAnswer = 0

// Finish ends a request whose response has ended with the given status: it settles what Check has
// reserved for v, and frees the slots. It must be called even if the handler has panicked (with the
// status 500), has taken over the connection (with 101) or if there is no answer (with [NoAnswer]). A
// request without an answer counts, and the function of CountIf is not called. A second call for the same
// v charges and frees nothing, but calls the function of CountIf again.
//
// Finish waits for the reply of Redis if it frees slots, or if its settlement could change the
// decision about one of the next requests. ctx bounds only this wait.
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

// settle charges what the request of v has really cost. status is the status of its response.
func (g *Guard) settle(ctx context.Context, v Verdict, r *core.Reservation, status int) {
	if g.settings.CostAfter {
		v.state.charges.Store(hasCharged)
	}
	actual := v.cost
	defer func() { // even if CountIf panics, because the units would stay held otherwise
		v.logFailure(ctx, "redislimit: not settled", inside.Core.SettleLater(ctx, r, actual))
	}()
	switch refused := int(v.state.refused.Load()); {
	case refused > 0 && status == refused: // an inner middleware has refused the request, so no handler has run
		actual = coreaccess.Canceled
	case g.settings.CountIf != nil && status != NoAnswer && !g.settings.CountIf(status, v.Code):
		actual = coreaccess.Canceled
	case g.settings.CostAfter:
		actual = g.actualCost(ctx, v)
	}
}

// actualCost returns the cost that the handler has passed to SetCost, or else the cost that was reserved.
// It replaces a cost that is not allowed, and logs the first one.
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

// logFailure logs err, with two exceptions. One is ErrUnavailable, because the limiter itself logs its causes: an
// outage, a call that Redis refused, and calls that this process could not send. The other is the error of ctx,
// because nobody waits for the reply then. The failed call is not repeated: when the hold expires, the units
// are charged and the slots are free.
func (v *Verdict) logFailure(ctx context.Context, message string, err error) {
	if err != nil && !errors.Is(err, core.ErrUnavailable) && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		logError(ctx, v.limiter, message, err)
	}
}

// answerTime is how long WhenOver waits for an answer after the context of the request has ended.
const answerTime = time.Second

// WhenOver arranges a call of f after ctx, the context of a request, has ended. If stop is called before
// ctx ends, f is not called. WhenOver is for adapters of frameworks in which an error of the handler
// is answered by outer code, or perhaps not at all: f must call Finish with [NoAnswer], unless the request
// has been finished in the meantime.
//
// ctx ends when the request is over, but also when the client leaves while the application still answers.
// A client can even close only its sending side, and read the answer. Therefore f must not assume a status,
// such as the 200 that net/http sends if nobody answers: a client could then guess passwords without
// being counted. With [guard.CountIf] or [guard.CostAfter], f is called only one second after ctx has
// ended, so that most answers are judged by their true status. In this second, stop no longer prevents the
// call of f.
func (g *Guard) WhenOver(ctx context.Context, f func()) (stop func() bool) {
	wait := time.Duration(0)
	if g.reserves() {
		wait = answerTime
	}
	return context.AfterFunc(ctx, func() { time.AfterFunc(wait, f) })
}
