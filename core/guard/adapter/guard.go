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
// answered. nginx uses the same status. It is for access logs: only a client that has closed just its sending
// side can see it.
const StatusClientGone = 499

// A Guard decides about the requests that pass one middleware. It is safe for concurrent use.
type Guard struct {
	limiter    *core.Limiter
	key        keyfunc.Func
	peer       keyfunc.Func      // for requests for which neither key nor Fallback returns a key
	settings   settings.Settings // from the middleware's options
	alsoLimits []*Guard          // one for each guard.AlsoLimit

	wrongLimits                                               messages
	noKeyLogged, negativeLogged, neverLogged, wrongCostLogged sync.Once
}

// A Verdict says what to do with a request.
type Verdict struct {
	// Status is 0 if the request must be served. Otherwise it is the status to answer with:
	//
	//   - 429 for a denied request
	//   - 503 if the limiter could not decide, if the request could not be served before its deadline,
	//     or if its context had been canceled before Check
	//   - 500 if the key function or LimiterFor failed, if the limiter was called wrongly, or if it
	//     returned an unknown error
	//   - StatusClientGone if the context of the request was canceled during Check, or before an Answerer
	//     was called: the client has probably left
	Status int
	// Result is the limiter's decision. Its Source is SourceNone if there was none, and also if FailOpen
	// admitted the request.
	Result core.Result
	// Err is the reason why the request is not served. For a denial it is a [*guard.DeniedError] or, from
	// an Answerer, [core.ErrNeverAdmitted] if the limiter has returned that. Otherwise it is the error that
	// prevented the decision, or the error of a context that ended during the Delay.
	Err error
	// Context, if not nil, replaces the context of the request while the request is served. Finish
	// cancels it. If slots of the request are lost before that, it is canceled with the cause
	// [core.ErrSlotLost].
	Context context.Context //nolint:containedctx // it is the context of the request
	// Code is the code with which the request ended. The adapter sets it before Finish, for
	// [Adapter.CountIf].
	Code int

	draw        float64            // the random number for the waits in the answer; see headers.retryIn
	limiter     *core.Limiter      // the limiter that decides; the limiters of AlsoLimit decide with it
	admitted    admission          // what Finish ends; nil if there is nothing to end or to give back
	cost        int64              // the cost that the limiter decided about
	slots       bool               // whether one of the limits that decide has slots
	slot        slot               // the slot that the request holds; zero if it holds none
	endedBefore bool               // whether the request's context had ended before Check
	others      *cost              // a cost of an earlier request with the same state; see noteCost
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

// takePermit records what a limiter has returned: p with its Result, or err. If p is nil, there is nothing
// to end, and the Result of v stays as it is.
func (v *Verdict) takePermit(p *core.Permit, err error) {
	if v.Err = err; p != nil {
		v.admitted, v.Result = p, p.Result
	}
}

// takeReservation is like takePermit, for a Reservation. It also keeps the Reservation from expiring,
// because the response may take longer than the Hold.
func (v *Verdict) takeReservation(r *core.Reservation, err error) {
	if v.Err = err; r != nil {
		v.admitted, v.Result = r, r.Result
		r.Keep()
	}
}

// Check decides about r, and sets the headers of its response. A request that the option Skip exempts is
// served without a decision. If r is admitted, Check waits for its Delay, except with DryRun. state is
// the RequestState that the adapter keeps with r.
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
		if v.tookSlot() {
			v.slot = slot{counted{v.limiter, key}, identity(h)}
			state.noteSlot(v.slot)
		}
	case v.Status == http.StatusServiceUnavailable || v.Status == StatusClientGone:
		state.refused.Store(int32(v.Status))
	}
	o.finish(h, &v)
	return v
}

// tookSlot reports whether the limiter of v took a slot, if it has slots. It took none for a request that
// DryRun serves although it was denied, for a request that FailOpen admitted, and for a cost of 0.
func (v *Verdict) tookSlot() bool {
	return v.Result.Allowed && v.Result.Source != core.SourceNone && v.cost > 0
}

const (
	countedTwice = "a request is counted twice: two middlewares that it passes have this limiter and the same key, or a handler restarts its " +
		"routing (Gin's HandleContext, Fiber's RestartRouting): remove one, give it a limiter of another name, or mount it on routes"
	hadHeaders = "a response had %sLimit before this limiter decided: either a handler restarts the routing of the request " +
		"(Gin's HandleContext), which is then counted twice, so mount the limiter on routes; or a middleware of another library or adapter " +
		"sets the same headers, of which clients see the last"
)

// decide makes the limiter decide about r, records the outcome in v, and returns the key of r. There are
// two exceptions. If there is no key, because the key function or LimiterFor has failed, decide returns "".
// If the request already holds a slot of the limiter and key, it is served without another decision.
func (g *Guard) decide(r keyfunc.Request, h Header, v *Verdict) (key string) {
	key, ok := g.choose(r, v)
	if !ok {
		return ""
	}
	if slots, _, _ := inside.Core.NeedsEnd(v.limiter); slots && g.alsoLimits == nil && v.state.holdsSlot(h, v.limiter, key) {
		inside.Core.WarnOnce(r.Context(), v.limiter, countedTwice)
		return key // the request needs only one slot: if it had to take another, it could wait for itself
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
			inside.Core.ErrorMinutely(r.Context(), v.limiter, "the limiter was used wrongly", v.Err) // the limiter itself logs outages
		}
	case !v.Result.Allowed:
		v.Status = http.StatusTooManyRequests
		if v.Result.RetryAfter == core.Never {
			g.logNever(r.Context(), &v.Result, v.cost)
		}
	}
	return key
}

