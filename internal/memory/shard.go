package memory

import (
	"math/rand/v2"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
)

const (
	// swept is how many entries are checked whenever a key is added. The entries are checked in turn, and those
	// that are not needed any more are removed; see retention.
	swept = 2
	// sampled is how many random entries are compared when a shard is full, to evict the one that is used least.
	sampled = 16
	// retention is how long, in microseconds, an entry is kept at least after all its limits are available in full
	// again, unless the shard is full. If the key is used again within this time, no new entry need be allocated.
	retention = 10_000_000
)

// A shard has a part of the keys. Its lock guards all fields and the entries.
type shard struct {
	sync.Mutex
	entries  map[string]*entry
	latest   int64    // the latest instant that clamp has returned
	capacity int      // the largest number of entries
	list     []*entry // all entries, in no particular order
	hand     int      // the index in list of the entry that is swept next

	// The padding makes a shard 128 bytes long on a 64-bit processor, so that no two shards share a cache line, or
	// the pair of lines that some processors fetch together.
	_ [64]byte
}

// An entry has the states of one key.
type entry struct {
	limits *Limits            // the limits of states
	states []algorithm.State  // one for each limit of limits
	kept   []kept             // states of limits that are not in limits; see rearrange
	inline [1]algorithm.State // backs states if there is one limit
	key    string
	index  int // in the shard's list
}

func (s *shard) init(capacity int) {
	s.entries = make(map[string]*entry)
	s.capacity = capacity
}

// clamp returns now, or the instant that it returned before if that is later. So within a shard the instants of
// decisions never step back, although now is read before the lock is taken.
func (s *shard) clamp(now int64) int64 {
	s.latest = max(s.latest, now)
	return s.latest
}

// find returns the entry of key, with its states in the order of l, or nil if key has no entry.
func (s *shard) find(key string, l *Limits, now int64) *entry {
	e := s.entries[key]
	if e != nil && e.limits != l && e.limits.joined != l.joined {
		e.rearrange(l, now)
	}
	return e
}

// add adds an entry for key. If the shard is full, add evicts another entry.
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
	if len(l.limits) > len(e.inline) {
		e.states = make([]algorithm.State, len(l.limits))
	}
	s.entries[key] = e
	s.list = append(s.list, e)
	return e
}

// sweep checks the next entry, and removes it if all its limits are available in full at the instant until.
func (s *shard) sweep(until int64) {
	if s.hand >= len(s.list) {
		s.hand = 0
	}
	if s.hand < len(s.list) && s.list[s.hand].resetAt() <= until {
		s.remove(s.list[s.hand]) // the last entry moves to this index, and is checked next
	} else {
		s.hand++
	}
}

// evict removes one of some random entries: the one that is used least.
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

// resetAt returns the instant from which all limits are available in full.
func (e *entry) resetAt() int64 {
	var at int64
	for i, l := range e.limits.limits {
		at = max(at, l.ResetAt(&e.states[i]))
	}
	for i := range e.kept {
		at = max(at, e.kept[i].limit.ResetAt(&e.kept[i].state))
	}
	return at
}

// usage returns the largest Usage of all limits.
func (e *entry) usage(now int64) float64 {
	used := 0.0
	for i, l := range e.limits.limits {
		used = max(used, l.Usage(&e.states[i], now))
	}
	for i := range e.kept {
		used = max(used, e.kept[i].limit.Usage(&e.kept[i].state, now))
	}
	return used
}
