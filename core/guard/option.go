// Package guard contains what the users of all adapters share: the options of a middleware
// ([Option]: [Skip], [Cost], [CountIf] and others), the [DeniedError] of a denied request, and
// [Problem], which returns the body of a response to such a request.
//
//	httplimit.Middleware(lim, keyfunc.IP(), guard.CountIf(failed), guard.Headers(guard.IETF))
//
// Authors of adapters use package adapter, which is below this package.
package guard

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Option configures a middleware. This package and the adapters provide functions that return
// Options. These functions panic if an argument is wrong. A middleware panics when it is made if an
// option is nil or does not fit the limiter, if an option other than [AlsoLimit] is given twice, if
// two options exclude each other, as [NoHeaders] and [Headers] do, or if an option adjusts another
// one that is missing, as [MaxWaiting] without [WaitUpTo]. [DryRun] can be combined with every
// option.
type Option interface{ option }

// option has the method of an Option. The method is not exported, so other modules cannot implement
// an Option.
type option = settings.Option

// An AnswerOption is an [Option] that only affects how requests are answered: the options about
// headers and Retry-After, and the options OnDenied and OnError of the adapters, which take
// handlers of their framework. A middleware accepts AnswerOptions like any other Option. The
// function NewAnswerer of an adapter, which is for handlers that call a limiter themselves, accepts
// only AnswerOptions.
type AnswerOption interface{ answerOption }

// answerOption has the methods of an AnswerOption. They are not exported either.
type answerOption = settings.AnswerOption

// Skip lets the requests for which skip returns true pass without a decision. These requests are
// not counted, and their responses have no headers about the limit.
//
// Clients choose the path of a request, and several paths can lead to the same route: by default,
// Fiber takes /LOGIN for /login. Therefore skip the paths that need no limit; do not skip every path
// except the ones that need a limit.
func Skip(skip func(keyfunc.Request) bool) Option {
	settings.MustFunc(skip == nil, "Skip", "reports which requests to let pass")
	return settings.NewOption("Skip", func(s *settings.Settings) { s.Skip = skip })
}

// Cost sets how many units a request costs; the default is 1.
//
// A request that costs 0 is charged nothing. It is admitted, except during a ban, and except while Redis
// does not answer a limiter with [core.FailClosed]. If it meets a limit of 0, the response has
// X-RateLimit-Limit: 0, because every higher cost is denied. A negative cost is a mistake in the
// function: 1 is charged instead. A cost above the capacity is denied however much remains, and the
// response has no Retry-After. The middleware logs the first negative cost and the first cost above
// the capacity. A limiter with [core.InFlight] gives a request as many slots as it costs.
//
// In net/http, ContentLength is -1 if the client does not declare the length, as with chunked
// bodies. So if the cost depends on ContentLength, choose a cost for requests without a declared
// length as well; otherwise clients avoid the cost by not declaring the length.
func Cost(cost func(keyfunc.Request) int64) Option {
	settings.MustFunc(cost == nil, "Cost", "returns what a request costs")
	return settings.NewOption("Cost", func(s *settings.Settings) { s.Cost = cost })
}

// Fallback sets the key function for requests in which the middleware's own key function finds no
// key. The default is [keyfunc.Peer]. If the function of Fallback finds no key either, keyfunc.Peer
// is used as well. Behind a proxy, keyfunc.Peer returns the proxy's address: all requests without a
// key would share one limit, and one client could use it up for all others. Behind a proxy, use
//
//	guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies(...)))
//
// No fallback is needed if the middleware's key is a [keyfunc.FirstOf] whose last Func finds a key
// in every request, such as [keyfunc.IP].
func Fallback(key keyfunc.Func) Option {
	settings.MustFunc(key == nil, "Fallback", "takes the key of requests without the middleware's own")
	return settings.NewOption("Fallback", func(s *settings.Settings) { s.Fallback = key })
}

// LimiterFor chooses the limiter of each request, such as the limiter for a customer's tier. If the
// function returns nil, the limiter that the middleware was mounted with decides. To give each
// customer limits with their own numbers, use [core.Limiter.With]:
//
//	guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
//		u, _ := r.Value(userKey{}).(user) // as authenticated
//		perMinute, ok := plans.Of(u)
//		if !ok {
//			return nil, nil // the limiter that the middleware was mounted with
//		}
//		return lim.With(core.TokenBucket(core.PerMinute(perMinute), core.LimitName("requests")))
//	})
//
// If a customer has 0 requests per minute, their requests are denied with 429 and no Retry-After;
// see [core.Limit]. For a customer without a limit, return lim.With(core.Unlimited()): the
// responses then have no headers about a limit.
//
// The function is called for every request that is not skipped, so it should find the numbers in
// memory. If it returns an error, the error is logged, at most once per minute, and the request is
// answered with 500. An error that comes from With, such as for -1 requests per minute, is logged
// once for each message.
//
// As with [Skip], do not rely on the path, which clients choose: to choose by route, use
// [keyfunc.Request.Route], or mount a middleware on the route.
func LimiterFor(limiter func(keyfunc.Request) (*core.Limiter, error)) Option {
	settings.MustFunc(limiter == nil, "LimiterFor", "chooses the limiter of a request")
	return settings.NewOption("LimiterFor", func(s *settings.Settings) { s.LimiterFor = limiter })
}

