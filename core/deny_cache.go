package core

import (
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
// 1e7. The default is 10,000, at about 300 bytes each. A key that is remembered is
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
type denyCache struct {
	keys     *lru.TwoQueueCache[string, denial]
	capacity int64         // the smallest of the limits': beyond it the answer is Never
	epoch    atomic.Uint64 // counts what a denial in the making must not outlive
}

// A denial is what Redis said, and when it was asked.
type denial struct {
	result Result
	cost   int64
	sent   time.Time
}

// newDenyCache returns nil for no cache.
func newDenyCache(entries int, limits []Limit) *denyCache {
	if entries == 0 {
		return nil
	}
	keys, err := lru.New2Q[string, denial](max(2, entries))
	if err != nil {
		return nil // not reached: the size is positive
	}
	c := &denyCache{keys: keys, capacity: maxCount}
	for _, l := range limits {
		c.capacity = min(c.capacity, l.Burst())
	}
	return c
}

// get returns the denial of n units for key as it stands now.
func (c *denyCache) get(key string, n int64) (Result, bool) {
	if c == nil || n == 0 || n > c.capacity {
		return Result{}, false
	}
	d, ok := c.keys.Get(encodeKey(key))
	if !ok || n < d.cost {
		return Result{}, false
	}
	age := time.Since(d.sent)
	if age >= min(d.result.RetryAfter, maxStale) || age < 0 {
		return Result{}, false
	}
	r := aged(d.result, age)
	r.Source = SourceDenyCache
	if all := d.result.all; all != nil {
		each := make([]Result, len(*all))
		for i := range each {
			each[i] = aged((*all)[i], age)
			each[i].Source = SourceDenyCache
		}
		r.all = &each
	}
	return r, true
}

// aged returns what is left of r some time later.
func aged(r Result, age time.Duration) Result {
	age = age.Truncate(time.Microsecond)
	if r.RetryAfter != Never {
		r.RetryAfter = max(0, r.RetryAfter-age)
	}
	r.ResetAfter = max(0, r.ResetAfter-age)
	r.At = r.At.Add(age)
	return r
}

// put remembers a denial whose call was sent at the epoch and instant given. Where
// a key was forgotten meanwhile, nothing is remembered.
func (c *denyCache) put(key string, n int64, r Result, epoch uint64, sent time.Time) {
	if c == nil || r.Allowed || r.RetryAfter == Never || c.epoch.Load() != epoch {
		return
	}
	c.keys.Add(encodeKey(key), denial{r, n, sent})
}

// forget drops what is known of key, and what is just being learnt.
func (c *denyCache) forget(key string) {
	if c != nil {
		c.epoch.Add(1)
		c.keys.Remove(encodeKey(key))
	}
}

func (c *denyCache) now() (epoch uint64, sent time.Time) {
	if c == nil {
		return 0, time.Time{}
	}
	return c.epoch.Load(), time.Now()
}
