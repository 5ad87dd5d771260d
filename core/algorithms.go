package core

import (
	"fmt"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// FixedWindow returns a [Limit] that admits at most the rate's count in each window of the rate's
// period. A window of a key opens with the first request that is charged, and lasts for the period.
// With [Aligned], windows start at multiples of the period since the Unix epoch. With [PerWeek],
// [PerMonth] or [In], they follow a calendar. FixedWindow suits published quotas, such as 5000 a
// day.
//
// It is the cheapest algorithm and the coarsest: around the boundary of two windows, up to twice
// the rate's count can be admitted within one period. It keeps one string of about 25 bytes per
// key, and a decision takes constant time.
func FixedWindow(r Rate, o ...WindowOption) Limit {
	return with(newLimit(algorithm.FixedWindow, r), o).canonical()
}

// SlidingWindowLog returns a [Limit] that is exact in every window: it never admits more than the
// rate's count within one period, whenever that period begins. It remembers when each unit was
// admitted. It suits small limits that must hold strictly, such as limits on logins or payments.
//
// Its memory grows with the charges in the window. It keeps a sorted set with one entry for each
// charge of one unit; an entry takes about 20 bytes if the set has at most 128 entries, and 120
// bytes otherwise. A charge of several units takes a few entries, for example 11 for 100,000 units.
// The largest count is 100,000; use [SlidingWindowCounter] for larger counts.
func SlidingWindowLog(r Rate, o ...LimitOption) Limit {
	return with(newLimit(algorithm.SlidingWindowLog, r), o)
}

// SlidingWindowCounter returns a [Limit] that approximates a sliding window in constant memory. It
// counts the units in the current window, which is aligned to the Unix epoch, and in the previous
// window. To the count of the current window it adds a share of the previous window's count: the share
// of that window which lies within the last period. For example, if only the last quarter of the
// previous window lies within the last period, a quarter of that window's count is added. It suits
// large limits that should be smooth: if requests come evenly, it has no double burst at the boundary
// of two windows as a fixed window has.
//
// It is exact if the units of the previous window came evenly. If they came in a burst at the end
// of that window, nearly twice the rate's count can be admitted within one period. It keeps one
// string of about 25 bytes per key, and a decision takes constant time.
//
// The algorithm became known through Cloudflare, "How we built rate limiting capable of scaling to
// millions of domains", 2017.
func SlidingWindowCounter(r Rate, o ...LimitOption) Limit {
	return with(newLimit(algorithm.SlidingWindowCounter, r), o)
}

// TokenBucket returns a [Limit] that admits bursts, and the rate after them. A bucket of [Burst]
// tokens (default: the rate's count) starts full and refills continuously at the rate. A request
// takes as many tokens as it costs, and is denied while there are fewer. It is the usual choice for
// an API, whose clients come in bursts.
//
// It keeps one string of about 25 bytes per key, and a decision takes constant time. It stores the
// instant at which the bucket is full again, not a number of tokens. A number of tokens would be a
// fraction: at a rate of 7 per minute, 7/60,000,000 tokens come back in 1 µs. Lua, which has only
// doubles, would round this fraction at each refill. The instant stays exact while the rate does not
// change, because a charge only adds to it.
//
// The algorithm is the token bucket of traffic policing, as in Tanenbaum's "Computer Networks" or
// RFC 2697.
func TokenBucket(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.TokenBucket, r), o) }

// GCRA returns a [Limit] that admits exactly what [TokenBucket] admits, but is defined in another
// way. The generic cell rate algorithm keeps the theoretical arrival time (TAT): the instant at
// which all units used so far are available again. For each request it computes a new TAT. It starts
// from the TAT or, if the TAT has passed, from the present, and adds the time in which the cost of the
// request refills. The request is admitted if the new TAT is no further in the future than the time
// in which [Burst] units refill. The default Burst is the rate's count. GCRA stores and answers the
// same as TokenBucket. It exists because many people know the algorithm by this name.
//
// The algorithm is defined in ITU-T Recommendation I.371 and in the ATM Forum's Traffic Management
// Specification 4.0.
func GCRA(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.GCRA, r), o) }