// CountIf counts only some requests, such as failed logins: those whose response has a status for
// which count returns true. The middleware reserves the cost of each request before its handler
// runs, so that concurrent requests cannot exceed the limit together. When the response ends, the
// cost is charged if count returns true, and given back otherwise. A limit of 5 therefore also
// admits at most 5 requests at a time.
//
// To limit attempts, let count return true for every status except the one of a success: a client can
// often make a handler fail in another way, for example with 500 by leaving early. A handler that reads a
// slow body holds the reserved units meanwhile, so give the server a ReadTimeout.
//
// count must be safe for concurrent use. It is called once for each admitted request, with three
// exceptions. Two kinds of requests never count: those whose client leaves or whose deadline passes before
// the handler has begun, and those that an inner middleware answers with 503 because its limiter could not
// decide. The third kind always counts: in Gin and Echo, a handler can leave an error to code further out,
// which then writes the response. If this has not happened within a second after the client has left, the
// request counts.
//
// If the handler panics before it has answered, the status is 500. If the handler takes over the connection
// before it has answered, the status is 101. In Fiber, it is then the status that the handler has set, or
// 200. The same is true in Fiber if the handler closes the connection by Drop, so set a status before.
//
// The middleware uses [core.Limiter.Reserve], which says what happens to units that stay held. The
// response waits until Redis has settled the cost, unless there is room for at least 16 more
// requests with this cost. If the limiter has [core.InFlight] as well, the response always waits.
// With a [core.LeakyBucket], a request that does not count has already used its place in the queue.
// Its place stays empty. If all limits of the limiter are [core.InFlight], there is nothing to
// count: the middleware panics when it is made, unless [LimiterFor] or [AlsoLimit] is given.
//
// The status is the one that this middleware sees. A middleware further out can still change the
// status, for example to 304 because of the ETag of the response.
//
// A denial by an inner limiter is a response like any other: count is called with its status, 429.
// To make several limiters decide together, use [AlsoLimit].
func CountIf(count func(status int) bool) Option {
	settings.MustFunc(count == nil, "CountIf", "reports which status counts")
	return settings.NewOption("CountIf", func(s *settings.Settings) { s.CountIf = func(status, _ int) bool { return count(status) } })
}

// CostAfter charges what a request really cost, such as the tokens of an answer. The handler passes
// the cost to the SetCost of the adapter before the response ends. Until then, the middleware holds
// an estimate of the cost, and admits the request if the estimate fits. The estimate is what [Cost]
// returns, or 1 without Cost. An estimate of 0 always fits, with the exceptions that Cost names.
//
// When the response ends, the cost is charged even if less remains. The excess is a debt: requests
// are denied until it is paid off. A cost of 0 makes a request free, such as a login that succeeds.
//
// If the handler does not call SetCost, the estimate is charged. If the handler calls SetCost
// several times, the last cost is charged. A negative cost is a mistake: the estimate is charged
// instead. If the cost is above 1e9, 1e9 is charged. The first cost that is not allowed is logged.
//
// A request is charged 0 in the two cases in which [CountIf] never counts a request: the client left
// or the deadline passed before the handler began, or an inner middleware could not decide and
// answered 503. If CountIf is given as well, a request that it does not count is charged 0, too. A
// request that an inner limiter denies is charged the estimate, unless CountIf excludes the status
// 429. If a request passes several
// middlewares, each middleware with CostAfter charges the cost, and the others ignore it. If one
// request is a batch, which its handler serves as several requests, let the handler serve these one
// after the other: requests of a batch that run at the same time are all charged the cost that was
// set last.
//
// The middleware uses [core.Limiter.Reserve], which says what happens to units that stay held. A
// [core.LeakyBucket] cannot change a charge, and [core.InFlight] charges nothing: if the limiter
// has no other limit, the middleware panics when it is made, unless [LimiterFor] or [AlsoLimit] is
// given.
func CostAfter() Option {
	return settings.NewOption("CostAfter", func(s *settings.Settings) { s.CostAfter = true })
}

// DryRun makes the middleware decide and charge as usual, but serve every request, even if the request
// is denied or no decision can be made. No request waits to be admitted, or for a Delay. Denials begin
// no ban, and no headers are set. Options about denials, waits and headers have no effect until DryRun
// is removed. Use DryRun to try out a limit on live traffic. Handlers can read the decision.
func DryRun() Option {
	return settings.NewOption("DryRun", func(s *settings.Settings) { s.DryRun = true })
}

