// Package guard has what all the adapters have in common for who uses them: the options of a
// middleware ([Option]: [Skip], [Cost], [CountIf] and so on), the [DeniedError] of a denied
// request, and [Problem], the body that answers it.
//
//	httplimit.Middleware(lim, keyfunc.IP(), guard.CountIf(failed), guard.Headers(guard.IETF))
//
// Package adapter below it is for authors of adapters.
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

// An Option adjusts a middleware. This package and the adapters have functions that return Options.
// A middleware panics when it is made if an option is wrong, is given twice, or has no effect
// because of another option.
type Option interface{ option }

// option has the methods of an Option, which are for this module alone.
type option = settings.Option

// An AnswerOption is an [Option] about how requests are answered: the options about headers and
// Retry-After, and the adapters' OnDenied and OnError, which take handlers of their framework. A
// middleware takes AnswerOptions like any other Option. The NewAnswerer of an adapter, for handlers
// that ask a limiter themselves, takes AnswerOptions only.
type AnswerOption interface{ answerOption }

// answerOption has the methods of an AnswerOption, which are for this module alone.
type answerOption = settings.AnswerOption

// Skip lets the requests for which skip returns true pass without a decision: they are not counted,
// and their responses have no headers about the limit. Clients choose the path, and one route may
// have several: Fiber takes /LOGIN for /login, unless it is configured otherwise. So skip the paths
// that need no limit, never all but some.
func Skip(skip func(keyfunc.Request) bool) Option {
	settings.MustFunc(skip == nil, "Skip", "reports which requests to let pass")
	return settings.NewOption("Skip", func(s *settings.Settings) { s.Skip = skip })
}

// Cost sets how many units a request costs; the default is 1. A cost of 0 is allowed except during a
// ban. If the limit is 0, too, the headers say so (X-RateLimit-Limit: 0), because whatever costs more is
// denied. A negative cost is a mistake: 1 is charged. A cost above the capacity is denied, whatever
// remains, and has no Retry-After. Each of the two is logged once. A limiter with InFlight gives a
// request as many slots as it costs: see [core.InFlight].
//
// The ContentLength of net/http is -1 where the client does not say it, as with chunked bodies: a
// cost by it needs a value of its own for these, or a client avoids the cost.
func Cost(cost func(keyfunc.Request) int64) Option {
	settings.MustFunc(cost == nil, "Cost", "returns what a request costs")
	return settings.NewOption("Cost", func(s *settings.Settings) { s.Cost = cost })
}

// Fallback sets the key of requests that do not have the middleware's own. The default, and the key
// of requests that do not have this one either, is [keyfunc.Peer]. Behind a proxy that is the
// proxy's address: all requests without a key would be counted as one, and one client could use up
// the limit of all others. There use
//
//	guard.Fallback(keyfunc.IP(keyfunc.TrustedProxies(...)))
//
// With [keyfunc.FirstOf] as the middleware's key, no fallback is needed.
func Fallback(key keyfunc.Func) Option {
	settings.MustFunc(key == nil, "Fallback", "takes the key of requests without the middleware's own")
	return settings.NewOption("Fallback", func(s *settings.Settings) { s.Fallback = key })
}

// LimiterFor chooses the limiter of a request, such as that of a customer's tier. If it returns
// nil, the limiter of the middleware decides. A customer's own numbers are those of
// [core.Limiter.With]:
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
// With 0 per minute the requests are denied with 429 and no Retry-After; see [core.Limit]. For a
// customer without a limit return lim.With(core.Unlimited()): the responses then have no headers about
// a limit.
//
// It is called for each request, so the numbers are to be in memory. An error is logged, and
// answered with 500. Those of With, such as for -1 per minute, are logged once for each message.
//
// What is true of the path in [Skip] is true here: to choose by route, use [keyfunc.Request.Route],
// or mount a middleware on the route.
func LimiterFor(limiter func(keyfunc.Request) (*core.Limiter, error)) Option {
	settings.MustFunc(limiter == nil, "LimiterFor", "chooses the limiter of a request")
	return settings.NewOption("LimiterFor", func(s *settings.Settings) { s.LimiterFor = limiter })
}

