package core

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/redislimit/redislimit/internal/decision"
)

// Never is the RetryAfter of a denial that no waiting can change: the request costs more than the
// capacity. With [FailLocal], while Redis does not answer, the capacity is only this process's share
// of the limit; see [Processes].
const Never time.Duration = math.MaxInt64

// A Result says what a [Limiter] decided, and what state the key is in afterwards. Its durations
// are rounded up to the microsecond.
//
// If a Limiter has several limits, its Result describes one of them. If any limits deny, it is the
// denying limit with the longest RetryAfter. Otherwise it is the limit with the smallest
// Remaining/Limit. If several limits have the same Remaining/Limit, it is the one with the longest
// ResetAfter. An [InFlight] that does not deny is described only if there is no other limit.
// [Result.All] describes each limit, except Unlimited ones. If all limits are [Unlimited],
// [Result.Unlimited] reports true.
type Result struct {
	// Allowed reports whether the request was admitted.
	Allowed bool
	// Banned reports whether the key is banned; see [Ban]. The ban ends after RetryAfter. During a
	// ban, Remaining is 0, ResetAfter equals RetryAfter, and all limits deny.
	Banned bool
	// Source says where the decision was made.
	Source Source
	held   bool // denied by slots or by units that are only held: both may become free at any time
	// Limit is the capacity of the described limit in units, or [math.MaxInt64] if all limits are
	// [Unlimited].
	Limit int64
	// Remaining is the number of whole units that are left, from 0 to Limit.
	Remaining int64
	// RetryAfter is how long to wait until the same request would be admitted if no other request came.
	// It is 0 if the request was admitted; only [Limiter.AllowUpTo] gives it another meaning then. If the
	// request is denied only because of slots of InFlight, or of units that are only held, it is at most
	// a second, because they can be given back at any time. It is Never if waiting does not help, because
	// the request costs more than the capacity. With a capacity of 0, this is so for every request except
	// one that costs 0.
	RetryAfter time.Duration
	// ResetAfter is the time until the full limit is available again. It is 0 if the full limit is
	// available now, and for InFlight, because it is not known when slots will be given back.
	ResetAfter time.Duration
	// Delay is how long the caller should hold an admitted request before serving it. Only
	// LeakyBucket sets it; with several limits it is the longest of their delays.
	Delay time.Duration
	// Window is the time in which the limit's rate makes the whole Limit available again: the
	// length of the current window, or the time in which a bucket that was used up becomes fully
	// available. It is 0 for InFlight and Unlimited, which have no rate.
	Window time.Duration
	// At is the instant of the decision, by the clock of Redis if Redis decided.
	At time.Time
	// LimiterName is the name of the Limiter that decided.
	LimiterName string
	// LimitName is the name of the described limit; see [Limit.Name].
	LimitName string

	all *[]Result // the Result of each limit, if there are several; otherwise nil
}

// Unlimited reports whether all limits of r are [Unlimited]. Limit and Remaining are then
// [math.MaxInt64], but Remaining is 0 during a [Ban], because the Ban denies. Do not show such numbers
// to clients; no header contains them. For the Result of an admission by [FailOpen] while
// Redis does not answer, Unlimited reports false, because that Result describes no limit.
func (r Result) Unlimited() bool { return r.Limit == math.MaxInt64 }

// All returns the Result of each limit, in the order given to [New]. After a call about several
// keys, their order is that of the keys. In each Result, Allowed reports whether that limit admits.
// A request is charged only if all limits admit it. An [Unlimited] has no Result, unless all limits
// are Unlimited: All then returns r alone. If one of the limits is 0, the others have no Result
// either, except during a [Ban].
func (r Result) All() iter.Seq[Result] {
	return func(yield func(Result) bool) {
		if r.all == nil {
			yield(r)
			return
		}
		for _, each := range *r.all {
			if !yield(each) {
				return
			}
		}
	}
}

// A Source says where a decision was made.
type Source uint8

// The sources of a decision.
const (
	// SourceNone means that nobody decided. It is the Source of the zero Result, and of the
	// admissions by [FailOpen] while Redis does not answer.
	SourceNone = Source(decision.Nobody)
	// SourceRedis is Redis, where all processes share the count.
	SourceRedis = Source(decision.Redis)
	// SourceMemory is this process, for a Limiter of [NewMemory].
	SourceMemory = Source(decision.Memory)
	// SourceDenyCache is this process, which repeated a denial by Redis; see [DenyCache].
	SourceDenyCache = Source(decision.DenyCache)
	// SourceFallback is this process while Redis does not answer; see [FailLocal].
	SourceFallback = Source(decision.Fallback)
	// SourceLease is this process, which spent units that it had leased; see [Lease].
	SourceLease = Source(decision.Lease)
	// SourceUncounted is this process, in a Limiter of [New] whose limits count nothing: all are
	// [Unlimited], or one is a limit of 0.
	SourceUncounted = Source(decision.Uncounted)
)

// String returns the name of the source, such as "redis".
func (s Source) String() string {
	names := [...]string{"none", "redis", "memory", "deny_cache", "fallback", "lease", "uncounted"}
	if int(s) < len(names) {
		return names[s]
	}
	return "none"
}

// Tighter reports whether r restricts the client more than other does. A denial is tighter than an
// admission. If both deny, the one with the longer RetryAfter is tighter. If both admit, or deny with
// the same RetryAfter, the one with the smaller Remaining/Limit is tighter, and if these are equal the
// one with the longer ResetAfter. There are three exceptions. A limit of 0, which admits only what
// costs nothing, is tighter than any other limit that admits. An [InFlight] that admits is never
// tighter than a limit with a rate that admits. A Result with [SourceNone], such as the zero Result,
// is never tighter, and every other Result is tighter than it.
func (r Result) Tighter(other Result) bool {
	switch {
	case r.Source == SourceNone || other.Source == SourceNone:
		return r.Source != SourceNone
	case r.Allowed != other.Allowed:
		return other.Allowed
	case !r.Allowed && r.RetryAfter != other.RetryAfter:
		return r.RetryAfter > other.RetryAfter
	case r.Allowed && (r.Limit == 0) != (other.Limit == 0):
		return r.Limit == 0
	case r.Allowed && (r.Window == 0) != (other.Window == 0):
		return other.Window == 0
	}
	if c := compareShares(r, other); c != 0 {
		return c < 0
	}
	return r.ResetAfter > other.ResetAfter
}

// compareShares compares a.Remaining/a.Limit with b.Remaining/b.Limit, without rounding.
func compareShares(a, b Result) int {
	ahi, alo := bits.Mul64(uint64(a.Remaining), uint64(b.Limit))
	bhi, blo := bits.Mul64(uint64(b.Remaining), uint64(a.Limit))
	if c := cmp.Compare(ahi, bhi); c != 0 {
		return c
	}
	return cmp.Compare(alo, blo)
}

// remaining returns how many units remain in the limit that has the fewest left.
func (r *Result) remaining() int64 {
	least := r.Remaining
	if r.all != nil {
		for _, each := range *r.all {
			least = min(least, each.Remaining)
		}
	}
	return least
}

// combine returns the one Result that describes several limits. all has the Results of these limits, and
// allowed says whether all of them admit. The returned Result keeps all, so the caller must not change it
// afterwards.
func combine(all []Result, allowed bool) Result {
	chosen := 0
	var delay time.Duration
	for i, r := range all {
		if r.Tighter(all[chosen]) {
			chosen = i
		}
		delay = max(delay, r.Delay)
	}
	r := all[chosen]
	r.Allowed, r.Delay, r.all = allowed, delay, &all
	return r
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
