// Package denials remembers denials, so that a process can repeat them without asking Redis.
package denials

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/key"
	"github.com/redislimit/redislimit/internal/limits"
)

// MaxStale is the longest time for which a denial is repeated without asking Redis.
const MaxStale = time.Second

// A denial survives one collision in its slot for each time it was repeated, and maxSurvives at
// most.
const maxSurvives = 16

// A Cache remembers denials with a result of type R, each in the one slot that the hash of its key
// chooses. A flood of keys that are denied once does not evict one that is denied again and again.
// Denials of a cost above a capacity are remembered beside those of smaller costs. It is read
// without a lock. A nil Cache remembers nothing.
type Cache[R any] struct {
	size  int
	seed  maphash.Seed
	slots atomic.Pointer[[]atomic.Pointer[Denial[R]]] // made with the first denial

	mu          sync.Mutex // held while a slot is changed
	generations [generations]atomic.Uint64
}

// A generation is how often Forget was called for keys of some hashes: Put drops a denial from
// before the last call.
const generations = 64

// A Denial is what Redis replied, and when the call was sent and answered. Redis decided in
// between. For how long it is repeated counts from before, so that it is never repeated for too
// long; what is left of its times counts from after, so that no client is told to come back too
// early.
type Denial[R any] struct {
	Result R

	key      string
	limits   *limits.Set // of these numbers; others may admit
	cost     int64       // the smallest that it denies
	exceeded int         // how many capacities that exceeds
	sent     time.Time
	received time.Time
	lasts    time.Duration // for how long it is repeated
	survives atomic.Int32  // how many collisions in its slot, up to maxSurvives
}

// Age returns how long ago the reply came.
func (d *Denial[R]) Age() time.Duration { return time.Since(d.received) }

// A Request is what is asked of a limiter.
type Request struct {
	Key    string
	N      int64
	Limits *limits.Set
}

// A Stamp is from before a call to Redis.
type Stamp struct {
	generation uint64
	sent       time.Time
}

// New returns a Cache of so many slots, or nil for none.
func New[R any](size int) *Cache[R] {
	if size == 0 {
		return nil
	}
	return &Cache[R]{size: size, seed: maphash.MakeSeed()}
}

// Get returns the denial that is remembered of a request, or nil.
func (c *Cache[R]) Get(r Request) *Denial[R] {
	if c == nil || r.N == 0 {
		return nil
	}
	slots := c.slots.Load()
	if slots == nil {
		return nil
	}
	k := key.Local(r.Key)
	exceeded := r.Limits.Exceeded(r.N)
	d := c.slot(slots, k, exceeded).Load()
	if d == nil || d.key != k || d.limits != r.Limits || d.exceeded != exceeded || r.N < d.cost {
		return nil
	}
	if age := time.Since(d.sent); age < 0 || age >= d.lasts {
		return nil
	}
	if d.survives.Load() < maxSurvives {
		d.survives.Add(1)
	}
	return d
}

// slot returns the slot of k, in the form of key.Local, for costs that exceed so many capacities.
func (c *Cache[R]) slot(slots *[]atomic.Pointer[Denial[R]], k string, exceeded int) *atomic.Pointer[Denial[R]] {
	return &(*slots)[(maphash.String(c.seed, k)+uint64(exceeded))%uint64(len(*slots))]
}

// generation returns that of a key.
func (c *Cache[R]) generation(k string) *atomic.Uint64 {
	return &c.generations[maphash.String(c.seed, k)%generations]
}

// Put remembers that a request was denied with a result, for lasts at most. stamp is what Stamp
// returned before the call. Where a key was forgotten since, which may have been this one, nothing
// is remembered.
func (c *Cache[R]) Put(r Request, result R, lasts time.Duration, stamp Stamp) {
	if c == nil || lasts <= 0 {
		return
	}
	d := &Denial[R]{
		Result: result, key: key.Local(r.Key), limits: r.Limits, cost: r.N, exceeded: r.Limits.Exceeded(r.N),
		sent: stamp.sent, received: time.Now(), lasts: min(lasts, MaxStale),
	}
	if d.exceeded == len(r.Limits.Capacities) {
		d.cost = slices.Max(r.Limits.Capacities) + 1 // no limit has more to say about a higher cost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation(r.Key).Load() != stamp.generation {
		return
	}
	slots := c.slots.Load()
	if slots == nil {
		made := make([]atomic.Pointer[Denial[R]], c.size)
		slots = &made
		c.slots.Store(slots)
	}
	slot := c.slot(slots, d.key, d.exceeded)
	old := slot.Load()
	switch {
	case old == nil:
	case old.key == d.key:
		d.survives.Store(old.survives.Load())
	case old.survives.Load() > 0 && time.Since(old.sent) < old.lasts:
		old.survives.Add(-1)
		return
	}
	slot.Store(d)
}

// Forget drops the denials of k by limits, and those that calls in flight bring.
func (c *Cache[R]) Forget(k string, by *limits.Set) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation(k).Add(1)
	slots := c.slots.Load()
	if slots == nil {
		return
	}
	k = key.Local(k)
	for exceeded := range len(by.Capacities) + 1 {
		if slot := c.slot(slots, k, exceeded); slot.Load() != nil && slot.Load().key == k {
			slot.Store(nil)
		}
	}
}

// Stamp returns what Put needs to know of a call about k that is about to be sent, at now if that
// is not zero.
func (c *Cache[R]) Stamp(k string, now time.Time) Stamp {
	if c == nil {
		return Stamp{}
	}
	if now.IsZero() {
		now = time.Now()
	}
	return Stamp{c.generation(k).Load(), now}
}
