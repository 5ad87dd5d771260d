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
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// StatusClientGone is the status of a request whose client disconnected before the request was
// answered. It is the one that nginx uses, and appears only in access logs.
const StatusClientGone = 499

// A Guard decides about the requests that pass one middleware. It is safe for concurrent use.
type Guard struct {
	limiter    *core.Limiter
	key        keyfunc.Func
	peer       keyfunc.Func      // for requests that have neither this key nor the key of Fallback
	settings   settings.Settings // from the middleware's options
	alsoLimits []*Guard          // one for each guard.AlsoLimit

	wrongLimits                                               messages
	noKeyLogged, negativeLogged, neverLogged, wrongCostLogged sync.Once
}

// A Verdict says what to do with a request.
type Verdict struct {
	// Status is 0 if the request must be served. Otherwise it is the status to answer with: 429 for a
	// denied request, 503 if the limiter could not decide (in the time that the server allows), 500
	// if the key function or LimiterFor failed or the limiter was called wrongly, StatusClientGone
	// if the client has left.
	Status int
	// Result is the limiter's decision. Its Source is SourceNone if there was none.
	Result core.Result
	// Err is the reason why the request is not served: a [*guard.DeniedError], or the error that
	// prevented a decision.
	Err error
	// Context, if not nil, replaces the context of the request while the request is served. It is
	// canceled by Finish, and if slots of the request are lost, with [core.ErrSlotLost] as the
	// cause.
	Context context.Context //nolint:containedctx // it is the context of the request
	// Code is the code with which the request ended. The adapter sets it before Finish, for
	// [Adapter.CountIf].
	Code int

	draw        float64            // the random number of the answer; see headers.retryIn
	limiter     *core.Limiter      // the limiter that decides
	admitted    admission          // Finish ends it; nil if there is nothing to end or to take back
	cost        int64              // the cost that the limiter decided about
	slots       bool               // the request takes slots
	slot        slot               // the slot that the request holds
	endedBefore bool               // the request's context had ended before Check
	others      *cost              // what SetCost was given for an earlier request, if a handler serves several in one
	state       *RequestState      // the state of the request
	cancel      context.CancelFunc // cancels Context
}

