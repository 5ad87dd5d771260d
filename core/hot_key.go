package core

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/claim"
)

// hotAsks is how often a process asks for a key within the duration of a lease where it
// leases units of it.
const hotAsks = 8

// The table of hot keys has hotSets sets of hotWays keys each. A key that finds its set
// full of others that are in use is not leased.
const (
	hotSets = 1024
	hotWays = 4
)

// maxHotKey is the length of the longest key, in bytes, that is leased: the table keeps keys
// as they are.
const maxHotKey = 512

// hotCounts is how many counters there are for keys that are not hot.
const hotCounts = 8192

// hotKeys knows which keys a process asks for often, and what it leases of them. It is read
// without a lock.
type hotKeys struct {
	d      time.Duration // of a lease
	asks   int64         // hotAsks
	share  int64         // leaseShare
	seed   maphash.Seed
	owner  uint64 // of claims
	counts [hotCounts]atomic.Uint64
	sets   [hotSets][hotWays]atomic.Pointer[hotKey]
}

// A hotKey is a key that is asked for often, by the limits of one Limiter.
type hotKey struct {
	key    string
	limits *limitSet
	claims claim.Shared

	lease    atomic.Pointer[lease] // the last one, which may have ended
	renewing atomic.Bool           // a request settles that, and takes another

	mu        sync.Mutex
	demand    demand
	remaining int64 // as last heard; 0: not yet
	last      time.Duration
}

func newHotKeys(d time.Duration, owner uint64) *hotKeys {
	return &hotKeys{d: d, asks: hotAsks, share: leaseShare, seed: maphash.MakeSeed(), owner: owner}
}

func (t *hotKeys) hash(key string) uint64 { return maphash.String(t.seed, key) }

// find returns the hotKey of key, or nil.
func (t *hotKeys) find(hash uint64, key string, limits *limitSet) *hotKey {
	set := &t.sets[hash%hotSets]
	for i := range set {
		if h := set[i].Load(); h != nil && h.limits == limits && h.key == key {
			return h
		}
	}
	return nil
}

// all returns those of key, by any limits.
func (t *hotKeys) all(key string) []*hotKey {
	var all []*hotKey
	set := &t.sets[t.hash(key)%hotSets]
	for i := range set {
		if h := set[i].Load(); h != nil && h.key == key {
			all = append(all, h)
		}
	}
	return all
}

// A counter of keys that are not hot is a tag of the key that it counts, since when it does,
// in 64ths of the duration of a lease, and how often that was asked for.
const (
	countBits = 8
	sinceBits = 40
)

// count counts a request for a key that find has not found. It returns the hotKey that it has
// become, or nil.
func (t *hotKeys) count(hash uint64, key string, limits *limitSet, now time.Duration) *hotKey {
	counter := &t.counts[hash/hotSets%hotCounts]
	tag, tick := hash>>(countBits+sinceBits), uint64(now/(t.d/64))%(1<<sinceBits)
	old := counter.Load()
	since, asks := old>>countBits%(1<<sinceBits), old%(1<<countBits)
	switch {
	case tick-since >= 64 || asks == 0:
		since, asks = tick, 1
	case old>>(countBits+sinceBits) == tag:
		asks++
	case asks > 1: // of another key, which keeps the counter for as long as it is asked for more often
		tag = old >> (countBits + sinceBits)
		asks--
	default:
		since, asks = tick, 1
	}
	if int64(asks) >= t.asks {
		if len(key) > maxHotKey {
			return nil
		}
		return t.add(hash, key, limits, now)
	}
	counter.CompareAndSwap(old, tag<<(countBits+sinceBits)|since<<countBits|asks) // a request that is not counted is no harm
	return nil
}

// add returns a new hotKey for key, or nil where there is no room.
func (t *hotKeys) add(hash uint64, key string, limits *limitSet, now time.Duration) *hotKey {
	added := &hotKey{key: strings.Clone(key), limits: limits, claims: claim.Shared{Owner: t.owner}, last: now}
	added.demand.add(now, t.d, t.asks-1, t.asks-1)
	set := &t.sets[hash%hotSets]
	for i := range set {
		old := set[i].Load()
		if old != nil && old.limits == limits && old.key == key {
			return old // another request was faster
		}
		if (old == nil || old.idle(now, t.d)) && set[i].CompareAndSwap(old, added) {
			return added
		}
	}
	return nil
}

// idle reports whether the key was not asked for within d. What was leased of it has ended
// then, and is settled in the background.
func (h *hotKey) idle(now, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now-h.last > d && !h.renewing.Load()
}

// asked notes requests that were admitted so many units.
func (h *hotKey) asked(now, d time.Duration, asks, units int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
	h.demand.add(now, d, asks, units)
}

// heard notes how many units remain of the limit that has the fewest.
func (h *hotKey) heard(res *Result) {
	remaining := res.Remaining
	for each := range res.All() {
		remaining = min(remaining, each.Remaining)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remaining = remaining
}

// wanted returns how many units are to be leased; 0 for none.
func (h *hotKey) wanted(now time.Duration, t *hotKeys) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	asks, units := h.demand.sum(now, t.d)
	if asks < t.asks || h.remaining < 1 {
		return 0
	}
	return max(1, min(units, h.remaining/t.share, maxLeased))
}

// demand is how often a key was asked for within the last d, and for how many units: those
// of the present eighth of d, and of the seven before it.
type demand [8]struct {
	eighth      int64 // which one, counted from the clock's origin
	asks, units int64
}

func (m *demand) add(now, d time.Duration, asks, units int64) {
	eighth := int64(now / (d / 8))
	e := &m[eighth%8]
	if e.eighth != eighth {
		e.eighth, e.asks, e.units = eighth, 0, 0
	}
	e.asks += asks
	e.units += units
}

func (m *demand) sum(now, d time.Duration) (asks, units int64) {
	eighth := int64(now / (d / 8))
	for _, e := range m {
		if eighth-e.eighth < 8 {
			asks += e.asks
			units += e.units
		}
	}
	return asks, units
}
