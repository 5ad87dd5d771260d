// Package guard is the decision path of every adapter: it takes the key from a
// request, asks the limiter, sets the headers, waits for a leaky bucket's Delay, and
// returns what to do with the request.
//
// Users of a middleware need its options ([Option]: [Skip], [Cost], [CountIf] and
// so on), and [DeniedError]. Everything else is for authors of adapters: an
// [Adapter] makes the [Guard] of a middleware, which shows each request to
// [Guard.Check] and does what the [Verdict] says.
//
// Check in guard.go is that path, and settle.go its end, for limits that charge when the
// response ends. header.go and ietf.go write the headers, and Seen in adapter.go has what
// the middlewares of one request know of each other.
package guard

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// StatusClientGone is the status of a request whose client disconnected before it was
// answered. It is that of nginx, and appears in access logs only.
const StatusClientGone = 499

// A Guard decides about the requests that pass one middleware. It is safe for
// concurrent use.
type Guard struct {
	limiter  *core.Limiter
	key      keyfunc.Func
	fallback keyfunc.Func // for requests without a key; nil if that is peer
	peer     keyfunc.Func // for those without that key

	skip       func(keyfunc.Request) bool
	cost       func(keyfunc.Request) int64
	limiterFor func(keyfunc.Request) *core.Limiter
	limitFor   func(keyfunc.Request) ([]core.Limit, error)
	countIf    func(status int) bool
	costAfter  bool
	dryRun     bool
	headers    headers
	denied     any // the handler of OnDenied, of the framework's type
	failed     any // that of OnError

	wrongLimits                                               wrongLimits
	noKeyLogged, negativeLogged, neverLogged, wrongCostLogged sync.Once
}

// A Verdict says what to do with a request.
type Verdict struct {
	// Status is 0 to serve the request, or what to answer instead: 429 for a denied
	// request, 503 when the limiter could not decide, 500 when the key function
	// failed, StatusClientGone when the client has left.
	Status int
	// Result is the limiter's decision. Its Source is SourceNone if there was none.
	Result core.Result
	// Err is why the request is not served: a *DeniedError, or why there was no
	// decision.
	Err error
	// Context, if not nil, is with what context to serve the request, in place of its own:
	// it is canceled when slots of the request are lost, with [core.ErrSlotLost] as the
	// cause, and by Finish.
	Context context.Context //nolint:containedctx // it is that of the request

	limiter *core.Limiter      // that of the Result, which refunds and settles it
	cost    int64              // what was charged or reserved
	seen    *Seen              // of the request
	cancel  context.CancelFunc // of Context
}

// Check decides about r, sets the headers of its response and waits for its Delay.
func (g *Guard) Check(r keyfunc.Request, h Header, seen *Seen) (v Verdict) {
	v.limiter, v.seen = g.limiter, seen
	seen.limiter.Store(v.limiter)
	if g.skip != nil && g.skip(r) {
		return v
	}
	g.decide(r, seen, &v)
	if v.Result.Source != core.SourceNone {
		g.record(h, &v.Result, seen)
	}
	switch {
	case g.dryRun:
		v.Status, v.Err = 0, nil
	case v.Status == http.StatusServiceUnavailable && g.headers.sets != 0:
		h.Set(headerRetryAfter, "1") // soon: when the server answers again is not known
	case v.Status == 0 && v.Result.Delay > 0:
		if err := sleep(r.Context(), v.Result.Delay); err != nil {
			v.refund(r.Context())
			v.Status, v.Err = StatusClientGone, err
		}
	}
	if v.Status == 0 && v.Result.HasSlots() {
		v.Context, v.cancel = v.limiter.SlotContext(r.Context(), v.Result)
	}
	return v
}

// decide asks the limiter about r.
func (g *Guard) decide(r keyfunc.Request, seen *Seen, v *Verdict) {
	if g.limiterFor != nil {
		if lim := g.limiterFor(r); lim != nil {
			v.limiter = lim
			seen.limiter.Store(lim)
		}
	}
	if g.limitFor != nil {
		lim, err := g.withLimits(r, v.limiter)
		if err != nil {
			v.Status, v.Err = http.StatusInternalServerError, err
			return
		}
		v.limiter = lim
		seen.limiter.Store(lim)
	}
	key, err := g.keyOf(r)
	if err != nil {
		v.Err = err
		logError(r.Context(), g.limiter, "redislimit: the key function failed", err)
		v.Status = http.StatusInternalServerError
		return
	}
	v.cost = g.costOf(r)
	v.Result, v.Err = g.ask(r.Context(), v.limiter, key, v.cost)
	switch {
	case v.Err != nil && r.Context().Err() != nil:
		v.Status = StatusClientGone
	case v.Err != nil:
		v.Status = http.StatusServiceUnavailable // the limiter logs an outage, once
	case !v.Result.Allowed:
		v.Status, v.Err = http.StatusTooManyRequests, &DeniedError{Result: v.Result, hidden: g.headers.sets == 0}
		if v.Result.RetryAfter == core.Never {
			g.logNever(r.Context(), &v.Result, v.cost)
		}
	}
}

// record keeps res for handlers, and writes it into the headers. Both have the
// tightest decision so far.
func (g *Guard) record(h Header, res *core.Result, seen *Seen) {
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.result.Source == core.SourceNone || res.Tighter(seen.result) {
		seen.result = *res
	}
	if !g.dryRun && g.headers.sets != 0 {
		g.headers.set(h, res, seen)
	}
}

// keyOf returns the key of r. A request without one is counted by the fallback, so that
// leaving out a credential does not avoid the limit. That is normal for some requests,
// where the error is ErrNoKey itself. A Func that wraps ErrNoKey says that no request
// will ever have its key, as Route does where it is mounted too early: that is logged
// once.
func (g *Guard) keyOf(r keyfunc.Request) (string, error) {
	key, err := keyBy(g.key, r)
	if !errors.Is(err, keyfunc.ErrNoKey) {
		return key, err
	}
	g.limiter.Emit(r.Context(), core.Event{Kind: core.EventKeyFallback, Err: err})
	if err != keyfunc.ErrNoKey { //nolint:errorlint,err113 // it asks whether the error is wrapped
		g.noKeyLogged.Do(func() {
			by := "their peer's address"
			if g.fallback != nil {
				by = "the Fallback"
			}
			g.limiter.Logger().WarnContext(r.Context(), "redislimit: requests are limited by "+by+" instead",
				"limiter", g.limiter.Name(), "error", err)
		})
	}
	if g.fallback != nil {
		if key, err = keyBy(g.fallback, r); !errors.Is(err, keyfunc.ErrNoKey) {
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
	if g.cost == nil {
		return 1
	}
	n := g.cost(r)
	if n < 0 {
		g.negativeLogged.Do(func() {
			logError(r.Context(), g.limiter, "redislimit: charged 1 instead; this is logged once", core.ErrInvalidCost, "cost", n)
		})
		return 1
	}
	return n
}

// logNever logs once that requests are denied which can never be admitted: a cost above
// the capacity may be meant, or a mistake that makes a route useless. The capacity of
// the outage policy is not the configured one, and is not logged.
func (g *Guard) logNever(ctx context.Context, res *core.Result, cost int64) {
	if res.Source == core.SourceFallback {
		return
	}
	g.neverLogged.Do(func() {
		g.limiter.Logger().WarnContext(ctx, "redislimit: denied a cost that is above the capacity, so that it can never be admitted; this is logged once",
			"limiter", res.Limiter, "limit", res.Name, "capacity", res.Limit, "cost", cost)
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
