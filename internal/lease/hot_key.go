package lease

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/limits"
)

// HotDecisions is about how many requests for a key within the duration of a lease make the key hot. This
// process then leases units of the key, if enough units remain.
const HotDecisions = 8

// The table of hot keys has hotSets sets of hotWays keys each. If all places in the set of a key are taken by
// other keys that are in use, the key does not become hot.
const (
	hotSets = 1024
	hotWays = 4
)

// leastLeased is the smallest number of units for which a lease is taken: a lease costs two calls to Redis.
const leastLeased = 3

// maxHotKey is the length in bytes of the longest key that can become hot. It bounds the memory of the table of
// hot keys, which contains the keys themselves.
const maxHotKey = 512

// hotCounts is how many counters each set has for keys that are not hot.
const hotCounts = 8

// hotKeys finds out which keys are requested often, and keeps their HotKeys. It is used without a lock.
type hotKeys struct {
	d            time.Duration // the duration of a lease
	hotDecisions int64         // the constant HotDecisions, unless a test has set another number
	share        int64         // the constant share, unless a test has set another number
	seed         maphash.Seed
	table        atomic.Pointer[[hotSets]hotSet] // allocated when it is first used
}

// A hotSet fills one cache line of 64 bytes on 64-bit machines. There, a request for a key that is not hot
// reads no other cache line of the table.
type hotSet struct {
	keys   [hotWays]atomic.Pointer[HotKey]
	counts [hotCounts]atomic.Uint32
}

// A HotKey is a key that is requested often for the limits of one Limiter.
type HotKey struct {
	key    string
	limits *limits.Set

	lease    atomic.Pointer[Lease]    // the latest lease, which may have ended, or nil
	exchange atomic.Pointer[exchange] // the exchange in flight, or nil
	settling atomic.Int32             // the number of closed leases whose settlement has not ended yet

	// mu guards the fields below.
	mu        sync.Mutex
	demand    demand
	remaining int64         // how many units remained when Redis last replied; 0 if that is not known; see heard
	last      time.Duration // when decisions were last counted, by the monotonic clock of an Instant
}

func newHotKeys(d time.Duration) *hotKeys {
	return &hotKeys{d: d, hotDecisions: HotDecisions, share: share, seed: maphash.MakeSeed()}
}

func (t *hotKeys) hash(key string) uint64 { return maphash.String(t.seed, key) }

// set returns the hotSet for keys with the given hash.
func (t *hotKeys) set(hash uint64) *hotSet {
	table := t.table.Load()
	if table == nil {
		t.table.CompareAndSwap(nil, new([hotSets]hotSet))
		table = t.table.Load()
	}
	return &table[hash%hotSets]
}