// LeakyBucket returns a [Limit] that shapes traffic: a queue of [Burst] units that drains evenly at
// the rate, however the requests came in. The [Result.Delay] of an admitted request says how long
// to wait for its turn, and the middleware holds the request for that long. A request that does not
// fit into the queue is denied. LeakyBucket suits a backend that cannot take bursts. If a request
// leaves the queue before its turn, its place goes to the next request that comes; see
// [Permit.Cancel].
//
// The default Burst is the number of units that drain in one second, but at least 1. So with the
// default Burst, no request is held for longer than a second, unless the queue was filled while the
// limit had a larger Burst.
//
// It keeps one string of about 45 bytes per key. The string is longer while places that were given
// back are free; at most 128 such places are kept. The queue is only this string: it contains no
// requests. Each caller waits for its own Delay.
//
// The algorithm is the leaky bucket as a queue, by J. Turner, "New Directions in Communications",
// 1986.
func LeakyBucket(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.LeakyBucket, r), o) }

// InFlight returns a [Limit] on how many requests may be in flight at a time. It has n slots, from
// 0 to 1e9. An admitted request takes as many slots as it costs, and gives them back when its work
// has ended. Use [Limiter.Acquire] or [Limiter.Reserve]:
//
//	p, err := lim.Acquire(ctx, key, 1)
//	// ... if p.Allowed:
//	defer func() { _ = p.Release(ctx) }()
//
// The middleware does this for you, and gives the slots back when the response ends, however it
// ends.
//
// InFlight suits slow endpoints, or work that must not be done twice at the same time. It goes well beside a
// limit with a rate in the same Limiter: all limits must admit, or none is charged. In such a Limiter, a
// request that costs 60 units of the rate also takes 60 slots. If each request should take one slot whatever
// it costs, give InFlight a Limiter of its own, and let both Limiters decide by [AcquireAll], where
// [Keyed.Cost] gives the second Limiter the cost 1. With n = 0 it denies every request that costs anything:
// see [Limit].
//
// A slot is taken for one [SlotTTL]. The Limiter renews the slot in the background, at least once in
// every third of that time, until the work ends. (With the option [Clock], it renews slots only when it
// makes decisions.) So a process that dies withholds its slots for at most one
// SlotTTL. A process that cannot renew a slot in time, because Redis does not answer, loses the
// slot, and another process can take it. The context of [Permit.Context] is then canceled; the
// handlers of the middleware get that context.
//
// At any instant of the clock of Redis, at most n unexpired slots are taken. The promise depends on
// that clock: if it steps forward by a SlotTTL, all slots become free, and if it steps back, the
// slots of a dead process are withheld for longer. A failover that loses writes, or an eviction,
// loses slots. While Redis does not answer, each process counts for itself with [FailLocal], and
// nothing is counted with [FailOpen].
//
// In a Result, Remaining is the number of free slots, and ResetAfter and Window are 0. If too few slots are
// free, RetryAfter is one second, because it is not known when a slot will be given back; the deny cache
// never repeats such a denial. A [Ban], and a cost above n, have the same Result as with every other limit.
// [Limiter.Reset] frees no slots.
//
// InFlight keeps a sorted set with one member of 30 to 140 bytes for each call in flight, and a
// decision takes logarithmic time.
func InFlight(n int64, o ...InFlightOption) Limit {
	l := Limit{kind: algorithm.InFlight, burst: n}
	if n < 0 || n > maxCount {
		l.fail(fmt.Sprintf("InFlight(%d): allowed is 0 to %d", n, maxCount))
	}
	return with(l, o)
}

// unlimited is the Kind of [Unlimited]. It is no algorithm, so [algorithm.Kinds] does not contain it.
var unlimited = &algorithm.Kind{Name: "unlimited"}

// Unlimited returns a [Limit] that admits everything. It stands in place of another Limit for keys
// that have no limit there, such as those of a customer without a quota, so that a plan from a
// database is always a list of Limits:
//
//	limits, err := lim.With(core.Unlimited(), core.InFlight(customer.AtATime))
//
// An Unlimited counts nothing. It is not part of a [Lease], and no header shows it. If there are other
// Limits, it has no [Result] of its own, and the other Limits decide as if it were not there.
//
// If all Limits of a key are Unlimited, the key is admitted unless it is banned, and [Result.Unlimited] is
// true. (If [FailOpen] has admitted the key, Unlimited is false.) With the option [Ban], Redis is asked
// whether the key is banned, and the outage policy decides while Redis does not answer. Without the option
// Ban, no decision needs Redis, so an outage makes no difference.
//
// Several Limits of a [Limiter] can be Unlimited. In a text, an Unlimited is written "unlimited"; see
// [ParseLimit].
func Unlimited() Limit { return Limit{kind: unlimited} }
