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
// again. It is read without a lock. A nil denyCache remembers nothing.
type denyCache struct {
	slots    []atomic.Pointer[denial] // made with the first denial
	made     sync.Once
	size     int
	ready    atomic.Bool
	seed     maphash.Seed
	capacity int64 // the smallest of the limits': a cost above it is denied with Never, which is not remembered

	mu         sync.Mutex    // held while a slot is changed
	generation atomic.Uint64 // how often forget was called: put drops a denial from before the last call
}

// A denial is what Redis replied, and when the call was sent and answered. Redis
// decided in between. For how long it is repeated counts from before, so that it is
// never repeated for too long; what is left of its times counts from after, so that
// no client is told to come back too early.
type denial struct {
	key      string
	result   Result
	cost     int64
	sent     time.Time
	received time.Time
	lasts    time.Duration // for how long it is repeated
	repeated atomic.Int32  // how often, up to maxRepeated, less the keys that it has kept the slot against
}

func newDenyCache(size int, limits []Limit) *denyCache {
	if size == 0 {
		return nil
	}
	c := &denyCache{size: size, seed: maphash.MakeSeed(), capacity: maxCount}
	for _, l := range limits {
		c.capacity = min(c.capacity, l.Burst())
	}
	return c
}

// get reports whether a denial is remembered that denies n units for k, and writes
// it to res as it is now.
func (c *denyCache) get(res *Result, k string, n int64) bool {
	if c == nil || !c.ready.Load() || n == 0 || n > c.capacity {
		return false
	}
	k = key.Local(k)
	d := c.slot(k).Load()
	if d == nil || d.key != k || n < d.cost {
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
	res.age(age)
	if d.result.all != nil {
		all := slices.Clone(*d.result.all)
		for i := range all {
			all[i].age(age)
		}
		res.all = &all
	}
	return true
}

// age turns r, a denial by Redis, into what Redis would reply d later.
func (r *Result) age(d time.Duration) {
	d = d.Truncate(time.Microsecond)
	if r.RetryAfter != Never {
		r.RetryAfter = max(0, r.RetryAfter-d)
	}
	r.ResetAfter = max(0, r.ResetAfter-d)
	r.At = r.At.Add(d)
	r.Source = SourceDenyCache
}

// slot returns the slot of k, in the form of key.Local.
func (c *denyCache) slot(k string) *atomic.Pointer[denial] {
	return &c.slots[maphash.String(c.seed, k)%uint64(len(c.slots))]
}

// put remembers res, a denial that lasts for as long as lasts says, whatever is held
// now. generation and sent are what beforeCall returned for the call that brought it:
// where a key was forgotten since, which may have been this one, nothing is remembered.
func (c *denyCache) put(k string, n int64, res *Result, lasts time.Duration, generation uint64, sent time.Time) {
	if c == nil || res.RetryAfter == Never {
		return
	}
	c.made.Do(func() {
		c.slots = make([]atomic.Pointer[denial], c.size)
		c.ready.Store(true)
	})
	d := &denial{key: key.Local(k), result: *res, cost: n, sent: sent, received: time.Now(), lasts: min(lasts, maxStale)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation.Load() != generation {
		return
	}
	slot := c.slot(d.key)
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

// forget drops the denial of k, and those that calls in flight bring.
func (c *denyCache) forget(k string) {
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
	if slot := c.slot(k); slot.Load() != nil && slot.Load().key == k {
		slot.Store(nil)
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