// choose sets the limiter of v if LimiterFor chooses one, and returns the key of r. If LimiterFor or the
// key function fails, choose sets the Status and the Err of v and returns false.
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

// chooseLimiter sets the limiter of v to the limiter that LimiterFor returns, unless that is nil. If
// LimiterFor fails, chooseLimiter sets the Status and the Err of v and returns false.
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

// isWrong reports whether err says that limits which LimiterFor chose are invalid or cannot decide
// together. If so, isWrong sets the Err of v to err and its Status to 500. It also logs err, unless
// wrongLimits already contains its message.
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

// decideOne makes the limiter of v decide, and records the outcome in v. An admitted cost is charged at
// once, unless it is known only when the response ends. A Permit or a Reservation takes an allocation, so
// decideOne obtains one only if something may have to be ended or given back, or if the request may wait.
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

// decideOrWait makes lim decide, and records the outcome in v. A request that would be denied waits to be
// admitted, but no longer than the option WaitUpTo allows. It does not wait if that would certainly be too
// long, or if too many requests wait; see MaxWaiting.
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

// decider returns the limiter that really decides: lim or, with DryRun, a limiter that decides like lim but
// whose denials ban no key.
func (g *Guard) decider(lim *core.Limiter) *core.Limiter {
	if g.settings.DryRun {
		lim = inside.Core.WithoutBans(lim)
	}
	return lim
}

// noteCost remembers the last cost that was passed to SetCost, if a middleware has already charged it. It
// then belongs to an earlier request: a handler may serve several requests with the same state, one
// after the other. actualCost does not charge this request for it.
func (v *Verdict) noteCost() {
	if set := v.state.cost.Load(); set != nil && set.charged.Load() {
		v.others = set
	}
}

// await waits for the Delay of an admitted request. If ctx, the context of the request, ends before the
// Delay is over, await cancels the admission, which gives back what is held or charged. Cancel works
// although ctx has ended.
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

// warnIfCutOff logs a warning, once for each limiter and WriteTimeout, if the wait of a request is longer
// than the WriteTimeout of its net/http server. The handler of the request then runs after the wait, but the
// client gets no response.
func (v *Verdict) warnIfCutOff(ctx context.Context, wait time.Duration) {
	server, _ := ctx.Value(http.ServerContextKey).(*http.Server)
	if server == nil || server.WriteTimeout <= 0 || wait <= server.WriteTimeout {
		return
	}
	inside.Core.WarnOnce(ctx, v.limiter, fmt.Sprintf("a request waits for longer than the server's WriteTimeout, %v: its client gets no response, "+
		"unless a handler moves that deadline by http.ResponseController. Raise it, or have requests wait for less", server.WriteTimeout))
}

// record keeps the Result for handlers and, except with DryRun, writes the headers about it. It returns a
// warning that must be logged, or "". The warning says that the request has been counted before, or that
// its response already had such headers.
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

// keyOf returns the key of r. If the key function finds no key, keyOf returns the key of Fallback. If there
// is no Fallback, or it finds no key either, keyOf returns the address of the peer. So a client cannot avoid
// the limit by leaving out a credential.
//
// It is normal that some requests have no key: the key function then returns ErrNoKey itself. An error
// that wraps ErrNoKey may mean that no request will ever have a key. The key functions Route and User
// return such an error in a middleware that is mounted too early. keyOf logs the first such error.
func (g *Guard) keyOf(r keyfunc.Request) (string, error) {
	key, err := keyBy(g.key, r)
	if !errors.Is(err, keyfunc.ErrNoKey) {
		return key, err
	}
	inside.Core.Emit(r.Context(), g.limiter, core.Event{Kind: core.EventKeyFallback, Err: err})
	if err != keyfunc.ErrNoKey { //nolint:errorlint,err113 // errors.Is would not tell whether the error is wrapped
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

// costOf returns the cost of r: 1 without the option Cost, and also 1 if the function of that option returns a
// negative cost. The first negative cost is logged.
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

// logNever logs, once, that a request was denied because its cost is above the capacity. The application
// may intend this, or it may be a mistake that makes a route useless. Two kinds of denials are not logged.
// A denial during an outage may come from the share of this process, which has less than the configured
// capacity. A denial by a limit of 0 is always intended.
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

// maxMessages bounds how many messages are remembered. When the bound is reached, all of them are
// forgotten, and may be logged again.
const maxMessages = 1000

// messages is a set of messages that have been logged.
type messages struct {
	mu     sync.Mutex
	logged map[string]bool
}

// isNew reports whether the set does not contain message yet, and adds it.
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