// WaitUpTo lets a request that would be denied wait up to d until it can be admitted; d is 1
// millisecond to 1 minute. If the client leaves while its request waits, and the request was admitted
// just then, the middleware gives back what it was charged, as [core.Permit.Cancel] does.
//
// In these cases a request is denied at once, as without WaitUpTo:
//
//   - It is known that the request cannot be admitted within d, or before its deadline. For example,
//     its key is banned for longer, or its cost is above the capacity.
//   - Too many requests are waiting already; see [MaxWaiting].
//   - Its cost is 0, and the key is banned. Only a ban denies such a request.
//
// Within one process, requests with the same key are admitted in the order of their arrival: a new
// request goes behind those that wait. Each process has a queue of its own. Slots of
// [core.InFlight], and the units that [CountIf] and [CostAfter] reserve, can be given back at any
// time, so requests wait for them until d is over. The first request in the queue of a key is woken
// when slots or units are given back in this process. It also tries again at intervals, as
// [core.Limiter.AcquireWait] does. The wait ends early if the context of the request ends. d does
// not shorten [core.Timeout]: each decision can take the whole Timeout. So a decision that takes
// longer than d is not mistaken for an outage.
//
// A request that waits begins no ban (see [core.Ban]), but a request that is denied at once can
// begin one. With [DryRun], no request waits. Observers see one decision for each request, the last
// one. A [core.LeakyBucket] has a queue of its own, in which [core.Burst] bounds the wait.
// Therefore the middleware panics when it is made if its limiter has a LeakyBucket. If [LimiterFor]
// returns a limiter with a LeakyBucket, WaitUpTo has no effect on the request, which only waits for
// its Delay.
func WaitUpTo(d time.Duration) Option {
	if d < time.Millisecond || d > time.Minute {
		panic(fmt.Sprintf("guard: WaitUpTo(%v): allowed is 1ms to 1m0s", d))
	}
	return settings.NewOption("WaitUpTo", func(s *settings.Settings) { s.WaitUpTo = d })
}

// MaxWaiting bounds how many requests of this process can wait for the limiter at a time, because
// of [WaitUpTo]. n is from 1 to 1,000,000; the default is 1000. Further requests are denied at
// once. A request is also denied at once if the number of waiting requests with its key is at least
// the number of free places. So the requests with one key never take more than half of the places,
// rounded up.
func MaxWaiting(n int) Option {
	if n < 1 || n > 1_000_000 {
		panic(fmt.Sprintf("guard: MaxWaiting(%d): allowed is 1 to 1000000", n))
	}
	return settings.NewOption("MaxWaiting", func(s *settings.Settings) { s.MaxWaiting = n })
}

// A HeaderSet selects which headers about the limit a response has.
type HeaderSet uint8

const (
	// XRateLimit selects X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, which
	// GitHub and many other APIs send.
	XRateLimit HeaderSet = 1 << iota
	// IETF selects RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11, as
	// structured fields (RFC 9651). Later versions of this package follow the newest version of the
	// draft, even if it changes names: its authors consider other names for the parameters r and t
	// (github.com/ietf-wg-httpapi/ratelimit-headers/pull/164).
	//
	// For a limit that admits, t is at least the time until the limit is available in full: a
	// client that spreads its remaining requests over the time t is no faster than the limit. For a
	// limit that denies, t says when to come back, as Retry-After does.
	IETF
)

// Headers selects the headers of limited responses: XRateLimit (the default), IETF, or both as
// XRateLimit|IETF.
func Headers(sets HeaderSet) AnswerOption {
	if sets == 0 || sets&^(XRateLimit|IETF) != 0 {
		panic(fmt.Sprintf("guard: Headers(%d): allowed are XRateLimit, IETF and XRateLimit|IETF; for no headers, use NoHeaders()", sets))
	}
	return settings.NewAnswerOption("Headers", func(s *settings.Settings) { s.Headers.Sets = uint8(sets) })
}