// An admission is what Finish ends: a *core.Permit, or a *core.Reservation if the charge is known only
// when the response ends.
type admission interface {
	core.Decision
	Cancel(ctx context.Context) error
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// takePermit records p, which Finish will end, and its Result. If p is nil, there is nothing to end.
func (v *Verdict) takePermit(p *core.Permit, err error) {
	if v.Err = err; p != nil {
		v.admitted, v.Result = p, p.Result
	}
}

// takeReservation is takePermit for a Reservation. It also keeps the Reservation from expiring, because
// the response may take longer than a hold lasts.
func (v *Verdict) takeReservation(r *core.Reservation, err error) {
	if v.Err = err; r != nil {
		v.admitted, v.Result = r, r.Result
		r.Keep()
	}
}

// Check decides about r, sets the headers of its response, and waits for the Delay of an admitted
// request. state is the one that the adapter keeps with r.
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

// decide asks the limiter about r, records the outcome in v, and returns the key of r.
func (g *Guard) decide(r keyfunc.Request, h Header, v *Verdict) (key string) {
	key, ok := g.choose(r, v)
	if !ok {
		return ""
	}
	if slots, _, _ := inside.Core.NeedsEnd(v.limiter); slots && g.alsoLimits == nil && v.state.holdsSlot(h, v.limiter, key) {
		inside.Core.WarnOnce(r.Context(), v.limiter, countedTwice)
		return key // one request is in flight, not two: a second slot could make it wait for itself
	}
	v.cost = g.costOf(r)
	if g.reserves() {
		v.noteCost()
	}
	if g.alsoLimits == nil {
		g.decideOne(r.Context(), key, v)
	} else if !g.decideTogether(r, key, v) {
		return key
	}
	switch {
	case v.Err != nil:
		v.Status = statusOfError(r.Context(), v.Err)
		if v.Status == StatusClientGone && v.endedBefore {
			// A client rarely leaves before Check. More likely the server is shutting down: its
			// BaseContext is canceled, while the client still waits for an answer.
			v.Status = http.StatusServiceUnavailable
		}
		if v.Status == http.StatusInternalServerError {
			inside.Core.ErrorMinutely(r.Context(), v.limiter, "the limiter was asked wrongly", v.Err) // the limiter itself logs outages
		}
	case !v.Result.Allowed:
		v.Status = http.StatusTooManyRequests
		if v.Result.RetryAfter == core.Never {
			g.logNever(r.Context(), &v.Result, v.cost)
		}
	}
	return key
}

// choose sets the limiter of v if LimiterFor chooses one, and returns the key of r. If it returns
// false, there was an error, and v has its Status.
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

// RetryIn returns how long a client whose request is not served should wait, with the precision of
// Retry-After-Ms. v is the Verdict about the request. RetryIn returns 0 if the response has no
// Retry-After.
func (g *Guard) RetryIn(v Verdict) time.Duration {
	return headers(g.settings.Headers).retryMillis(&v)
}

// chooseLimiter sets the limiter of v to the limiter that LimiterFor returns, if any. It returns
// false if there was an error.
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

// isWrong reports whether err says that the limits which LimiterFor chose are invalid or cannot
// decide together. Such an error is logged once for each message, and v gets the status 500.
func (g *Guard) isWrong(ctx context.Context, v *Verdict, err error) bool {
	wrong := (*coreaccess.WrongLimitError)(nil)
	if !errors.As(err, &wrong) {
		return false
	}
	if g.wrongLimits.isNew(err.Error()) {
		logError(ctx, g.limiter, "redislimit: a wrong limit in LimiterFor; requests with it are answered with 500, and this is logged once", err)
	}
	v.Status, v.Err = http.StatusInternalServerError, err
	return true
}

// decideOne makes the limiter decide, and records the outcome in v. The cost is charged at once, unless
// it is known only when the response ends. There is a Permit or a Reservation only if something may
// have to be given back, because it costs an allocation.
func (g *Guard) decideOne(ctx context.Context, key string, v *Verdict) {
	slots, queue, _ := inside.Core.NeedsEnd(v.limiter)
	v.slots = slots
	lim := g.decider(v.limiter)
	switch {
	case g.settings.WaitUpTo > 0 && !g.settings.DryRun && !queue:
		g.decideOrWait(ctx, lim, key, v)
	case g.reserves():
		v.takeReservation(lim.Reserve(ctx, key, v.cost))
	case slots || queue:
		v.takePermit(lim.Acquire(ctx, key, v.cost))
	default:
		v.Result, v.Err = lim.AllowN(ctx, key, v.cost)
	}
}

// decideOrWait makes the limiter decide, and waits as long as the option WaitUpTo allows.
func (g *Guard) decideOrWait(ctx context.Context, lim *core.Limiter, key string, v *Verdict) {
	w := coreaccess.Waiting{Key: key, N: v.cost, UpTo: g.settings.WaitUpTo, Most: g.settings.MaxWaiting}
	came := time.Now()
	if g.reserves() {
		v.takeReservation(inside.Core.ReserveUpTo(ctx, lim, w, &v.Result))
	} else {
		v.takePermit(inside.Core.AcquireUpTo(ctx, lim, w, &v.Result))
	}
	v.warnIfCutOff(ctx, time.Since(came))
}

// decider returns the limiter that makes the decisions of lim. With DryRun it is one whose denials
// ban no key.
func (g *Guard) decider(lim *core.Limiter) *core.Limiter {
	if g.settings.DryRun {
		lim = inside.Core.WithoutBans(lim)
	}
	return lim
}

// noteCost remembers the cost that was set for an earlier request, if a handler serves several in
// one. actualCost does not charge this request for it.
func (v *Verdict) noteCost() {
	if set := v.state.cost.Load(); set != nil && set.charged.Load() {
		v.others = set
	}
}

// await waits for the Delay of an admitted request. If the context of the request ends first, the
// reservation is canceled, so that nothing stays held or charged; Cancel works although ctx has
// ended.
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

// warnIfCutOff warns if a request waits for longer than the WriteTimeout of its net/http server.
// The handler may then still run, but its client gets nothing.
func (v *Verdict) warnIfCutOff(ctx context.Context, wait time.Duration) {
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.WriteTimeout <= 0 || wait <= server.WriteTimeout {
		return
	}
	inside.Core.WarnOnce(ctx, v.limiter, fmt.Sprintf("a request waits for longer than the server's WriteTimeout, %v: its client gets no response, "+
		"unless a handler moves that deadline by http.ResponseController. Raise it, or have requests wait for less", server.WriteTimeout))
}

// record keeps the Result for handlers, and writes it into the headers. If the request has probably
// been counted before, record returns the warning to log, and otherwise "".
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

// keyOf returns the key of r. A request without a key is counted by the key of Fallback, so that a
// client cannot avoid the limit by leaving out a credential.
//
// That some requests have no key is normal: the key function then returns ErrNoKey itself. If the
// error wraps ErrNoKey, perhaps no request will ever have a key, as with the key functions Route
// and User in a middleware that is mounted too early. Such an error is logged once.
func (g *Guard) keyOf(r keyfunc.Request) (string, error) {
	key, err := keyBy(g.key, r)
	if !errors.Is(err, keyfunc.ErrNoKey) {
		return key, err
	}
	inside.Core.Emit(r.Context(), g.limiter, core.Event{Kind: core.EventKeyFallback, Err: err})
	if err != keyfunc.ErrNoKey { //nolint:errorlint,err113 // the comparison finds out whether the error is wrapped
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

// keyBy returns the key that f takes from r. An empty key is an error.
func keyBy(f keyfunc.Func, r keyfunc.Request) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		return "", core.ErrInvalidKey
	}
	return key, err
}

// costOf returns the cost of r, which is 1 by default and instead of a negative cost.
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

// logNever logs, once, that requests are denied which can never be admitted. A cost above the
// capacity may be intended, or a mistake that makes a route useless. Nothing is logged for the
// capacity of the outage policy, which is not the configured one, and for a capacity of 0, which is
// always intended.
func (g *Guard) logNever(ctx context.Context, res *core.Result, cost int64) {
	if res.Source == core.SourceFallback || res.Limit == 0 {
		return
	}
	g.neverLogged.Do(func() {
		attrs := []any{"limiter", res.LimiterName, "limit", res.LimitName, "capacity", res.Limit}
		if g.alsoLimits == nil { // a limiter of AlsoLimit may have another cost
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

// maxMessages bounds how many messages are remembered. When the bound is reached, all are
// forgotten.
const maxMessages = 1000

// messages is the set of the messages that have been logged.
type messages struct {
	mu     sync.Mutex
	logged map[string]bool
}

// isNew reports whether the message has not been logged before, and adds it to the set.
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
