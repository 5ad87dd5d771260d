package adapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// StatusClientGone is the status of a request whose client disconnected before it was answered. It
// is that of nginx, and appears in access logs only.
const StatusClientGone = 499

// A Guard decides about the requests that pass one middleware. It is safe for concurrent use.
type Guard struct {
	limiter  *core.Limiter
	key      keyfunc.Func
	peer     keyfunc.Func      // for requests that have neither that key nor the one of Fallback
	settings settings.Settings // what the middleware's options set; else the defaults of New, nil, 0 or false
	members  []*Guard          // of guard.AlsoLimit: what these decide by

	wrongLimits                                               messages
	noKeyLogged, negativeLogged, neverLogged, wrongCostLogged sync.Once
}

// A Verdict says what to do with a request.
type Verdict struct {
	// Status is 0 to serve the request, or what to answer instead: 429 for a denied request, 503
	// when the limiter could not decide (in the time that the server gives the request), 500 when
	// the key function or LimiterFor failed, StatusClientGone when the client has left.
	Status int
	// Result is the limiter's decision. Its Source is SourceNone if there was none.
	Result core.Result
	// Err is why the request is not served: a *guard.DeniedError, or why there was no decision.
	Err error
	// Context, if not nil, is with what context to serve the request, in place of its own: it is
	// canceled when slots of the request are lost, with [core.ErrSlotLost] as the cause, and by
	// Finish.
	Context context.Context //nolint:containedctx // it is that of the request
	// Code is for [Adapter.CountIf]: with what the request ended, set before Finish.
	Code int

	draw        float64            // says where a Retry-After is between the earliest and the latest
	limiter     *core.Limiter      // that decided
	admitted    admission          // what Finish ends; nil if a plain decision was made
	cost        int64              // what was asked for
	slots       bool               // it takes slots
	slot        slot               // that it holds
	endedBefore bool               // the request's context had ended when it came
	others      *cost              // what SetCost was given for another request, where a handler serves several in one
	state       *RequestState      // of the request
	cancel      context.CancelFunc // of Context
}

