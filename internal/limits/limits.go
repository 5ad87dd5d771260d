// Package limits compiles the limits of a limiter into the form in which they decide. This happens once, when
// the limiter is made, by New or by With.
package limits

import (
	"math"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A Config describes one limit as the program configured it.
type Config struct {
	Kind         *algorithm.Kind
	Numbers      algorithm.Numbers
	Name         string        // the name that Results show
	Key          string        // the end of the limit's Redis key
	HoldDuration time.Duration // how long its units are held; 0 for the default

	// Unlimited makes the limit admit everything, and Zero makes it deny every cost except 0. A limit with
	// one of them counts nothing. It has a Kind and Numbers only because a store needs a limit, whatever
	// its numbers are, when it looks up whether a key is banned.
	Unlimited, Zero bool
}

// A Set contains the limits of one limiter, in the order in which they were given. Limits, Names, Keys,
// Capacities and Windows have one element for each limit.
type Set struct {
	Limiter    string // the limiter's name
	Limits     []algorithm.Limit
	Names      []string
	Keys       []string
	Capacities []int64
	Windows    []time.Duration

	// Scripts contains the names of the algorithms. Sets of one limiter, or of limiters that With has derived
	// from it, share scripts and batches if their Scripts are equal.
	Scripts string

	// Uncounted says that Capacities alone decide, because a limit is Unlimited (it is then the only one), or
	// because a limit is Zero. Nothing is charged. A decision calls a store only to learn whether the key is
	// banned.
	Uncounted bool

	Slots        bool          // whether a limit is InFlight
	Queues       bool          // whether a limit is a LeakyBucket
	Units        bool          // whether a limit can hold units: one that is neither InFlight nor LeakyBucket
	SlotTTL      time.Duration // the shortest time for which an InFlight limit holds a slot
	ShortestHold time.Duration // the shortest HoldDuration of all Limits, even of a LeakyBucket, which holds nothing

	Redis    *redisstore.Limits // the limits as Redis decides by them, or nil
	Store    *redisstore.Store  // the Store that decides in Redis, or nil
	Memory   *memory.Limits     // the limits as memory decides by them, or nil
	Fallback *Set               // the limits that FailLocal decides by, or nil
}

// New returns the Set of the limits of a limiter. The caller sets Redis, Store, Memory and Fallback.
func New(limiter string, limits []Config) *Set {
	s := &Set{Limiter: limiter}
	for _, l := range limits {
		evaluator := l.Kind.New(l.Numbers)
		limit := algorithm.Limit{Kind: l.Kind, Evaluator: evaluator, HoldDuration: l.HoldDuration.Microseconds()}
		if l.HoldDuration == 0 {
			limit.HoldDuration = algorithm.DefaultHold(evaluator)
		}
		held := micros(limit.HoldDuration)
		if l.Kind.Slots && (!s.Slots || held < s.SlotTTL) {
			s.Slots, s.SlotTTL = true, held
		}
		if s.ShortestHold == 0 || held < s.ShortestHold {
			s.ShortestHold = held
		}
		s.Queues = s.Queues || l.Kind.Delays
		s.Units = s.Units || !l.Kind.Delays && !l.Kind.Slots
		s.Scripts += l.Kind.Name + " "
		capacity, window := evaluator.Capacity()
		switch {
		case l.Unlimited:
			capacity, window, s.Uncounted = math.MaxInt64, 0, true
		case l.Zero:
			capacity, s.Uncounted = 0, true
		}
		s.Limits, s.Names, s.Keys = append(s.Limits, limit), append(s.Names, l.Name), append(s.Keys, l.Key)
		s.Capacities, s.Windows = append(s.Capacities, capacity), append(s.Windows, micros(window))
	}
	return s
}

// Exceeded returns how many limits have a capacity below n.
func (s *Set) Exceeded(n int64) int {
	count := 0
	for _, capacity := range s.Capacities {
		if n > capacity {
			count++
		}
	}
	return count
}

// maxDenied is the longest time that DeniedFor returns.
const maxDenied = time.Hour

// DeniedFor returns how long a denial of n units with these answers may be repeated, counted from the decision.
// For at least this time, n units would be denied again, even if all held units were given back at once. This
// does not consider that charges can also be taken back, by Cancel or Reset.
// DeniedFor returns 0 if a limit with slots denies, because a slot may become free at any time. If the limits
// count nothing, it returns maxDenied.
func (s *Set) DeniedFor(answers []algorithm.Answer, n int64) time.Duration {
	if s.Uncounted {
		return maxDenied
	}
	longest := int64(0)
	for i, a := range answers {
		if !a.Admits && s.Limits[i].Slots {
			return 0
		}
		if !a.Admits {
			longest = max(longest, s.Limits[i].DeniedFor(a.Observation, n, a.Held))
		}
	}
	return micros(min(longest, maxDenied.Microseconds()))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
