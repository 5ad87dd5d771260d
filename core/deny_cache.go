package core

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/key"
)

// maxStale is the longest time for which a denial is repeated without asking Redis.
const maxStale = time.Second

// maxRepeated bounds how many other keys a denial keeps its slot against after it
// was last repeated.
const maxRepeated = 16

// A denyCache remembers denials, each in the one slot that the hash of its key
// chooses. A denial that was repeated n times keeps its slot against n other keys: a
// flood of keys that are denied once does not evict one that is denied again and
// again. Denials of a cost above a capacity are remembered beside those of smaller
// costs, which end. It is read without a lock. A nil denyCache remembers nothing.
type denyCache struct {
	slots []atomic.Pointer[denial] // made with the first denial
	made  sync.Once
	size  int
	ready atomic.Bool
	never atomic.Bool // a cost above a capacity was denied
	seed  maphash.Seed

	mu         sync.Mutex    // held while a slot is changed
	generation atomic.Uint64 // how often forget was called: put drops a denial from before the last call
}

// A denial is what Redis replied, and when the call was sent and answered. Redis
// decided in between. For how long it is repeated counts from before, so that it is
// never repeated for too long; what is left of its times counts from after, so that
// no client is told to come back too early.
type denial struct {
	key      string
	limits   *limitSet // of these numbers; others may admit
	result   Result
	cost     int64 // the smallest that it denies
	exceeded int   // how many capacities that exceeds
	sent     time.Time
	received time.Time
	lasts    time.Duration // for how long it is repeated
	repeated atomic.Int32  // how often, up to maxRepeated, less the keys that it has kept the slot against
}

func newDenyCache(size int) *denyCache {
	if size == 0 {
		return nil
	}
	return &denyCache{size: size, seed: maphash.MakeSeed()}
}

// exceeded returns how many capacities a cost of n exceeds.
func (s *limitSet) exceeded(n int64) int {
	count := 0
	for _, capacity := range s.capacities {
		if n > capacity {
			count++
		}
	}
	return count
}

// get reports whether a denial by limits is remembered that denies n units for k, and
// writes it to res as it is now.
func (c *denyCache) get(res *Result, k string, n int64, limits *limitSet) bool {
	if c == nil || !c.ready.Load() || n == 0 {
		return false
	}
	k = key.Local(k)
	exceeded := limits.exceeded(n)
	d := c.slot(k, exceeded).Load()
	if d == nil || d.key != k || d.limits != limits || d.exceeded != exceeded || n < d.cost {
		return false
	}
	if age := time.Since(d.sent); age < 0 || age >= d.lasts {
		return false
	}
	if d.repeated.Load() < maxRepeated {
		d.repeated.Add(1)
	}
	*res = d.result
	age := time.Since(d.received)
	res.age(age, SourceDenyCache)
	if d.result.all != nil {
		all := slices.Clone(*d.result.all)
		for i := range all {
			all[i].age(age, SourceDenyCache)
		}
		res.all = &all
	}
	return true
}

// age turns r, a decision by Redis, into what Redis would reply d later, and says who does.
func (r *Result) age(d time.Duration, source Source) {
	d = d.Truncate(time.Microsecond)
	if r.RetryAfter != Never {
		r.RetryAfter = max(0, r.RetryAfter-d)
	}
	r.ResetAfter = max(0, r.ResetAfter-d)
	r.At = r.At.Add(d)
	r.Source = source
}

// slot returns the slot of k, in the form of key.Local, for costs that exceed so many
// capacities.
func (c *denyCache) slot(k string, exceeded int) *atomic.Pointer[denial] {
	return &c.slots[(maphash.String(c.seed, k)+uint64(exceeded))%uint64(len(c.slots))]
}

// put remembers res if it is a denial, for as long as lasts says: it is then denied
// whatever becomes of the units held. generation and sent are what beforeCall returned
// for the call that brought it: where a key was forgotten since, which may have been
// this one, nothing is remembered.
func (c *denyCache) put(k string, n int64, res *Result, limits *limitSet, lasts time.Duration, generation uint64, sent time.Time) {
	if c == nil {
		return
	}
	if res.Allowed {
		c.charged(k, limits)
		return
	}
	if lasts <= 0 {
		return
	}
	c.made.Do(func() {
		c.slots = make([]atomic.Pointer[denial], c.size)
		c.ready.Store(true)
	})
	exceeded := limits.exceeded(n)
	if exceeded > 0 && res.ResetAfter > 0 {
		lasts = min(lasts, res.ResetAfter) // then more remains than it says
	}
	d := &denial{
		key: key.Local(k), limits: limits, result: *res, cost: n, exceeded: exceeded,
		sent: sent, received: time.Now(), lasts: min(lasts, maxStale),
	}
	if d.exceeded > 0 {
		c.never.Store(true)
	}
	if d.exceeded == len(limits.capacities) {
		d.cost = slices.Max(limits.capacities) + 1 // no limit has more to say about a higher cost
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation.Load() != generation {
		return
	}
	slot := c.slot(d.key, d.exceeded)
	old := slot.Load()
	switch {
	case old == nil:
	case old.key == d.key:
		d.repeated.Store(old.repeated.Load())
	case old.repeated.Load() > 0 && time.Since(old.sent) < old.lasts:
		old.repeated.Add(-1)
		return
	}
	slot.Store(d)
}

// charged drops what is remembered of costs above a capacity for k, which was charged:
// that does not make them admissible, but less remains than their denials say.
func (c *denyCache) charged(k string, limits *limitSet) {
	if !c.never.Load() {
		return
	}
	k = key.Local(k)
	for exceeded := range len(limits.capacities) {
		slot := c.slot(k, exceeded+1)
		if d := slot.Load(); d != nil && d.key == k && d.exceeded > 0 {
			slot.CompareAndSwap(d, nil)
		}
	}
}

// forget drops the denials of k by limits, and those that calls in flight bring.
func (c *denyCache) forget(k string, limits *limitSet) {
	if c == nil {
		return
	}
	k = key.Local(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation.Add(1)
	if !c.ready.Load() {
		return
	}
	for exceeded := range len(limits.capacities) + 1 {
		if slot := c.slot(k, exceeded); slot.Load() != nil && slot.Load().key == k {
			slot.Store(nil)
		}
	}
}

// beforeCall returns what put needs to know of a call that is about to be sent: its
// generation and its instant.
func (c *denyCache) beforeCall() (generation uint64, sent time.Time) {
	if c == nil {
		return 0, time.Time{}
	}
	return c.generation.Load(), time.Now()
}