// An admission is what Finish ends: a *core.Permit, or a *core.Reservation if what is charged is known
// only when the response ends.
type admission interface {
	core.Decision
	Cancel(ctx context.Context) error
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// takePermit sets what v has to end, and its Result. There is nothing to end if p is nil.
func (v *Verdict) takePermit(p *core.Permit, err error) {
	if v.Err = err; p != nil {
		v.admitted, v.Result = p, p.Result
	}
}

// takeReservation is takePermit for a Reservation, which it keeps from expiring: a response may take long.
func (v *Verdict) takeReservation(r *core.Reservation, err error) {
	if v.Err = err; r != nil {
		v.admitted, v.Result = r, r.Result
		r.Keep()
	}
}

// Check decides about r, sets the headers of its response and waits for its Delay.
func (g *Guard) Check(r keyfunc.Request, h Header, state *RequestState) (v Verdict) {
	v.limiter, v.state, v.endedBefore = g.limiter, state, r.Context().Err() != nil
	state.limiter.Store(v.limiter)
	if g.settings.CostAfter {
		state.charges.Store(chargesLater)
	}
	if g.settings.Skip != nil && g.settings.Skip(r) {
		return v
	}
	key, o := g.decide(r, h, &v), headers(g.settings.Headers)
	o.complete(&v)
	if v.Result.Source != core.SourceNone {
		if warning := g.record(h, &v, key); warning != "" {
			inside.Core.WarnOnce(r.Context(), v.limiter, warning)
		}
	}
	if g.settings.DryRun {
		v.Status, v.Err = 0, nil
	} else if v.Status == 0 && v.admitted != nil {
		v.await(r.Context())
	}
	switch {
	case v.Status == 0 && v.admitted != nil && v.slots:
		v.Context, v.cancel = v.admitted.Context(r.Context())
		v.slot = slot{counted{v.limiter, key}, identity(h)}
		state.noteSlot(v.slot)
	case v.Status == http.StatusServiceUnavailable || v.Status == StatusClientGone:
		state.refused.Store(int32(v.Status))
	}
	o.finish(h, &v)
	return v
}

const (
	countedTwice = "a request is counted twice: two middlewares that it passes have this limiter and the same key, or a handler restarts its " +
		"routing (Gin's HandleContext, Fiber's RestartRouting): remove one, give it a limiter of another name, or mount it on routes"
	hadHeaders = "a response had %sLimit before this limiter decided: either a handler restarts the routing of the request " +
		"(Gin's HandleContext), which is then counted twice, so mount the limiter on routes; or a middleware of another library or adapter " +
		"sets the same headers, of which clients see the last"
)

// decide asks the limiter about r, and returns its key.
func (g *Guard) decide(r keyfunc.Request, h Header, v *Verdict) (key string) {
	key, ok := g.choose(r, v)
	if !ok {
		return ""
	}
	if slots, _, _ := inside.Core.NeedsEnd(v.limiter); slots && g.members == nil && v.state.holdsSlot(h, v.limiter, key) {
		inside.Core.WarnOnce(r.Context(), v.limiter, countedTwice)
		return key // it is in flight once, and would wait for itself
	}
	v.cost = g.costOf(r)
	if g.reserves() {
		v.noteCost()
	}
	if g.members == nil {
		g.ask(r.Context(), key, v)
	} else if !g.askAll(r, key, v) {
		return key
	}
	switch {
	case v.Err != nil:
		v.Status = statusOfError(r.Context(), v.Err)
		if v.Status == StatusClientGone && v.endedBefore {
			// A client rarely leaves before the limiter is asked, so the server is shutting down: its
			// BaseContext is canceled, and the client still waits for an answer.
			v.Status = http.StatusServiceUnavailable
		}
		if v.Status == http.StatusInternalServerError {
			inside.Core.ErrorMinutely(r.Context(), v.limiter, "the limiter was asked wrongly", v.Err) // it logs an outage itself
		}
	case !v.Result.Allowed:
		v.Status = http.StatusTooManyRequests
		if v.Result.RetryAfter == core.Never {
			g.logNever(r.Context(), &v.Result, v.cost)
		}
	}
	return key
}

// choose returns the key of r, and has v be decided by its limiter. It reports false if there was
// an error.
func (g *Guard) choose(r keyfunc.Request, v *Verdict) (string, bool) {
	if g.settings.LimiterFor != nil && !g.chooseLimiter(r, v) {
		return "", false
	}
	key, err := g.keyOf(r)
	if err != nil {
		inside.Core.ErrorMinutely(r.Context(), g.limiter, "the key function failed", err)
		v.Status, v.Err = http.StatusInternalServerError, err
	}
	return key, err == nil
}

// RetryIn returns for how long a client that is not served with the Verdict v is to wait, as
// Retry-After-Ms says it where it is sent. It is 0 where there is no Retry-After.
func (g *Guard) RetryIn(v Verdict) time.Duration {
	return headers(g.settings.Headers).retryMillis(&v)
}

// chooseLimiter has the limiter of LimiterFor decide. It reports false if there was an error.
func (g *Guard) chooseLimiter(r keyfunc.Request, v *Verdict) bool {
	lim, err := g.settings.LimiterFor(r)
	switch {
	case err == nil && lim != nil:
		v.limiter = lim
		v.state.limiter.Store(lim)
	case err != nil && !g.isWrong(r.Context(), v, err):
		inside.Core.ErrorMinutely(r.Context(), g.limiter, "LimiterFor failed", err)
		v.Status, v.Err = http.StatusInternalServerError, err
	}
	return err == nil
}

// isWrong reports whether err is due to the limits that LimiterFor chose. That is logged once, and
// answered with 500.
func (g *Guard) isWrong(ctx context.Context, v *Verdict, err error) bool {
	wrong := (*hook.WrongLimitError)(nil)
	if !errors.As(err, &wrong) {
		return false
	}
	if g.wrongLimits.isNew(err.Error()) {
		logError(ctx, g.limiter, "redislimit: a wrong limit in LimiterFor; requests with it are answered with 500, and this is logged once", err)
	}
	v.Status, v.Err = http.StatusInternalServerError, err
	return true
}

// ask has the limiter decide. It charges at once, unless the cost is known only at the end. What
// may have to be given back needs a Permit or a Reservation; a plain decision saves an allocation.
func (g *Guard) ask(ctx context.Context, key string, v *Verdict) {
	slots, queue, _ := inside.Core.NeedsEnd(v.limiter)
	v.slots = slots
	lim := g.asked(v.limiter)
	switch {
	case g.settings.WaitUpTo > 0 && !g.settings.DryRun && !queue:
		g.askAndWait(ctx, lim, key, v)
	case g.reserves():
		v.takeReservation(lim.Reserve(ctx, key, v.cost))
	case slots || queue:
		v.takePermit(lim.Acquire(ctx, key, v.cost))
	default:
		v.Result, v.Err = lim.AllowN(ctx, key, v.cost)
	}
}

// askAndWait has the limiter decide, and waits for it as the option WaitUpTo says.
func (g *Guard) askAndWait(ctx context.Context, lim *core.Limiter, key string, v *Verdict) {
	w := hook.Waiting{Key: key, N: v.cost, UpTo: g.settings.WaitUpTo, Most: g.settings.MaxWaiting}
	came := time.Now()
	if g.reserves() {
		v.takeReservation(inside.Core.ReserveUpTo(ctx, lim, w, &v.Result))
	} else {
		v.takePermit(inside.Core.AcquireUpTo(ctx, lim, w, &v.Result))
	}
	v.warnIfCutOff(ctx, time.Since(came))
}

// asked returns the limiter to ask in place of lim: with DryRun one that bans nobody.
func (g *Guard) asked(lim *core.Limiter) *core.Limiter {
	if g.settings.DryRun {
		lim = inside.Core.Looking(lim)
	}
	return lim
}

// noteCost notes what SetCost was given for a request before this one.
func (v *Verdict) noteCost() {
	if set := v.state.cost.Load(); set != nil && set.charged.Load() {
		v.others = set
	}
}

// await waits for the Delay of an admitted request. If its context ends before it is served,
// nothing stays held or charged: Cancel is sent although ctx has ended.
func (v *Verdict) await(ctx context.Context) {
	err := ctx.Err()
	if err == nil && v.Result.Delay > 0 {
		e, begun, wait := core.Event{Kind: core.EventWait, Cost: v.cost}, time.Now(), v.Result.Delay
		if deadline, ok := ctx.Deadline(); ok {
			wait = min(wait, deadline.Sub(begun))
		}
		v.warnIfCutOff(ctx, wait)
		if err = sleep(ctx, v.Result.Delay); err == nil {
			e.Result = v.Result
		}
		e.Took, e.Err = time.Since(begun), err
		inside.Core.Emit(ctx, v.limiter, e)
	}
	if err != nil {
		v.Status, v.Err = statusOf(err), err
		v.logFailure(ctx, "redislimit: not canceled", v.admitted.Cancel(ctx))
	}
}

// warnIfCutOff warns of a wait that is longer than net/http gives a response: the handler may run,
// and its client gets nothing.
func (v *Verdict) warnIfCutOff(ctx context.Context, wait time.Duration) {
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.WriteTimeout <= 0 || wait <= server.WriteTimeout {
		return
	}
	inside.Core.WarnOnce(ctx, v.limiter, fmt.Sprintf("a request waits for longer than the server's WriteTimeout, %v: its client gets no response, "+
		"unless a handler moves that deadline by http.ResponseController. Raise it, or have requests wait for less", server.WriteTimeout))
}

// record keeps the Result for handlers, and writes it into the headers. It returns what to warn of, or
// "": that the request may have been counted before.
func (g *Guard) record(h Header, v *Verdict, key string) (warning string) {
	v.state.mu.Lock()
	defer v.state.mu.Unlock()
	o := headers(g.settings.Headers)
	if v.state.result.Source == core.SourceNone && h.Get(o.Names.Limit) != "" {
		warning = fmt.Sprintf(hadHeaders, o.Names.Prefix)
	}
	if g.settings.DryRun {
		o.Sets = 0
	}
	o.recordLocked(h, v)
	if v.Result.Allowed && (v.cost > 0 || g.settings.CostAfter) && v.state.countsAgain(h, v.limiter, key) {
		return countedTwice
	}
	return warning
}

// keyOf returns the key of r. A request without one is counted by the fallback, so that leaving out
// a credential does not avoid the limit. That is normal for some requests, where the error is
// ErrNoKey itself. A Func that wraps ErrNoKey says that perhaps no request will ever have its key,
// as Route and User do where they are mounted too early: that is logged once.
func (g *Guard) keyOf(r keyfunc.Request) (string, error) {
	key, err := keyBy(g.key, r)
	if !errors.Is(err, keyfunc.ErrNoKey) {
		return key, err
	}
	inside.Core.Emit(r.Context(), g.limiter, core.Event{Kind: core.EventKeyFallback, Err: err})
	if err != keyfunc.ErrNoKey { //nolint:errorlint,err113 // it asks whether the error is wrapped
		g.noKeyLogged.Do(func() {
			by := "their peer's address"
			if g.settings.Fallback != nil {
				by = "the Fallback"
			}
			g.limiter.Logger().WarnContext(r.Context(), "redislimit: requests are limited by "+by+" instead",
				"limiter", g.limiter.Name(), "error", err)
		})
	}
	if g.settings.Fallback != nil {
		if key, err = keyBy(g.settings.Fallback, r); !errors.Is(err, keyfunc.ErrNoKey) {
			return key, err
		}
	}
	return g.peer(r)
}

// keyBy returns the key that f takes from r. An empty one is an error.
func keyBy(f keyfunc.Func, r keyfunc.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		return "", core.ErrInvalidKey
	}
	return key, err
}

