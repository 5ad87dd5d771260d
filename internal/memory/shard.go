package memory

import (
	"math/rand/v2"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
)

const (
	// swept is how many entries are looked at, in turn, when a key is added, to remove those whose
	// full limit has long been available again.
	swept = 2
	// sampled is how many random entries are looked at when a shard is full, to evict the one that
	// is used least.
	sampled = 16
	// retention is for how long an entry is kept after its full limit is available again, unless
	// the shard is full, in microseconds: if its key is used again, no new entry is allocated.
	retention = 10_000_000
)

// A shard has a part of the keys.
type shard struct {
	sync.Mutex
	entries  map[string]*entry
	latest   int64 // the latest instant of a decision
	capacity int
	list     []*entry // all entries, in no order
	hand     int      // where the next sweep begins in list

	_ [40]byte // fills 128 bytes, so that no two shards share a line of the processor's cache
}

// An entry is the state of one key.
type entry struct {
	limits *Limits           // by which it was charged last
	states []algorithm.State // one for each of limits
	kept   []kept            // of other limits
	inline [1]algorithm.State
	key    string
	index  int // in the shard's list
}

func (s *shard) init(capacity int) {
	s.entries = make(map[string]*entry)
	s.capacity = capacity
}

// clamp returns now, or the instant of the last decision if that is later: now was read before the
// lock was taken.
func (s *shard) clamp(now int64) int64 {
	s.latest = max(s.latest, now)
	return s.latest
}

// find returns the entry of key, with the states in the order of l, or nil if there is none.
func (s *shard) find(key string, l *Limits, now int64) *entry {
	e := s.entries[key]
	if e != nil && e.limits != l && e.limits.joined != l.joined {
		e.rearrange(l, now)
	}
	return e
}

// add returns a new entry for key. If the shard is full, it evicts another.
func (s *shard) add(key string, l *Limits, now int64) *entry {
	until := now
	if len(s.list) < s.capacity {
		until -= retention
	}
	for range swept {
		s.sweep(until)
	}
	if len(s.list) >= s.capacity {
		s.evict(now)
	}
	e := &entry{limits: l, key: key, index: len(s.list)}
	e.states = e.inline[:]
	if len(l.members) > len(e.inline) {
		e.states = make([]algorithm.State, len(l.members))
	}
	s.entries[key] = e
	s.list = append(s.list, e)
	return e
}

// sweep removes the next entry if its full limit was available again at an instant.
func (s *shard) sweep(until int64) {
	if s.hand >= len(s.list) {
		s.hand = 0
	}
	if s.hand < len(s.list) && s.list[s.hand].resetAt() <= until {
		s.remove(s.list[s.hand]) // the last entry takes its place, and is next
	} else {
		s.hand++
	}
}

// evict removes the entry of some random ones that is used least. One whose full limit is available
// again is not used at all.
func (s *shard) evict(now int64) {
	var least *entry
	usage := 0.0
	for range sampled {
		e := s.list[rand.IntN(len(s.list))]
		if used := e.usage(now); least == nil || used < usage {
			least, usage = e, used
		}
	}
	s.remove(least)
}

func (s *shard) remove(e *entry) {
	delete(s.entries, e.key)
	last := len(s.list) - 1
	s.list[e.index] = s.list[last]
	s.list[e.index].index = e.index
	s.list[last] = nil
	s.list = s.list[:last]
}

// resetAt returns the instant at which all limits are available in full again.
func (e *entry) resetAt() int64 {
	var at int64
	for i, l := range e.limits.members {
		at = max(at, l.ResetAt(&e.states[i]))
	}
	for i := range e.kept {
		at = max(at, e.kept[i].member.ResetAt(&e.kept[i].state))
	}
	return at
}

// usage returns the Usage of the limit of which most is used.
func (e *entry) usage(now int64) float64 {
	used := 0.0
	for i, l := range e.limits.members {
		used = max(used, l.Usage(&e.states[i], now))
	}
	for i := range e.kept {
		used = max(used, e.kept[i].member.Usage(&e.kept[i].state, now))
	}
	return used
}
