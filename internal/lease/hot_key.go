package lease

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/limits"
)

// HotDecisions is how many requests for a key, within the duration of a lease, make the key hot: this process
// then leases units of it.
const HotDecisions = 8

// The table of hot keys has hotSets sets of hotWays keys each. If the set of a key is full of other keys
// that are in use, the key does not become hot.
const (
	hotSets = 1024
	hotWays = 4
)

// leastLeased is the least number of units that are worth a lease, which costs two calls to Redis.
const leastLeased = 3

// maxHotKey is the length, in bytes, of the longest key that is leased. It bounds the memory of the table,
// which keeps whole keys.
const maxHotKey = 512

// hotCounts is how many counters each set has for keys that are not hot.
const hotCounts = 8

// hotKeys finds out which keys are requested often, and keeps their HotKeys. It is read without a lock.
type hotKeys struct {
	d            time.Duration // the duration of a lease
	hotDecisions int64         // HotDecisions, or what a test has set
	share        int64         // share, or what a test has set
	seed         maphash.Seed
	table        atomic.Pointer[[hotSets]hotSet] // allocated with the first request
}

// A hotSet fills one cache line of 64 bytes. A request for a key that is not hot reads no other.
type hotSet struct {
	keys   [hotWays]atomic.Pointer[HotKey]
	counts [hotCounts]atomic.Uint32
}

// A HotKey is a key that is requested often, for the limits of one Limiter.
type HotKey struct {
	key    string
	limits *limits.Set

	lease    atomic.Pointer[Lease]    // the latest lease, which may have ended, or nil
	exchange atomic.Pointer[exchange] // the exchange in flight, or nil
	settling atomic.Int32             // how many leases are closed but not settled yet

	// mu guards the fields below.
	mu        sync.Mutex
	demand    demand
	remaining int64         // how many units remained when Redis last answered; 0 before the first answer
	last      time.Duration // when the key was last requested
}

func newHotKeys(d time.Duration) *hotKeys {
	return &hotKeys{d: d, hotDecisions: HotDecisions, share: share, seed: maphash.MakeSeed()}
}

func (t *hotKeys) hash(key string) uint64 { return maphash.String(t.seed, key) }

// set returns the set for keys with the given hash.
func (t *hotKeys) set(hash uint64) *hotSet {
	table := t.table.Load()
	if table == nil {
		t.table.CompareAndSwap(nil, new([hotSets]hotSet))
		table = t.table.Load()
	}
	return &table[hash%hotSets]
}

// find returns the HotKey of key for the limits of a Set, or nil.
func (s *hotSet) find(key string, by *limits.Set) *HotKey {
	for i := range s.keys {
		if h := s.keys[i].Load(); h != nil && h.limits == by && h.key == key {
			return h
		}
	}
	return nil
}

// all returns the HotKeys of key for any limits.
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

// A counter counts requests for a key that is not hot. It is one word, from its highest bit:
//
//	 8 bits  a tag, which tells keys apart that share the counter
//	16 bits  when the counter began, in 64ths of d
//	 8 bits  how often the key was requested
const (
	countBits = 8
	sinceBits = 16
	tagBits   = 8
)

// count counts a request for a key that find did not find in set, the set for the key's hash. If the key
// has become hot, count returns its HotKey, and otherwise nil.
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
	case asks > 1: // of another key, which keeps the counter while it is requested more often
		tag = old >> (countBits + sinceBits)
		asks--
	default:
		since, asks = tick, 1
	}
	if int64(asks) >= t.hotDecisions {
		if len(key) > maxHotKey {
			return nil
		}
		return t.add(set, key, by, now)
	}
	// It fails if another request was faster. Not counting this request does no harm.
	counter.CompareAndSwap(old, tag<<(countBits+sinceBits)|since<<countBits|asks)
	return nil
}

// add makes key hot. It returns nil if there is no room.
func (t *hotKeys) add(set *hotSet, key string, by *limits.Set, now time.Duration) *HotKey {
	added := &HotKey{key: strings.Clone(key), limits: by, last: now}
	added.demand.add(now, t.d, t.hotDecisions-1, t.hotDecisions-1)
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

// idle reports whether the key was not requested within the last d. Its lease has ended then, and is
// settled in the background.
func (h *HotKey) idle(now, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now-h.last > d && h.exchange.Load() == nil
}

// countDecisions records requests for the key, and how many units they were admitted.
func (h *HotKey) countDecisions(now, d time.Duration, asks, units int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
	h.demand.add(now, d, asks, units)
}

// heard records how many units remain of the limit that has the fewest.
func (h *HotKey) heard(remaining int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remaining = remaining
}

// wanted returns how many units the next lease should have; 0 if no lease is worth it.
func (h *HotKey) wanted(now time.Duration, t *hotKeys) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	asks, units := h.demand.sum(now, t.d)
	units = min(units, h.remaining/t.share, maxLeased)
	if asks < t.hotDecisions || units < leastLeased {
		return 0
	}
	return units
}

// demand counts the requests for a key within the last d, and the units that they were admitted. Each
// element counts one eighth of d: the present eighth, and the seven before it.
type demand [8]struct {
	eighth           int64 // which one, counted from the clock's origin
	decisions, units int64
}

func (m *demand) add(now, d time.Duration, asks, units int64) {
	eighth := int64(now / (d / 8))
	e := &m[eighth%8]
	if e.eighth != eighth {
		e.eighth, e.decisions, e.units = eighth, 0, 0
	}
	e.decisions += asks
	e.units += units
}

func (m *demand) sum(now, d time.Duration) (asks, units int64) {
	eighth := int64(now / (d / 8))
	for _, e := range m {
		if eighth-e.eighth < 8 {
			asks += e.decisions
			units += e.units
		}
	}
	return asks, units
}
