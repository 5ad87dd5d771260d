package guard

import (
	"fmt"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Option adjusts a middleware. Besides those here each adapter has OnDenied
// and OnError, which take handlers of its framework. If an option is given twice, the
// last one applies. A nil function panics at once.
type Option func(*Guard)

// Skip lets the requests for which skip returns true pass without a decision: they
// are not counted, and their responses have no headers about the limit.
func Skip(skip func(keyfunc.Request) bool) Option {
	mustFunc(skip == nil, "Skip", "reports which requests to let pass")
	return func(g *Guard) { g.skip = skip }
}

// Cost sets how many units a request costs; the default is 1. A cost of 0 is
// always allowed. A negative cost is a mistake: it is logged, and 1 is charged.
func Cost(cost func(keyfunc.Request) int64) Option {
	mustFunc(cost == nil, "Cost", "returns what a request costs")
	return func(g *Guard) { g.cost = cost }
}

// LimiterFor chooses the limiter of a request, such as that of a customer's tier. If
// it returns nil, the limiter of the middleware decides.
func LimiterFor(limiter func(keyfunc.Request) *core.Limiter) Option {
	mustFunc(limiter == nil, "LimiterFor", "chooses the limiter of a request")
	return func(g *Guard) { g.limiterFor = limiter }
}

// CountIf counts only the requests whose response has a status for which count
// returns true, such as failed logins: each request is reserved first, so that
// concurrent ones cannot slip through, and charged or not when its response ends. So a
// limit of 5 also admits at most 5 at a time. count must be safe for concurrent use. It
// is asked once for each admitted request; a panic is a 500, and a connection that the
// handler took over a 101.
//
// The limiter uses [core.Limiter.Reserve], so what is said there of holds applies. With
// a LeakyBucket, requests that do not count leave a gap in the queue.
func CountIf(count func(status int) bool) Option {
	mustFunc(count == nil, "CountIf", "reports which status counts")
	return func(g *Guard) { g.countIf = count }
}

// CostAfter charges what a request really cost, which its handler says with the
// adapter's SetCost before the response ends, such as the tokens of an answer. Until
// then [Cost], or 1, is reserved, as an estimate: a request is admitted if that fits.
// Then the cost is charged, whether it fits or not. What goes beyond the limit is a
// debt: requests are denied until it is paid. An estimate of 0 always fits.
//
// If a handler does not call SetCost, the estimate is charged; if it calls it several
// times, the last cost. A negative cost is a mistake: the estimate is charged; and no
// more than 1e9 is charged. Either is logged, once. With [CountIf], a request that
// does not count is charged 0. Of several middlewares, each with CostAfter charges
// the cost, and the others ignore it.
//
// The limiter uses [core.Limiter.Reserve], so what is said there of holds applies. A
// LeakyBucket keeps its charge, unless the cost is 0.
func CostAfter() Option { return func(g *Guard) { g.costAfter = true } }

// DryRun decides and charges, but never denies or delays a request, and sets no
// headers. It serves to try out a limit on live traffic. Handlers see the decision.
func DryRun() Option { return func(g *Guard) { g.dryRun = true } }

// Headers chooses the headers of limited responses: XRateLimit (the default),
// IETF, or both as XRateLimit|IETF.
func Headers(sets HeaderSet) Option {
	if sets == 0 || sets&^(XRateLimit|IETF) != 0 {
		panic(fmt.Sprintf("guard: Headers(%d): allowed are XRateLimit, IETF and XRateLimit|IETF; for none there is NoHeaders", sets))
	}
	return func(g *Guard) { g.headers.sets = sets }
}

// NoHeaders leaves out all headers about the limit, Retry-After included.
func NoHeaders() Option { return func(g *Guard) { g.headers.sets = 0 } }

// ResetDelta writes X-RateLimit-Reset in seconds from now instead of Unix time.
func ResetDelta() Option { return func(g *Guard) { g.headers.delta = true } }

// ExposeHeaders lists the headers in Access-Control-Expose-Headers, so that
// scripts of other origins can read them.
func ExposeHeaders() Option { return func(g *Guard) { g.headers.expose = true } }

func mustFunc(missing bool, option, does string) {
	if missing {
		panic("guard: " + option + "(nil): want a function that " + does)
	}
}
