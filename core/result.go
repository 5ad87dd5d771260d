package core

import (
	"iter"
	"math"
	"time"
)

// Never is the RetryAfter of a request that can never be admitted, because it
// costs more than the capacity.
const Never time.Duration = math.MaxInt64

// A Result says what a [Limiter] decided, and how the key stands afterwards. Its
// durations are rounded up to the microsecond.
//
// The Result of a Limiter with several limits describes one of them: of those
// that deny, the one with the longest RetryAfter; if none denies, the tightest
// (the fewest Remaining, then the longest ResetAfter). [Result.All] has them all.
type Result struct {
	// Allowed tells whether the request was admitted, and by that charged.
	Allowed bool
	// Limit is the capacity of the limit that this describes, in units.
	Limit int64
	// Remaining is how many whole units are left now: never negative, never above
	// Limit.
	Remaining int64
	// RetryAfter is how long to wait until the same request would be admitted if
	// nothing else came. It is 0 if Allowed, and Never if it costs more than the
	// capacity.
	RetryAfter time.Duration
	// ResetAfter is the time until the key is as if never used; 0 for a key that is.
	ResetAfter time.Duration
	// Delay is how long the caller is to hold an admitted request before serving
	// it. Only LeakyBucket asks for it; of several limits it is the largest.
	Delay time.Duration
	// Window is the time in which the whole Limit comes back at the limit's rate: the
	// period of a window, the time in which a full bucket drains.
	Window time.Duration
	// At is the instant of the decision by the clock that decided, Redis's own.
	At time.Time
	// Limiter is the name of the Limiter.
	Limiter string
	// Name is what the limit that this describes is called; see [Limit.Name].
	Name string
	// Source says who decided.
	Source Source

	all     *[]Result // of several limits
	receipt receipt   // of what was charged
}

// All returns the Result of each limit, in the order given to [New]. Allowed is
// there what the one limit said; only what all of them allow is charged.
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

// A Source says who made a decision.
type Source uint8

// The sources of a decision.
const (
	// SourceNone is nobody: the zero Result, and that of [FailOpen] while Redis does
	// not answer.
	SourceNone Source = iota
	// SourceRedis is Redis, where the count is shared by all processes.
	SourceRedis
	// SourceMemory is this process, for a Limiter of [NewMemory].
	SourceMemory
	// SourceDenyCache is this process, which repeats a denial of Redis's; see
	// [DenyCache].
	SourceDenyCache
	// SourceFallback is this process while Redis does not answer; see [FailLocal].
	SourceFallback
)

// String returns the name of the source, such as "redis".
func (s Source) String() string {
	names := [...]string{"none", "redis", "memory", "deny_cache", "fallback"}
	if int(s) < len(names) {
		return names[s]
	}
	return "none"
}

// combine makes one Result of those of several limits.
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

// Tighter tells whether r says more about a request than other does: a denial, of
// two the one with the longer RetryAfter; if neither denies, the one with fewer
// Remaining, then the longer ResetAfter. Anything is tighter than the zero Result.
func (r Result) Tighter(other Result) bool {
	switch {
	case r.Source == SourceNone || other.Source == SourceNone:
		return r.Source != SourceNone
	case r.Allowed != other.Allowed:
		return other.Allowed
	case !r.Allowed && r.RetryAfter != other.RetryAfter:
		return r.RetryAfter > other.RetryAfter
	case r.Remaining != other.Remaining:
		return r.Remaining < other.Remaining
	}
	return r.ResetAfter > other.ResetAfter
}
