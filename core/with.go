package core

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// With returns the same Limiter with limits in place of all of its own: for numbers
// that differ between keys and come from a database, such as those of a customer's
// contract. What it returns shares everything else with l: name, settings, round
// trips to Redis, the deny cache, the memory of [FailLocal] and the observers. For
// limits that were given before it is fast and allocates nothing, so that it can be
// called for each request. Up to 100,000 different limits are remembered, at 1 to 2.5 kB each:
// give numbers of your own, not a client's.
//
//	limits, err := lim.With(core.TokenBucket(core.PerMinute(customer.PerMinute), core.Name("requests")))
//	// ...
//	res, err := limits.Allow(ctx, "customer:"+customer.ID)
//
// A key whose numbers change keeps the units that it has used, as with any live change
// of a limit. That is only so for a limit of the same name: an unnamed one of another
// period has another name, so give limits whose period may change a [Name]. What was used
// of a bucket comes back at the rate of the limit that charged last.
//
// Close of any closes all. A wrong limit is an error that names it, as in [New].
func (l *Limiter) With(asked ...Limit) (*Limiter, error) {
	hash := l.derived.hash(asked)
	if d := l.derived.get(hash, asked); d != nil {
		return d, nil
	}
	if err := checkLimits(asked, l.lease); err != nil {
		return nil, &hook.WrongLimitError{Err: fmt.Errorf("redislimit: limiter %q: With: %w", l.name, err)}
	}
	return l.derived.put(hash, l.limiter(slices.Clone(asked))), nil
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
		if slices.Equal(l.asked, limits) {
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
		if slices.Equal(other.asked, l.asked) {
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

// limiter returns the Limiter of the family that decides by limits.
func (f *family) limiter(asked []Limit) *Limiter {
	l := &Limiter{family: f, asked: asked, by: newSet(f.name, asked, f.hold)}
	switch {
	case f.stub != nil:
		l.keeper = stubKeeper{f.stub}
	case f.memory != nil:
		l.by.Memory = memory.NewLimits(l.by.Members, f.groupOf(l.by), f.bans)
		l.keeper = memoryKeeper{f.memory}
	default:
		l.by.Server = server.NewLimits(l.by.Members, l.by.Names, f.bans)
		l.store = f.storeOf(l.by)
		l.keeper = redisKeeper{l.store}
	}
	if f.fallback != nil {
		l.by.Fallback = newSet(f.name, f.share(asked), f.hold)
		l.by.Fallback.Names = l.by.Names
		l.by.Fallback.Memory = memory.NewLimits(l.by.Fallback.Members, f.groupOf(l.by), f.bans)
	}
	return l
}

// newSet returns limits ready to decide. hold is as given to Hold, or 0.
func newSet(limiter string, asked []Limit, hold time.Duration) *limits.Set {
	all := make([]limits.Limit, len(asked))
	for i, l := range asked {
		all[i] = limits.Limit{Kind: l.form(), Numbers: l.numbers(), Name: l.Name(), Hold: hold}
		if l.kind.Slots {
			all[i].Hold = cmp.Or(l.slotTTL, defaultSlotTTL)
		}
	}
	return limits.New(limiter, all)
}

// groupOf returns what the keys of a set begin with in memory: limits of other names or
// algorithms have other keys, as they have in Redis.
func (f *family) groupOf(by *limits.Set) string {
	if by.States == f.states {
		return ""
	}
	return by.States
}

// storeOf returns the Store for the algorithms of a set. Limits of the same ones share it,
// and so their scripts and round trips.
func (f *family) storeOf(by *limits.Set) *server.Store {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stores[by.Scripts]
	if s == nil {
		s = f.newStore(by.Server)
		f.stores[by.Scripts] = s
	}
	return s
}
