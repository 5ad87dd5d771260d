// Package guard is the decision path of every adapter: it takes the key from a
// request, asks the limiter, sets the headers, holds the request for as long as a
// leaky bucket says, and says what to do. An adapter only translates its
// framework's requests and answers.
package guard

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// StatusClientGone is the status of a request whose client left before there was
// an answer: nobody sees it but access logs. It is nginx's.
const StatusClientGone = 499

// A Guard decides about the requests that pass one middleware. It is safe for
// concurrent use.
type Guard struct {
	limiter *core.Limiter
	key     keyfunc.Func
	peer    keyfunc.Func // for requests without a key

	skip       func(keyfunc.Request) bool
	cost       func(keyfunc.Request) int64
	limiterFor func(keyfunc.Request) *core.Limiter
	countIf    func(status int) bool
	dryRun     bool
	headers    headers
	denied     any // the adapter's own handlers
	failed     any

	advised sync.Once
}

// New returns the Guard of a middleware that limits by key. It panics if lim, key
// or an option is nil: that is a mistake in the program, and no route may be left
// unlimited by it.
func New(lim *core.Limiter, key keyfunc.Func, opts ...Option) *Guard {
	switch {
	case lim == nil:
		panic("guard: the limiter is nil: make one with core.New")
	case key == nil:
		panic("guard: the key function is nil: choose one, such as keyfunc.IP()")
	}
	g := &Guard{limiter: lim, key: key, peer: keyfunc.Peer(), headers: headers{sets: XRateLimit}}
	for _, opt := range opts {
		if opt == nil {
			panic("guard: a nil Option: leave it out")
		}
		opt(g)
	}
	return g
}

// A Verdict says what to do with a request.
type Verdict struct {
	// Status is 0 to serve the request, or what to answer instead: 429 for a denied
	// request, 503 when the limiter could not decide, 500 when the key function
	// failed, StatusClientGone when nobody waits for an answer any more.
	Status int
	// Result is the limiter's decision. Its Source is SourceNone where there was
	// none.
	Result core.Result
	// Err is why the request is not served: a *DeniedError, or why there was no
	// decision.
	Err error

	limiter *core.Limiter
	key     string
}

// Seen is what the middlewares of one request have decided so far. An adapter
// keeps one with each request, for handlers and for stacked middlewares.
type Seen struct {
	// Result is the tightest decision.
	Result core.Result

	xRateLimit told // the tightest in the headers of each set
	ietf       told
	values     [3]string // of X-RateLimit
	room       [64]byte  // in which they are written
}

// A told is what it takes to compare a Result with the next. Each request has two,
// and nearly none has anything to compare.
type told struct {
	allowed                bool
	source                 core.Source
	remaining              int64
	retryAfter, resetAfter time.Duration
}

// tell tells whether res is to be told, and keeps it then.
func (t *told) tell(res *core.Result) bool {
	if t.source != core.SourceNone && !res.Tighter(core.Result{
		Allowed: t.allowed, Source: t.source, Remaining: t.remaining, RetryAfter: t.retryAfter, ResetAfter: t.resetAfter,
	}) {
		return false
	}
	*t = told{res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter}
	return true
}

// Check decides about r, sets the headers of its response and holds it for its
// Delay.
func (g *Guard) Check(r keyfunc.Request, h Header, seen *Seen) (v Verdict) {
	if g.skip != nil && g.skip(r) {
		return v
	}
	g.decide(r, &v)
	if v.Result.Source != core.SourceNone {
		if seen.Result.Source == core.SourceNone || v.Result.Tighter(seen.Result) {
			seen.Result = v.Result
		}
		if !g.dryRun {
			g.headers.set(h, v.limiter.Name(), &v.Result, seen)
		}
	}
	switch {
	case g.dryRun:
		v.Status, v.Err = 0, nil
	case v.Status == http.StatusServiceUnavailable && g.headers.sets != 0:
		h.Set(headerRetryAfter, "1") // by then Redis is asked again
	case v.Status == 0 && v.Result.Delay > 0:
		if err := hold(r.Context(), v.Result.Delay); err != nil {
			v.giveBack(r.Context())
			v.Status, v.Err = StatusClientGone, err
		}
	}
	return v
}

// decide asks the limiter about r.
func (g *Guard) decide(r keyfunc.Request, v *Verdict) {
	v.limiter = g.limiter
	if g.limiterFor != nil {
		if lim := g.limiterFor(r); lim != nil {
			v.limiter = lim
		}
	}
	v.key, v.Err = g.keyOf(r)
	if v.Err != nil {
		g.log(r, "redislimit: the key function failed", v.Err)
		v.Status = http.StatusInternalServerError
		return
	}
	v.Result, v.Err = v.limiter.AllowN(r.Context(), v.key, g.costOf(r))
	switch {
	case v.Err != nil && r.Context().Err() != nil:
		v.Status = StatusClientGone
	case v.Err != nil:
		v.Status = http.StatusServiceUnavailable // the limiter logs an outage, once
	case !v.Result.Allowed:
		v.Status, v.Err = http.StatusTooManyRequests, &DeniedError{v.Result}
	}
}

// keyOf takes the key from r, or else the peer's address: nobody escapes by
// leaving a credential out.
func (g *Guard) keyOf(r keyfunc.Request) (string, error) {
	key, err := g.key(r)
	switch {
	case err == nil && key == "":
		return "", core.ErrInvalidKey
	case !errors.Is(err, keyfunc.ErrNoKey):
		return key, err
	}
	g.limiter.Emit(r.Context(), core.Event{Kind: core.EventKeyFallback, Err: err})
	if err != keyfunc.ErrNoKey { //nolint:errorlint,err113 // a wrapped one says that no request will ever have a key
		g.advised.Do(func() {
			slog.WarnContext(r.Context(), "redislimit: requests are limited by their peer's address instead",
				"limiter", g.limiter.Name(), "error", err)
		})
	}
	return g.peer(r)
}

func (g *Guard) costOf(r keyfunc.Request) int64 {
	if g.cost == nil {
		return 1
	}
	n := g.cost(r)
	if n < 0 {
		g.log(r, "redislimit: charged 1 instead", core.ErrInvalidCost, slog.Int64("cost", n))
		return 1
	}
	return n
}

func (g *Guard) log(r keyfunc.Request, message string, err error, attrs ...any) {
	slog.ErrorContext(r.Context(), message, append(attrs, "limiter", g.limiter.Name(), "error", err)...)
}

// hold waits for d, or until the client leaves, as far as ctx tells.
func hold(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CountsByStatus tells whether [Verdict] Settle wants to know the final status of
// requests.
func (g *Guard) CountsByStatus() bool { return g.countIf != nil }

// Settle gives back what v charged if the final status of the response says that
// the request does not count.
func (g *Guard) Settle(ctx context.Context, v Verdict, status int) {
	if g.countIf != nil && v.Result.Allowed && !g.countIf(status) {
		v.giveBack(ctx)
	}
}

// giveBack refunds what was charged. The client may have left: that is no reason
// to keep what it paid. What cannot be given back in an outage stays charged.
func (v Verdict) giveBack(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	if err := v.limiter.Refund(ctx, v.Result); err != nil && !errors.Is(err, core.ErrUnavailable) {
		slog.ErrorContext(ctx, "redislimit: no refund", "limiter", v.limiter.Name(), "error", err)
	}
}
