// Package limits has the limits of a limiter, ready to decide: what is known of them before any
// request comes.
package limits

import (
	"math"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// A Limit is one of them, as it was asked for.
type Limit struct {
	Kind    *algorithm.Kind
	Numbers algorithm.Numbers
	Name    string        // in results
	Key     string        // what its Redis key ends with
	Hold    time.Duration // for how long its units are held; 0 for the default

	// Unlimited makes the limit admit everything, and Zero makes it deny everything but a cost of 0.
	// Neither counts: Kind and Numbers are then only a form in which a store can be asked about the
	// key.
	Unlimited, Zero bool
}

// A Set is the limits of one limiter, in their order. The slices have one element for each.
type Set struct {
	Limiter    string // its name
	Members    []algorithm.Member
	Names      []string
	Keys       []string
	Capacities []int64
	Windows    []time.Duration

	Scripts string // the names of the algorithms: sets of the same ones share scripts and batches

	// Uncounted says that what is admitted follows from the Capacities alone: one limit admits
	// everything, or one or more admit nothing. Nothing is charged then, and a store is asked only
	// whether the key is banned.
	Uncounted bool

	Slots        bool          // a limit is InFlight
	Queues       bool          // a limit is a LeakyBucket
	Units        bool          // a limit holds units, that are no slots
	SlotTTL      time.Duration // the shortest of those that have slots
	ShortestHold time.Duration // the shortest of all limits

	Server   *redisstore.Limits // for a decision in Redis, or nil
	Store    *redisstore.Store  // which makes it, or nil
	Memory   *memory.Limits     // for one in memory, or nil
	Fallback *Set               // what FailLocal decides by, or nil
}

// New returns the Set of the limits of a limiter.
func New(limiter string, limits []Limit) *Set {
	s := &Set{Limiter: limiter}
	for _, l := range limits {
		e := l.Kind.New(l.Numbers)
		m := algorithm.Member{Kind: l.Kind, Evaluator: e, Hold: l.Hold.Microseconds()}
		if l.Hold == 0 {
			m.Hold = algorithm.DefaultHold(e)
		}
		held := micros(m.Hold)
		if l.Kind.Slots && (!s.Slots || held < s.SlotTTL) {
			s.Slots, s.SlotTTL = true, held
		}
		if s.ShortestHold == 0 || held < s.ShortestHold {
			s.ShortestHold = held
		}
		s.Queues = s.Queues || l.Kind.Delays
		s.Units = s.Units || !l.Kind.Delays && !l.Kind.Slots
		s.Scripts += l.Kind.Name + " "
		capacity, window := e.Capacity()
		switch {
		case l.Unlimited:
			capacity, window, s.Uncounted = math.MaxInt64, 0, true
		case l.Zero:
			capacity, s.Uncounted = 0, true
		}
		s.Members, s.Names, s.Keys = append(s.Members, m), append(s.Names, l.Name), append(s.Keys, l.Key)
		s.Capacities, s.Windows = append(s.Capacities, capacity), append(s.Windows, micros(window))
	}
	return s
}

// Exceeded returns how many capacities a cost of n exceeds.
func (s *Set) Exceeded(n int64) int {
	count := 0
	for _, capacity := range s.Capacities {
		if n > capacity {
			count++
		}
	}
	return count
}

// maxDenied bounds what DeniedFor returns.
const maxDenied = time.Hour

// DeniedFor returns for how long a denial of n units may be repeated: they are denied until then,
// whatever becomes of what is held. It is 0 if slots deny them, for one may be free at any time.
func (s *Set) DeniedFor(answers []algorithm.Answer, n int64) time.Duration {
	if s.Uncounted {
		return maxDenied
	}
	longest := int64(0)
	for i, a := range answers {
		if !a.Admits && s.Members[i].Slots {
			return 0
		}
		if !a.Admits {
			longest = max(longest, s.Members[i].DeniedFor(a.Observation, n, a.Held))
		}
	}
	return micros(min(longest, maxDenied.Microseconds()))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
