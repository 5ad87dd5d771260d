// Package guard is the decision path of every adapter: it takes the key from a
// request, asks the limiter, sets the headers and says what to do. An adapter
// only translates its framework's requests and answers.
package guard

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// A Guard decides about the requests that pass one middleware. It is safe for
// concurrent use.
type Guard struct {
	limiter *core.Limiter
	key     keyfunc.Func
	skip    func(keyfunc.Request) bool
	cost    func(keyfunc.Request) int64
}

// An Option adjusts a middleware: [Skip], [Cost].
type Option func(*Guard)

// Skip lets the requests for which skip returns true pass without a decision:
// they are neither counted nor given headers.
func Skip(skip func(keyfunc.Request) bool) Option {
	if skip == nil {
		panic("guard: Skip(nil): want a function that tells which requests to let pass")
	}
	return func(g *Guard) { g.skip = skip }
}

// Cost sets how many units a request costs; the default is 1. A cost of 0 is
// always allowed. A negative cost is a mistake: it is logged, and 1 is charged.
func Cost(cost func(keyfunc.Request) int64) Option {
	if cost == nil {
		panic("guard: Cost(nil): want a function that tells what a request costs")
	}
	return func(g *Guard) { g.cost = cost }
}

// New returns the Guard of a middleware that limits by key. It panics if lim or
// key is nil: that is a mistake in the program, and no route may be left
// unlimited by it.
func New(lim *core.Limiter, key keyfunc.Func, opts ...Option) *Guard {
	switch {
	case lim == nil:
		panic("guard: the limiter is nil: make one with core.New")
	case key == nil:
		panic("guard: the key function is nil: choose one, such as keyfunc.IP()")
	}
	g := &Guard{limiter: lim, key: key}
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
	// failed.
	Status int
	// Result is the limiter's decision. Its Source is SourceNone where there was
	// none.
	Result core.Result
	// Err is why there was no decision.
	Err error
}

// Check decides about r and sets the headers of its response.
func (g *Guard) Check(r keyfunc.Request, h Header) Verdict {
	if g.skip != nil && g.skip(r) {
		return Verdict{}
	}
	key, err := g.key(r)
	if errors.Is(err, keyfunc.ErrNoKey) {
		key, err = keyfunc.Peer()(r)
	}
	if err != nil {
		slog.ErrorContext(r.Context(), "redislimit: the key function failed", "limiter", g.limiter.Name(), "error", err)
		return Verdict{Status: http.StatusInternalServerError, Err: err}
	}
	res, err := g.limiter.AllowN(r.Context(), key, g.costOf(r))
	if err != nil {
		slog.ErrorContext(r.Context(), "redislimit: no decision", "limiter", g.limiter.Name(), "error", err)
		return Verdict{Status: http.StatusServiceUnavailable, Err: err}
	}
	setHeaders(h, res)
	if !res.Allowed {
		return Verdict{Status: http.StatusTooManyRequests, Result: res}
	}
	return Verdict{Result: res}
}

func (g *Guard) costOf(r keyfunc.Request) int64 {
	if g.cost == nil {
		return 1
	}
	n := g.cost(r)
	if n < 0 {
		slog.ErrorContext(r.Context(), "redislimit: a negative cost, charged 1", "limiter", g.limiter.Name(), "cost", n)
		return 1
	}
	return n
}