// CountIf counts only the requests whose response has a status for which count returns true, such
// as failed logins: each request is reserved first, so that concurrent ones cannot slip through,
// and charged or not when its response ends. So a limit of 5 also admits at most 5 at a time. count
// must be safe for concurrent use. It is asked once for each admitted request; a panic is a 500,
// and a connection that the handler took over a 101. A request whose client leaves before its
// handler has begun does not count, nor one that an inner middleware answers with 503, because its
// limiter could not decide.
//
// The limiter uses [core.Limiter.Reserve], so what is said there of holds applies. The response
// waits for Redis only where that could decide about the next request. With a LeakyBucket, requests
// that do not count have had their place, and leave a gap in the queue.
//
// The status is the one that this middleware sees: a middleware further out may change it later, as
// one that answers 304 by the ETag of the response does.
//
// A denial by an inner limiter is a response as any other: count is asked about its 429. Limits
// that are to decide together are given by [AlsoLimit].
func CountIf(count func(status int) bool) Option {
	settings.MustFunc(count == nil, "CountIf", "reports which status counts")
	return settings.NewOption("CountIf", func(s *settings.Settings) { s.CountIf = func(status, _ int) bool { return count(status) } })
}

// CostAfter charges what a request really cost, which its handler says with the adapter's SetCost
// before the response ends, such as the tokens of an answer. Until then [Cost], or 1, is reserved,
// as an estimate: a request is admitted if that fits. Then the cost is charged, whether it fits or
// not; 0 has the request not count, such as a login that works. What goes beyond the limit is a
// debt: requests are denied until it is paid. An estimate of 0 fits, but during a ban.
//
// If a handler does not call SetCost, the estimate is charged; if it calls it several times, the
// last cost. A negative cost is a mistake: the estimate is charged; and no more than 1e9 is
// charged. Either is logged, once. What [CountIf] says of requests whose handler did not begin is
// true here: they are charged 0, and so is, with CountIf, one that does not count. One that an
// inner limiter denies is charged the estimate, unless CountIf leaves out 429. Of several
// middlewares, each with CostAfter charges the cost, and the others ignore it. Where a handler
// serves several requests in one, serve them one after the other: while they run at the same time,
// the last cost is that of each.
//
// The limiter uses [core.Limiter.Reserve], so what is said there of holds applies. A LeakyBucket
// keeps its charge: a limiter of these and InFlight alone is refused.
func CostAfter() Option {
	return settings.NewOption("CostAfter", func(s *settings.Settings) { s.CostAfter = true })
}

// DryRun decides and charges, but never denies or delays a request, and sets no headers, whatever
// the other options are: they are for when it is taken away. It serves to try out a limit on live
// traffic. Handlers see the decision.
func DryRun() Option {
	return settings.NewOption("DryRun", func(s *settings.Settings) { s.DryRun = true })
}

// WaitUpTo has a request that would be denied, but admitted within d, wait for that: from a
// millisecond to a minute. It is admitted then as any other, or leaves with its client, and nothing
// stays charged. Others are denied at once, as without it: where it is known that the wait would be
// longer, where [MaxWaiting] requests wait already, during a ban that ends later, and where the
// request's own deadline comes before.
//
// Requests with one key are admitted in the order in which they came, as far as one process can
// know: who comes while others wait goes behind them, and other processes have lines of their own.
// A slot of [core.InFlight], and what [CountIf] and [CostAfter] reserved, may be given back at any
// time: requests wait for it until d is over. They are woken when that happens in this process, and
// else look as [core.Limiter.AcquireWait] does. The context of the waiting is the request's, and
// each decision has the whole [core.Timeout]: d never chooses the outage policy.
//
// Who waits is not banned (see [core.Ban]), and who is denied at once may be. With [DryRun] nothing
// waits. A [core.LeakyBucket] has a queue of its own, whose Burst bounds the wait: a limiter with
// one is refused, and one that [LimiterFor] returns has requests wait for their Delay alone.
// Observers are told of one decision for each request, the last one.
func WaitUpTo(d time.Duration) Option {
	if d < time.Millisecond || d > time.Minute {
		panic(fmt.Sprintf("guard: WaitUpTo(%v): allowed is 1ms to 1m0s", d))
	}
	return settings.NewOption("WaitUpTo", func(s *settings.Settings) { s.WaitUpTo = d })
}

// MaxWaiting bounds how many requests wait by [WaitUpTo] in the limiter of this process at a time,
// from 1 to a million; the default is 1000. More are denied at once. One key takes no more of the
// places than are left for all others.
func MaxWaiting(n int) Option {
	if n < 1 || n > 1_000_000 {
		panic(fmt.Sprintf("guard: MaxWaiting(%d): allowed is 1 to 1000000", n))
	}
	return settings.NewOption("MaxWaiting", func(s *settings.Settings) { s.MaxWaiting = n })
}

// A HeaderSet is a choice of headers.
type HeaderSet uint8

