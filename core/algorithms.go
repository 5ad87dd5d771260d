package core

import (
	"fmt"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// FixedWindow returns a [Limit] that counts: at most the rate's count in each window of the rate's
// period. A window opens with its first admitted request and lasts for the period; with [Aligned]
// windows start at multiples of the period since the Unix epoch. It suits published quotas, such as
// 5000 a day. With [PerWeek], [PerMonth] or [In] its windows are those of a calendar.
//
// It is the cheapest algorithm and the coarsest: around the boundary of two windows up to twice the
// limit may pass within one period. It keeps one string of about 25 bytes per key, and a decision
// takes constant time.
func FixedWindow(r Rate, o ...WindowOption) Limit {
	return with(newLimit(algorithm.FixedWindow, r), o).canonical()
}

// SlidingWindowLog returns a [Limit] that is exact in every window: in no period, wherever it
// begins, is more than the rate's count admitted. It remembers when each unit was admitted. It
// suits small limits that must hold strictly, such as those of logins or payments.
//
// Its memory grows with the charges in the window: it keeps a sorted set with an entry for each
// charge of one unit, of about 20 bytes if there are at most 128 and else of 120 bytes, and a few
// entries for a charge of several units: 11 for 100,000. New refuses a count above 100,000: use
// [SlidingWindowCounter] there.
func SlidingWindowLog(r Rate, o ...LimitOption) Limit {
	return with(newLimit(algorithm.SlidingWindowLog, r), o)
}

// SlidingWindowCounter returns a [Limit] that comes close to a sliding window in constant memory.
// It counts the units in the current window, aligned to the Unix epoch, and in the one before. To
// the former it adds a share of the latter: the part of that window which lies within the last
// period. It suits large limits that should be smooth, without a fixed window's double burst at the
// boundary.
//
// It is exact if the units of the window before came evenly. It keeps one string of about 25 bytes
// per key, and a decision takes constant time.
//
// The algorithm became known by Cloudflare, "How we built rate limiting capable of scaling to
// millions of domains", 2017.
func SlidingWindowCounter(r Rate, o ...LimitOption) Limit {
	return with(newLimit(algorithm.SlidingWindowCounter, r), o)
}

// TokenBucket returns a [Limit] that admits bursts, and the rate after them: a bucket of [Burst]
// tokens (default: the rate's count) starts full and refills continuously at the rate; a request
// takes as many tokens as it costs and is denied while there are fewer. It is the usual choice for
// an API, whose clients come in bursts.
//
// It keeps one string of about 25 bytes per key, and a decision takes constant time. What is stored
// is not a number of tokens, but the instant at which the bucket is full again. A number of tokens
// is a fraction with a denominator of up to 45 bits (after 1 µs at 7 per minute it is
// 7/60,000,000), which a double, Lua's only number, rounds at each refill; the instant is exact
// with additions alone.
//
// The algorithm is the token bucket of traffic policing, as in Tanenbaum's "Computer Networks" or
// RFC 2697.
func TokenBucket(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.TokenBucket, r), o) }

// GCRA returns a [Limit] that admits as [TokenBucket] does, by its other definition: the generic
// cell rate algorithm keeps the theoretical arrival time (TAT), at which the units used so far are
// all available again. A request is admitted if that instant, moved on by the time of the request's
// cost, is at most the time of [Burst] units (default: the rate's count) ahead. TokenBucket stores
// and answers the same: GCRA exists because it is known by this name, too.
//
// The algorithm is that of ITU-T Recommendation I.371 and the ATM Forum's Traffic Management
// Specification 4.0.
func GCRA(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.GCRA, r), o) }

