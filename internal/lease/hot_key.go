package lease

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/limits"
)

// HotAsks is how often a process asks for a key within the duration of a lease where it leases
// units of it.
const HotAsks = 8

// The table of hot keys has hotSets sets of hotWays keys each. A key that finds its set full of
// others that are in use is not leased.
const (
	hotSets = 1024
	hotWays = 4
)

// leastLeased is how many units a lease has at least: to take it and to settle it are two calls.
const leastLeased = 3

// maxHotKey is the length of the longest key, in bytes, that is leased: the table keeps keys as
// they are.
const maxHotKey = 512

// hotCounts is how many counters each set has for keys that are not hot.
const hotCounts = 8

// hotKeys knows which keys a process asks for often, and what it leases of them. It is read without
// a lock.
type hotKeys struct {
	d     time.Duration // of a lease
	asks  int64         // HotAsks
	share int64         // share
	seed  maphash.Seed
	table atomic.Pointer[[hotSets]hotSet] // made with the first request
}

// A hotSet is one cache line, of 64 bytes: a request for a key that is not hot reads no other.
type hotSet struct {
	keys   [hotWays]atomic.Pointer[HotKey]
	counts [hotCounts]atomic.Uint32
}

// A HotKey is a key that is asked for often, by the limits of one Limiter.
type HotKey struct {
	key    string
	limits *limits.Set

	lease    atomic.Pointer[Lease]    // the last one, which may have ended
	exchange atomic.Pointer[exchange] // of a request that settles that, and takes another; or nil
	settling atomic.Int32             // leases that are closed, and not yet settled

	mu        sync.Mutex
	demand    demand
	remaining int64 // as last heard; 0: not yet
	last      time.Duration
}

func newHotKeys(d time.Duration) *hotKeys {
	return &hotKeys{d: d, asks: HotAsks, share: share, seed: maphash.MakeSeed()}
}

func (t *hotKeys) hash(key string) uint64 { return maphash.String(t.seed, key) }

// set returns the set of the keys with a hash.
func (t *hotKeys) set(hash uint64) *hotSet {
	table := t.table.Load()
	if table == nil {
		t.table.CompareAndSwap(nil, new([hotSets]hotSet))
		table = t.table.Load()
	}
	return &table[hash%hotSets]
}

// find returns the HotKey of key, or nil.
func (s *hotSet) find(key string, by *limits.Set) *HotKey {
	for i := range s.keys {
		if h := s.keys[i].Load(); h != nil && h.limits == by && h.key == key {
			return h
		}
	}
	return nil
}

// all returns those of key, by any limits.
func (t *hotKeys) all(key string) []*HotKey {
	var all []*HotKey
	set := t.set(t.hash(key))
	for i := range set.keys {
		if h := set.keys[i].Load(); h != nil && h.key == key {
			all = append(all, h)
		}
	}
	return all
}

// A counter of a key that is not hot, packed: the first numbers are the highest bits.
//
//	8 bits: a tag of the key | 16 bits: since when, in 64ths of d | 8 bits: how often it was asked for
const (
	countBits = 8
	sinceBits = 16
	tagBits   = 8
)

// count counts a request for a key that find has not found in set, which is that of its hash. It
// returns the HotKey that the key has become, or nil.
func (t *hotKeys) count(set *hotSet, hash uint64, key string, by *limits.Set, now time.Duration) *HotKey {
	counter := &set.counts[hash/hotSets%hotCounts]
	tag, tick := uint32(hash>>(64-tagBits)), uint32(now/(t.d/64))%(1<<sinceBits)
	old := counter.Load()
	since, asks := old>>countBits%(1<<sinceBits), old%(1<<countBits)
	switch {
	case (tick-since)%(1<<sinceBits) >= 64 || asks == 0:
		since, asks = tick, 1
	case old>>(countBits+sinceBits) == tag:
		asks = min(asks+1, 1<<countBits-1)
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
		return t.add(set, key, by, now)
	}
	counter.CompareAndSwap(old, tag<<(countBits+sinceBits)|since<<countBits|asks) // a request that is not counted is no harm
	return nil
}

// add returns a new HotKey for key, or nil where there is no room.
func (t *hotKeys) add(set *hotSet, key string, by *limits.Set, now time.Duration) *HotKey {
	added := &HotKey{key: strings.Clone(key), limits: by, last: now}
	added.demand.add(now, t.d, t.asks-1, t.asks-1)
	for i := range set.keys {
		old := set.keys[i].Load()
		if old != nil && old.limits == by && old.key == key {
			return old // another request was faster
		}
		if (old == nil || old.idle(now, t.d)) && set.keys[i].CompareAndSwap(old, added) {
			return added
		}
	}
	return nil
}

// idle reports whether the key was not asked for within d. What was leased of it has ended then,
// and is settled in the background.
func (h *HotKey) idle(now, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now-h.last > d && h.exchange.Load() == nil
}

// asked notes requests that were admitted so many units.
func (h *HotKey) asked(now, d time.Duration, asks, units int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
	h.demand.add(now, d, asks, units)
}

// heard notes how many units remain of the limit that has the fewest.
func (h *HotKey) heard(remaining int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remaining = remaining
}

// wanted returns how many units are to be leased; 0 for none.
func (h *HotKey) wanted(now time.Duration, t *hotKeys) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	asks, units := h.demand.sum(now, t.d)
	units = min(units, h.remaining/t.share, maxLeased)
	if asks < t.asks || units < leastLeased {
		return 0
	}
	return units
}

// demand is how often a key was asked for within the last d, and for how many units: those of the
// present eighth of d, and of the seven before it.
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
