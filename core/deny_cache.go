package core

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/key"
)

// maxStale is for how long a denial is repeated without asking Redis, at most.
const maxStale = time.Second

// maxRepeated bounds for how long a denial that is repeated no more keeps its slot.
const maxRepeated = 16

// A denyCache remembers denials, each in the one slot that its key's hash chooses.
// A denial that has been repeated keeps its slot against as many others: a flood of
// keys that are denied once does not push out one that is denied again and again.
// It is read without a lock. A nil denyCache remembers nothing.
type denyCache struct {
	slots    []atomic.Pointer[denial] // made with the first denial
	made     sync.Once
	size     int
	ready    atomic.Bool
	seed     maphash.Seed
	capacity int64 // the smallest of the limits': beyond it the answer is Never

	mu         sync.Mutex    // held where slots change
	generation atomic.Uint64 // grows with each forget, so that no denial from before it is stored after it
}

// A denial is what Redis replied, and when the call was sent and answered. Redis
// decided in between: what may be repeated counts from before it, so that it is never
// repeated for too long, and what is left of it from after, so that nobody is told to
// come back too early.
type denial struct {
	key      string
	result   Result
	cost     int64
	sent     time.Time
	received time.Time
	repeated atomic.Int32 // up to maxRepeated, less the keys that wanted the slot since
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

// get writes to res the denial of n units for k as it stands now, if there is one.
func (c *denyCache) get(res *Result, k string, n int64) bool {
	if c == nil || !c.ready.Load() || n == 0 || n > c.capacity {
		return false
	}
	k = key.Local(k)
	d := c.slot(k).Load()
	if d == nil || d.key != k || n < d.cost {
		return false
	}
	if age := time.Since(d.sent); age < 0 || age >= d.lifetime() {
		return false
	}
	if d.repeated.Load() < maxRepeated {
		d.repeated.Add(1)
	}
	*res = d.result
	age := time.Since(d.received) // Redis decided no later than that
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

// lifetime returns for how long the denial may be repeated.
func (d *denial) lifetime() time.Duration { return min(d.result.RetryAfter, maxStale) }

// age makes r, a denial by Redis, what is left of it after d.
func (r *Result) age(d time.Duration) {
	d = d.Truncate(time.Microsecond)
	if r.RetryAfter != Never {
		r.RetryAfter = max(0, r.RetryAfter-d)
	}
	r.ResetAfter = max(0, r.ResetAfter-d)
	r.At = r.At.Add(d)
	r.Source = SourceDenyCache
}

// slot returns the place of k, which has been through key.Local.
func (c *denyCache) slot(k string) *atomic.Pointer[denial] {
	return &c.slots[maphash.String(c.seed, k)%uint64(len(c.slots))]
}

// put remembers res, if it is a denial, of a call that was sent at the generation
// and instant given. Where a key was forgotten meanwhile, nothing is remembered.
func (c *denyCache) put(k string, n int64, res *Result, generation uint64, sent time.Time) {
	if c == nil || res.Allowed || res.RetryAfter == Never {
		return
	}
	c.made.Do(func() {
		c.slots = make([]atomic.Pointer[denial], c.size)
		c.ready.Store(true)
	})
	d := &denial{key: key.Local(k), result: *res, cost: n, sent: sent, received: time.Now()}
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
	case old.repeated.Load() > 0 && time.Since(old.sent) < old.lifetime():
		old.repeated.Add(-1)
		return
	}
	slot.Store(d)
}

// forget drops what is known of k, and denials that are in flight.
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

// now returns the generation and instant of a call that is about to be sent.
func (c *denyCache) now() (generation uint64, sent time.Time) {
	if c == nil {
		return 0, time.Time{}
	}
	return c.generation.Load(), time.Now()
}