// LeakyBucket returns a [Limit] that shapes traffic: a queue of [Burst] units from which one leaves
// every period/count, however they came in. The [Result.Delay] of an admitted request says how long
// to wait for its turn, and the middleware holds it that long. A request that does not fit into the
// queue is denied. LeakyBucket protects a backend that cannot take bursts. Who leaves the queue
// before its turn gives its place to the next that comes; see [Permit.Cancel].
//
// The default Burst is what drains in one second, at least 1, so that no request is held for longer
// unless asked.
//
// It keeps one string of about 45 bytes per key, and more while places in the queue are free, 128
// at most. The queue is virtual: no process holds it, and no process drains it.
//
// The algorithm is the leaky bucket as a queue of J. Turner, "New Directions in Communications",
// 1986.
func LeakyBucket(r Rate, o ...BucketOption) Limit { return with(newLimit(algorithm.LeakyBucket, r), o) }

// InFlight returns a [Limit] of how many may be under way at a time: n units, from 0 to 1e9, are
// slots. An admitted request takes as many as it costs, and gives them back when its work has
// ended. It is asked by [Limiter.Acquire] or [Limiter.Reserve], and the middleware does so by
// itself, and gives them back when the response ends, however it ends. It suits endpoints that are
// slow, or work that must not be done twice at once, and stands well beside a limit with a rate: of
// several limits all admit, or none is charged. There a cost of 60 takes 60 slots, too. Where a
// request is to take one slot, whatever it costs, give InFlight a Limiter of its own, and ask both
// by [AcquireAll]: slots.On(key).Cost(1). With n = 0 it denies everything: see [Limit].
//
//	r, err := lim.Acquire(ctx, key, 1)
//	// ... if r.Allowed:
//	defer func() { _ = r.Release(ctx) }()
//
// A slot is held for its [SlotTTL], and the Limiter renews it every third of that, in the
// background, for as long as the work lasts. A process that dies so withholds its slots for one
// SlotTTL at most. A process that cannot renew a slot in time, because Redis does not answer for so
// long, has lost it, and others may take it: the context of [Permit.Context] is then canceled,
// and the middleware's handlers have that context.
//
// There are never more than n unexpired holders by the clock of Redis. It cannot promise more than
// that clock does: a forward step of it by SlotTTL frees all slots, a backward step withholds those
// of a dead process for longer, and a failover that loses writes, or an eviction, loses slots.
// While Redis does not answer, [FailLocal] counts in each process for itself, and [FailOpen] not at
// all.
//
// A Result tells slots: Remaining is how many are free. ResetAfter and Window are 0. RetryAfter is
// one second: when a slot is given back is not known. A denial is never repeated by the deny cache.
// [Limiter.Reset] frees no slots.
//
// It keeps a sorted set with one member of 30 to 140 bytes for each call that is under way, and a
// decision takes logarithmic time.
func InFlight(n int64, o ...InFlightOption) Limit {
	l := Limit{kind: algorithm.InFlight, burst: n}
	if n < 0 || n > maxCount {
		l.fail(fmt.Sprintf("InFlight(%d): allowed is 0 to %d", n, maxCount))
	}
	return with(l, o)
}

// unlimited is the Kind of [Unlimited]. It decides nothing, so it is no algorithm of
// [algorithm.Kinds].
var unlimited = &algorithm.Kind{Name: "unlimited"}

// Unlimited returns a [Limit] that admits everything. It stands in place of another Limit for keys
// that have no limit there, such as those of a customer without a quota, so that a plan from a
// database is always a list of Limits:
//
//	limits, err := lim.With(core.Unlimited(), core.InFlight(customer.AtATime))
//
// An Unlimited counts nothing. It is not part of a [Lease], and no header shows it. Beside other Limits
// it has no [Result] either, and the other Limits decide as if it were not there.
//
// If all Limits of a key are Unlimited, the key is admitted, and [Result.Unlimited] is true. A banned
// key is denied all the same. With the option [Ban], Redis is asked whether the key is banned, and the
// outage policy decides while Redis does not answer. Without it, Redis is never asked, so an outage
// makes no difference.
//
// Several Limits of a [Limiter] may be Unlimited. In a text, an Unlimited is written "unlimited"; see
// [ParseLimit].
func Unlimited() Limit { return Limit{kind: unlimited} }