const (
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, as GitHub and most APIs since send
	// them.
	XRateLimit HeaderSet = 1 << iota
	// IETF is RateLimit-Policy and RateLimit of draft-ietf-httpapi-ratelimit-headers-11, as
	// structured fields (RFC 9651). It follows the newest version of the draft, whatever that
	// changes: its authors think of other names for r and t
	// (github.com/ietf-wg-httpapi/ratelimit-headers/pull/164).
	//
	// Of a limit that admits, t is when it is available in full, or later: what remains, spread
	// over t, is no faster than the limit itself. Of one that denies it is as Retry-After.
	IETF
)

// Headers chooses the headers of limited responses: XRateLimit (the default), IETF, or both as
// XRateLimit|IETF.
func Headers(sets HeaderSet) AnswerOption {
	if sets == 0 || sets&^(XRateLimit|IETF) != 0 {
		panic(fmt.Sprintf("guard: Headers(%d): allowed are XRateLimit, IETF and XRateLimit|IETF; for none there is NoHeaders", sets))
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
// If a request passes several middlewares, give all of them the same prefix: clients then see the limit
// that leaves them the fewest requests. With different prefixes, clients see one limit for each prefix.
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

var prefixes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*-$`)

// NoHeaders leaves out all headers about the limit, Retry-After included. There is no other option
// about headers beside it.
func NoHeaders() AnswerOption {
	return settings.NewAnswerOption("NoHeaders", func(s *settings.Settings) { s.Headers.Sets = 0 })
}

// HeadersOnDenial leaves out the headers about the limit where the request is admitted. It suits a
// limit against abuse around one that clients are meant to see.
func HeadersOnDenial() AnswerOption {
	return settings.NewAnswerOption("HeadersOnDenial", func(s *settings.Settings) { s.Headers.OnDenial = true })
}

// ResetInSeconds writes X-RateLimit-Reset, of [XRateLimit], in seconds from now instead of Unix time,
// whatever its [HeaderPrefix].
func ResetInSeconds() AnswerOption {
	return settings.NewAnswerOption("ResetInSeconds", func(s *settings.Settings) { s.Headers.Delta = true })
}

// RetryJitter spreads clients that are denied together: each is told to come back later by a random
// part of its wait, up to this share of it, which is above 0 and at most 1. With 0.2 the
// Retry-After of a minute is one of 60 to 72 seconds, and never earlier than without. Below 5 s no
// whole second is within a fifth: there [RetryAfterMs] alone spreads, as for a 503, whose
// Retry-After is 1. Denials of any source have it.
//
// Within an answer, Retry-After, Retry-After-Ms, the t of IETF's limits that deny and the
// "retry-after" of a [Problem] have one draw. X-RateLimit-Reset, which says when the whole limit is
// back, and the [core.Result] stay exact.
func RetryJitter(share float64) AnswerOption {
	if !(share > 0 && share <= 1) { // NaN, too
		panic(fmt.Sprintf("guard: RetryJitter(%v): allowed is above 0 to 1, such as 0.2 for up to a fifth later", share))
	}
	return settings.NewAnswerOption("RetryJitter", func(s *settings.Settings) { s.Headers.Jitter = share })
}

// MaxRetryAfter bounds what clients are told to wait: what is longer is sent as d, or with
// [RetryJitter] as a little less than d, so that these spread as well. Some clients give up, or
// ignore what is said, where it is more than a minute. Who comes back too early is denied again.
//
// It bounds all that RetryJitter changes, the RetryAfter of a [DeniedError] and "retry-after" of
// its [Problem] among them; the Result has the whole wait. What can never be admitted still has no
// Retry-After. d is in whole seconds, from one on.
func MaxRetryAfter(d time.Duration) AnswerOption {
	if d < time.Second || d%time.Second != 0 {
		panic(fmt.Sprintf("guard: MaxRetryAfter(%v): allowed are whole seconds from 1s", d))
	}
	return settings.NewAnswerOption("MaxRetryAfter", func(s *settings.Settings) { s.Headers.MaxRetry = d })
}

// RetryAfterMs adds Retry-After-Ms, in milliseconds, wherever Retry-After is sent. Clients of
// OpenAI's and Azure's interfaces read it first.
func RetryAfterMs() AnswerOption {
	return settings.NewAnswerOption("RetryAfterMs", func(s *settings.Settings) { s.Headers.Millis = true })
}

// ExposeHeaders lists the headers in Access-Control-Expose-Headers, so that scripts of other
// origins can read them.
func ExposeHeaders() AnswerOption {
	return settings.NewAnswerOption("ExposeHeaders", func(s *settings.Settings) { s.Headers.Expose = true })
}