// find returns the HotKey of key for the limits of forLimits, or nil if the key is not hot.
func (s *hotSet) find(key string, forLimits *limits.Set) *HotKey {
	for i := range s.keys {
		if h := s.keys[i].Load(); h != nil && h.limits == forLimits && h.key == key {
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

// A counter counts the requests for a key that is not hot. It is one word, from its highest bit:
//
//	 8 bits  a tag, which distinguishes the keys that share the counter
//	16 bits  when the counter began to count, in 64ths of d
//	 8 bits  how often the key was requested since then, minus the requests for other keys
const (
	countBits = 8
	sinceBits = 16
	tagBits   = 8
)

// count counts a request for a key that find has not found in set. hash is the hash of the key, and set is
// the set for that hash. If the key is hot now, count returns its HotKey, and otherwise nil.
func (t *hotKeys) count(set *hotSet, hash uint64, key string, forLimits *limits.Set, now time.Duration) *HotKey {
	counter := &set.counts[hash/hotSets%hotCounts]
	tag, tick := uint32(hash>>(64-tagBits)), uint32(now/(t.d/64))%(1<<sinceBits)
	old := counter.Load()
	since, decisions := old>>countBits%(1<<sinceBits), old%(1<<countBits)
	switch {
	case (tick-since)%(1<<sinceBits) >= 64 || decisions == 0:
		since, decisions = tick, 1
	case old>>(countBits+sinceBits) == tag:
		decisions = min(decisions+1, 1<<countBits-1)
	case decisions > 1: // the counter keeps another key as long as that key has more requests than the others
		tag = old >> (countBits + sinceBits)
		decisions--
	default:
		since, decisions = tick, 1
	}
	if int64(decisions) >= t.hotDecisions {
		if len(key) > maxHotKey {
			return nil
		}
		return t.add(set, key, forLimits, now)
	}
	// This fails if another request has changed the counter at the same time. It does no harm that this request is
	// then not counted.
	counter.CompareAndSwap(old, tag<<(countBits+sinceBits)|since<<countBits|decisions)
	return nil
}

// add makes key hot. It returns nil if there is no place for it in set. The decisions on the key before this one
// are counted as if each had admitted one unit, because the counter does not know their costs.
func (t *hotKeys) add(set *hotSet, key string, forLimits *limits.Set, now time.Duration) *HotKey {
	added := &HotKey{key: strings.Clone(key), limits: forLimits, last: now}
	added.demand.add(now, t.d, t.hotDecisions-1, t.hotDecisions-1)
	for i := range set.keys {
		old := set.keys[i].Load()
		if old != nil && old.limits == forLimits && old.key == key {
			return old // another request has made the key hot at the same time
		}
		if (old == nil || old.idle(now, t.d)) && set.keys[i].CompareAndSwap(old, added) {
			return added
		}
	}
	return nil
}

// idle reports whether no decision on the key was counted within the last d, no exchange is in flight, and
// its leases are settled. (The decisions by a lease are counted when the lease is closed.) Only an idle key
// may lose its place to another key, because Drop does not find the leases of a key that has no place.
func (h *HotKey) idle(now, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	// The exchange is looked at first, because it ends after it has stored its lease.
	return now-h.last > d && h.exchange.Load() == nil && !h.Lease().open() && h.settling.Load() == 0
}

// countDecisions records a number of decisions on the key, which have admitted a number of units together.
func (h *HotKey) countDecisions(now, d time.Duration, decisions, units int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = now
	h.demand.add(now, d, decisions, units)
}

// heard records how many units remain, as Redis has just replied, in the limit that has the fewest left. If a
// request for a lease got no reply, or found a ban, remaining is 0.
func (h *HotKey) heard(remaining int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remaining = remaining
}

// wanted returns how many units the next lease should have, or 0 if a lease is not worth its cost.
func (h *HotKey) wanted(now time.Duration, t *hotKeys) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	decisions, units := h.demand.sum(now, t.d)
	units = min(units, h.remaining/t.share, maxLeased)
	if decisions < t.hotDecisions || units < leastLeased {
		return 0
	}
	return units
}

// demand counts the decisions on a key within about the last d, and the units that they have admitted. Time
// is divided into eighths of d. Each element is for one of the last eight eighths, including the present one.
// If no decision was counted in that eighth, the element is still for an earlier one, and sum ignores it.
type demand [8]struct {
	eighth           int64 // the number of the eighth, counted from the origin of the clock
	decisions, units int64
}

// add adds decisions, and the units that they have admitted together, to the eighth that contains now.
func (m *demand) add(now, d time.Duration, decisions, units int64) {
	eighth := int64(now / (d / 8))
	e := &m[eighth%8]
	if e.eighth != eighth {
		e.eighth, e.decisions, e.units = eighth, 0, 0
	}
	e.decisions += decisions
	e.units += units
}

// sum returns the sums over the present eighth and the seven before it.
func (m *demand) sum(now, d time.Duration) (decisions, units int64) {
	eighth := int64(now / (d / 8))
	for _, e := range m {
		if eighth-e.eighth < 8 {
			decisions += e.decisions
			units += e.units
		}
	}
	return decisions, units
}
