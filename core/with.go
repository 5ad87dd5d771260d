package core

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// With returns the same Limiter with limits in place of all of its own: for numbers
// that differ between keys and come from a database, such as those of a customer's
// contract. What it returns shares everything else with l: name, settings, round
// trips to Redis, the deny cache, the memory of [FailLocal] and the observers. For
// limits that were given before it is fast and allocates nothing, so that it can be
// called for each request.
//
//	limits, err := lim.With(core.TokenBucket(core.PerMinute(customer.PerMinute)))
//	// ...
//	res, err := limits.Allow(ctx, "customer:"+customer.ID)
//
// A key whose numbers change keeps the units that it has used, as with any live change
// of a limit. That is only so for a limit of the same name: an unnamed one of another
// period has another name, so give limits whose period may change a [Name].
//
// Results of one may be refunded or settled by another. Close of any closes all. A
// wrong limit is an error that names it, as in [New].
func (l *Limiter) With(limits ...Limit) (*Limiter, error) {
	hash := l.derived.hash(limits)
	if d := l.derived.get(hash, limits); d != nil {
		return d, nil
	}
	err := checkLimits(limits)
	if err == nil {
		err = checkLeasable(limits, l.lease)
	}
	if err != nil {
		return nil, fmt.Errorf("redislimit: limiter %q: With: %w", l.name, err)
	}
	return l.derived.put(hash, l.limiter(newLimitSet(l.name, slices.Clone(limits), l.hold))), nil
}

// maxDerived bounds how many derived Limiters are remembered. Beyond that all are
// forgotten, and made anew as they are needed.
const maxDerived = 100_000

// derived has the Limiters that With has returned.
type derived struct {
	seed maphash.Seed

	mu     sync.RWMutex
	byHash map[uint64][]*Limiter
	count  int
}

func (d *derived) hash(limits []Limit) uint64 {
	sum := uint64(len(limits))
	for i := range limits {
		sum = sum*31 + maphash.Comparable(d.seed, limits[i])
	}
	return sum
}

func (d *derived) get(hash uint64, limits []Limit) *Limiter {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, l := range d.byHash[hash] {
		if slices.Equal(l.limits.limits, limits) {
			return l
		}
	}
	return nil
}

// put remembers l, unless another call has made one for the same limits: it returns
// the one to use.
func (d *derived) put(hash uint64, l *Limiter) *Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.byHash[hash] {
		if slices.Equal(other.limits.limits, l.limits.limits) {
			return other
		}
	}
	if d.byHash == nil || d.count >= maxDerived {
		d.byHash, d.count = make(map[uint64][]*Limiter), 0
	}
	d.byHash[hash] = append(d.byHash[hash], l)
	d.count++
	return l
}

// limiter returns the Limiter of the family that decides by set.
func (f *family) limiter(set *limitSet) *Limiter {
	if f.memory != nil {
		set.memory = memory.NewLimits(set.members, f.groupOf(set))
		return &Limiter{family: f, limits: set}
	}
	if f.stub != nil {
		return &Limiter{family: f, limits: set}
	}
	set.server = server.NewLimits(set.members, set.names)
	if f.fallback != nil {
		set.fallback = f.fallback.share(set, f.hold)
		set.fallback.memory = memory.NewLimits(set.fallback.members, f.groupOf(set))
	}
	return &Limiter{family: f, limits: set, store: f.storeOf(set)}
}

// groupOf returns what the keys of set begin with in memory: limits of other names or
// algorithms have other keys, as they have in Redis.
func (f *family) groupOf(set *limitSet) string {
	if set.identity == f.identity {
		return ""
	}
	return set.identity
}

// storeOf returns the Store for the algorithms of set. Limits of the same ones share it,
// and so their scripts and round trips.
func (f *family) storeOf(set *limitSet) *server.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stores[set.algorithms]
	if s == nil {
		s = f.newStore(set.server)
		f.stores[set.algorithms] = s
	}
	return s
}
