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
// are not counted, and their responses have no headers about the limit. Clients choose
// the path, and one route may have several: Fiber takes /LOGIN for /login, unless it is
// configured otherwise. So skip the paths that need no limit, never all but some.
func Skip(skip func(keyfunc.Request) bool) Option {
	mustFunc(skip == nil, "Skip", "reports which requests to let pass")
	return func(g *Guard) { g.skip = skip }
}

// Cost sets how many units a request costs; the default is 1. A cost of 0 is
// always allowed. A negative cost is a mistake: 1 is charged. A cost above the capacity
// is denied, whatever remains, and has no Retry-After. Each of the two is logged once.
//
// The ContentLength of net/http is -1 where the client does not say it, as with chunked
// bodies: a cost by it needs a value of its own for these, or a client avoids the cost.
func Cost(cost func(keyfunc.Request) int64) Option {
	mustFunc(cost == nil, "Cost", "returns what a request costs")
	return func(g *Guard) { g.cost = cost }
}

// Fallback sets the key of requests that do not have the middleware's own. The default,
// and the key of requests that do not have this one either, is [keyfunc.Peer]. Behind a
// proxy that is the proxy's address: all requests without a key would be counted as
// one, and one client could use up the limit of all others. There use
//
//	guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies(...)))
//
// With [keyfunc.FirstOf] as the middleware's key, no fallback is needed.
func Fallback(key keyfunc.Func) Option {
	mustFunc(key == nil, "Fallback", "takes the key of requests without the middleware's own")
	return func(g *Guard) { g.fallback = key }
}

// LimiterFor chooses the limiter of a request, such as that of a customer's tier. If
// it returns nil, the limiter of the middleware decides. What is true of the path in
// [Skip] is true here: to choose by route, use [keyfunc.Request.Route], or mount a
// middleware on the route.
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
//
// Requests that an inner limiter denies are also charged by the outer ones. If those
// shall count only what the inner one admits, give them a count that returns
// status != http.StatusTooManyRequests.
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

// HeadersOnDenial leaves out the headers about the limit where the request is admitted.
// It suits a limit against abuse around one that clients are meant to see.
func HeadersOnDenial() Option { return func(g *Guard) { g.headers.onDenial = true } }

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