// HeaderPrefix renames the three headers of [XRateLimit]: their names begin with the prefix instead of
// "X-RateLimit-". For example, HeaderPrefix("X-Rate-Limit-") makes them X-Rate-Limit-Limit,
// X-Rate-Limit-Remaining and X-Rate-Limit-Reset. Other headers keep their names, because standards
// define Retry-After and the headers of [IETF].
//
// A prefix has 2 to 64 letters, digits and hyphens. It begins with a letter or a digit and ends with a
// hyphen. It must not begin with "grpc-" in upper or lower case, which gRPC reserves. In the metadata of
// gRPC the names are in lower case.
//
// If a request passes several middlewares, give all of them the same prefix: clients then see the
// tightest limit, as [core.Result.Tighter] defines it. With different prefixes, clients see one limit for
// each prefix.
//
// The first drafts of the IETF had the headers RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset,
// with the reset in seconds from now. For these, give HeaderPrefix("RateLimit-") and [ResetInSeconds].
func HeaderPrefix(prefix string) AnswerOption {
	if !prefixes.MatchString(prefix) || len(prefix) > 64 || strings.HasPrefix(strings.ToLower(prefix), "grpc-") {
		panic(fmt.Sprintf("guard: HeaderPrefix(%.80q): allowed are 2 to 64 letters, digits and \"-\", from a letter or digit to a \"-\", "+
			"such as \"X-Rate-Limit-\"; not \"grpc-\" and what begins with that", prefix))
	}
	return settings.NewAnswerOption("HeaderPrefix", func(s *settings.Settings) { s.Headers.Names = settings.NewNames(prefix) })
}

// prefixes matches what HeaderPrefix accepts, except for the length and for "grpc-".
var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*-$`)

// NoHeaders omits all headers about the limit, including Retry-After. It cannot be combined with
// another option about headers.
func NoHeaders() AnswerOption {
	return settings.NewAnswerOption("NoHeaders", func(s *settings.Settings) { s.Headers.Sets = 0 })
}

// HeadersOnDenial omits the headers about the limit from the responses to admitted requests. Use it
// for an outer limit that only protects against abuse: with HeadersOnDenial, clients see their own
// limit, and not the outer limit.
func HeadersOnDenial() AnswerOption {
	return settings.NewAnswerOption("HeadersOnDenial", func(s *settings.Settings) { s.Headers.OnDenial = true })
}

// ResetInSeconds writes the value of X-RateLimit-Reset, or of the header that [HeaderPrefix]
// renames it to, in seconds from now instead of Unix time.
func ResetInSeconds() AnswerOption {
	return settings.NewAnswerOption("ResetInSeconds", func(s *settings.Settings) { s.Headers.Delta = true })
}

// RetryJitter spreads clients that are denied at the same time: each wait that a client sees
// becomes longer by a random part, which is at most the wait times share. share is above 0 and at
// most 1. With 0.2, a Retry-After of one minute becomes 60 to 72 seconds. No wait becomes shorter,
// except by [MaxRetryAfter]. With 0.2 and a wait below 5 seconds, such as the one second of a 503, the random part
// is less than a second. In this case, only [RetryAfterMs] spreads the clients. Denials while Redis
// does not answer are spread as well.
//
// All waits in one response use the same random number: Retry-After, Retry-After-Ms, the parameter
// t of each denying limit in the headers of [IETF], and the "retry-after" of a [Problem]. The
// [core.Result] stays exact, and so does X-RateLimit-Reset, which says when the whole limit is
// available again.
func RetryJitter(share float64) AnswerOption {
	if !(share > 0 && share <= 1) { // this also refuses NaN
		panic(fmt.Sprintf("guard: RetryJitter(%v): allowed is above 0 to 1, such as 0.2 for up to a fifth later", share))
	}
	return settings.NewAnswerOption("RetryJitter", func(s *settings.Settings) { s.Headers.Jitter = share })
}

// MaxRetryAfter bounds the waits that clients see. A longer wait is sent as d or, with
// [RetryJitter], as a random wait from d/(1+share) to d. Use MaxRetryAfter for clients that give up
// or ignore the header if the wait is long, such as more than a minute. A client that comes back
// too early is denied again.
//
// The bound applies to everything that RetryJitter changes, including the RetryAfter of a
// [DeniedError] and the "retry-after" of its [Problem]; the [core.Result] keeps the whole wait. A
// request that can never be admitted still has no Retry-After. d must be whole seconds, at least 1.
func MaxRetryAfter(d time.Duration) AnswerOption {
	if d < time.Second || d%time.Second != 0 {
		panic(fmt.Sprintf("guard: MaxRetryAfter(%v): allowed are whole seconds from 1s", d))
	}
	return settings.NewAnswerOption("MaxRetryAfter", func(s *settings.Settings) { s.Headers.MaxRetry = d })
}

// RetryAfterMs adds the header Retry-After-Ms, in milliseconds, to every response that has
// Retry-After. The client libraries of OpenAI and Azure prefer it to Retry-After.
func RetryAfterMs() AnswerOption {
	return settings.NewAnswerOption("RetryAfterMs", func(s *settings.Settings) { s.Headers.Millis = true })
}

// ExposeHeaders lists the headers about the limit in Access-Control-Expose-Headers, so that scripts
// from other origins can read them.
func ExposeHeaders() AnswerOption {
	return settings.NewAnswerOption("ExposeHeaders", func(s *settings.Settings) { s.Headers.Expose = true })
}
