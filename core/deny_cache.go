package core

import (
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// defaultDenied is how many denied keys a Limiter remembers unless told.
	defaultDenied = 10_000
	// maxStale is how long a denial is repeated without asking Redis, at most.
	maxStale = time.Second
)

// DenyCache sets how many denied keys each process remembers, from 0 (none) to
// 1e7. The default is 10,000, at about 350 bytes each. A key that is remembered is
// denied without asking Redis, for a cost at least as large, until its RetryAfter
// is over and for one second at most. So a Reset, a Refund or a raised limit in
// another process is seen within a second; one through this Limiter, at once. The
// cache only denies: it never admits anything. RetryAfter is that of the cost that
// was denied first, for a larger one at least that long.
func DenyCache(entries int) Option {
	return optionFunc(func(c *config) {
		c.set("DenyCache", inRedis)
		if entries < 0 || entries > 1e7 {
			c.failf("DenyCache(%d): allowed is 0 to %d", entries, int(1e7))
		}
		c.denied = entries
	})
}

// A denyCache remembers denials. It is a 2Q cache: a flood of keys that are denied
// once cannot evict one that is denied again and again. Of the libraries measured
// (golang-lru's LRU and 2Q, otter, ristretto) it is among the fastest on two cores,
// and the one that neither starts goroutines nor depends on anything.
//
// Before it stands a table of the latest denials, which is read without a lock:
// whoever hammers one key from many cores waits for none of them.
type denyCache struct {
	latest   [256]atomic.Pointer[denial]
	seed     maphash.Seed
	capacity int64 // the smallest of the limits': beyond it the answer is Never

	mu    sync.Mutex // held where keys change
	keys  *lru.TwoQueueCache[string, *denial]
	epoch atomic.Uint64 // counts what a denial in the making must not outlive
}

// A denial is what Redis said, and when it was asked.
type denial struct {
	key    string
	result Result
	cost   int64
	sent   time.Time
}

// newDenyCache returns nil for no cache.
func newDenyCache(entries int, limits []Limit) *denyCache {
	if entries == 0 {
		return nil
	}
	keys, err := lru.New2Q[string, *denial](max(2, entries))
	if err != nil {
		return nil // not reached: the size is positive
	}
	c := &denyCache{keys: keys, seed: maphash.MakeSeed(), capacity: maxCount}
	for _, l := range limits {
		c.capacity = min(c.capacity, l.Burst())
	}
	return c
}

// get writes to res the denial of n units for key as it stands now, if there is one.
func (c *denyCache) get(res *Result, key string, n int64) bool {
	if c == nil || n == 0 || n > c.capacity {
		return false
	}
	d := c.find(localKey(key))
	if d == nil || n < d.cost {
		return false
	}
	age := time.Since(d.sent)
	if age >= min(d.result.RetryAfter, maxStale) || age < 0 {
		return false
	}
	*res = d.result
	repeat(res, age)
	if d.result.all != nil {
		all := slices.Clone(*d.result.all)
		for i := range all {
			repeat(&all[i], age)
		}
		res.all = &all
	}
	return true
}

// repeat makes r, which the store said, what is left of it at an age.
func repeat(r *Result, age time.Duration) {
	age = age.Truncate(time.Microsecond)
	if r.RetryAfter != Never {
		r.RetryAfter = max(0, r.RetryAfter-age)
	}
	r.ResetAfter = max(0, r.ResetAfter-age)
	r.At = r.At.Add(age)
	r.Source = SourceDenyCache
}

// find returns what is known of key.
func (c *denyCache) find(key string) *denial {
	slot := c.slot(key)
	if d := slot.Load(); d != nil && d.key == key {
		return d
	}
	d, _ := c.keys.Get(key)
	if d != nil && c.mu.TryLock() {
		if now, _ := c.keys.Peek(key); now == d { // and not forgotten meanwhile
			slot.Store(d)
		}
		c.mu.Unlock()
	}
	return d
}

// slot returns key's place in the table.
func (c *denyCache) slot(key string) *atomic.Pointer[denial] {
	return &c.latest[maphash.String(c.seed, key)%uint64(len(c.latest))]
}

// put remembers a denial whose call was sent at the epoch and instant given. Where
// a key was forgotten meanwhile, nothing is remembered.
func (c *denyCache) put(key string, n int64, r Result, epoch uint64, sent time.Time) {
	if c == nil || r.Allowed || r.RetryAfter == Never {
		return
	}
	d := &denial{localKey(key), r, n, sent}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.epoch.Load() == epoch {
		c.keys.Add(d.key, d)
		c.slot(d.key).Store(d)
	}
}

// forget drops what is known of key, and what is just being learnt.
func (c *denyCache) forget(key string) {
	if c == nil {
		return
	}
	key = localKey(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch.Add(1)
	c.keys.Remove(key)
	c.slot(key).Store(nil)
}

func (c *denyCache) now() (epoch uint64, sent time.Time) {
	if c == nil {
		return 0, time.Time{}
	}
	return c.epoch.Load(), time.Now()
}