func (g *Guard) costOf(r keyfunc.Request) int64 {
	if g.settings.Cost == nil {
		return 1
	}
	n := g.settings.Cost(r)
	if n < 0 {
		g.negativeLogged.Do(func() {
			logError(r.Context(), g.limiter, "redislimit: charged 1 instead; this is logged once", core.ErrInvalidCost, "cost", n)
		})
		return 1
	}
	return n
}

// logNever logs once that requests are denied which can never be admitted: a cost above the
// capacity may be meant, or a mistake that makes a route useless. The capacity of the outage policy
// is not the configured one, and is not logged. A capacity of 0 is always meant.
func (g *Guard) logNever(ctx context.Context, res *core.Result, cost int64) {
	if res.Source == core.SourceFallback || res.Limit == 0 {
		return
	}
	g.neverLogged.Do(func() {
		attrs := []any{"limiter", res.LimiterName, "limit", res.LimitName, "capacity", res.Limit}
		if g.members == nil { // a member may have another cost
			attrs = append(attrs, "cost", cost)
		}
		g.limiter.Logger().WarnContext(ctx,
			"redislimit: denied a cost that is above the capacity, so that it can never be admitted; this is logged once", attrs...)
	})
}

func logError(ctx context.Context, lim *core.Limiter, message string, err error, attrs ...any) {
	lim.Logger().ErrorContext(ctx, message, append(attrs, "limiter", lim.Name(), "error", err)...)
}

// sleep waits for d. If ctx ends first, it returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// maxMessages bounds how many messages are remembered. Beyond that all are forgotten.
const maxMessages = 1000

// messages are those that were logged.
type messages struct {
	mu     sync.Mutex
	logged map[string]bool
}

// isNew reports whether a message was not logged before, and notes that it is.
func (m *messages) isNew(message string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logged[message] {
		return false
	}
	if m.logged == nil || len(m.logged) >= maxMessages {
		m.logged = make(map[string]bool)
	}
	m.logged[message] = true
	return true
}
