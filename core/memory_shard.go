package core

import (
	"math"
	"sync"
	"sync/atomic"
)

// A shard holds some of the keys: by name, by when they will have refilled, and
// by how far they are used. What every decision needs comes first, in one line of
// the processor's cache, and no other shard is in that line.
type shard struct {
	sync.Mutex
	memory *memory
	byKey  map[string]*entry
	latest int64 // of the instants of its decisions
	book   *book // in which charges are written
	booked uint8

	due    dueHeap
	levels [levels]entryList

	// What other shards want to know without the lock.
	soonest  atomic.Int64  // no later than the first in due
	occupied atomic.Uint32 // a bit for each level that has entries

	_ [40]byte // to 384
}

// levels is how finely use is told apart when a key has to go.
const levels = 16

// An entry is one key's state. What a decision needs comes first, in one line of
// the processor's cache; with one limit the whole takes two.
type entry struct {
	states     []state // one for each limit
	level      int8
	changed    bool  // since it came to its place in the list; to move it each time would write to its neighbours too
	index      int32 // in the heap
	room       [1]state
	due        int64 // no later than the instant at which it will have refilled
	key        string
	prev, next *entry // in the list of its level
}

// newEntry returns an entry that is in no shard yet: one allocation where there is
// one limit.
func newEntry(key string, limits int) *entry {
	e := &entry{key: key}
	e.states = e.room[:]
	if limits > len(e.room) {
		e.states = make([]state, limits)
	}
	return e
}

func (s *shard) init(m *memory) {
	s.memory = m
	s.byKey = make(map[string]*entry)
	s.booked = bookSize
	s.soonest.Store(math.MaxInt64)
}

// later returns the instant of a decision for which the clock was read before the
// lock was had: never one before that of a decision already made.
func (s *shard) later(now int64) int64 {
	s.latest = max(s.latest, now)
	return s.latest
}

// receipt returns a place in a book for one charge.
func (s *shard) receipt() (b *book, number uint8) {
	if s.booked == bookSize {
		s.book, s.booked = &book{limiter: s.memory.limiter, memory: s.memory}, 0
	}
	s.booked++
	return s.book, s.booked - 1
}

// grace is how long a key that has refilled is kept for while there is room: one
// that comes back need not be made anew.
const grace = 10_000_000 // microseconds

// insert files e, which is new, and makes room for it where there is none.
func (s *shard) insert(e *entry, now int64) {
	s.evictRefilled(now - grace) // two out for one in, while there are such
	s.evictRefilled(now - grace)
	for s.memory.count.Add(1) > s.memory.entries {
		s.memory.count.Add(-1)
		if !s.memory.makeRoom(s, now) {
			s.memory.count.Add(1) // all others are busy: the next newcomer makes up for it
			break
		}
	}
	s.byKey[e.key] = e
	e.due = s.refilled(e)
	s.due.push(e)
	s.publishDue()
	e.level = s.level(e)
	s.list(e)
}

func (s *shard) remove(e *entry) {
	s.memory.count.Add(-1)
	delete(s.byKey, e.key)
	s.due.remove(e)
	s.publishDue()
	s.unlist(e)
}

// touch files e anew after its states changed.
func (s *shard) touch(e *entry) {
	level := s.level(e)
	if level == e.level {
		e.changed = true
		return
	}
	s.unlist(e)
	e.level = level
	s.list(e)
}

// expect says that e will have refilled no sooner than at.
func (s *shard) expect(e *entry, at int64) {
	e.due = at
	s.due.fix(e)
	s.publishDue()
}

func (s *shard) publishDue() {
	soonest := int64(math.MaxInt64)
	if len(s.due) > 0 {
		soonest = s.due[0].due
	}
	if s.soonest.Load() != soonest {
		s.soonest.Store(soonest)
	}
}

func (s *shard) list(e *entry) {
	e.changed = false
	if s.levels[e.level].front == nil {
		s.occupied.Or(1 << e.level)
	}
	s.levels[e.level].pushBack(e)
}

func (s *shard) unlist(e *entry) {
	s.levels[e.level].remove(e)
	if s.levels[e.level].front == nil {
		s.occupied.And(^(1 << e.level))
	}
}

// level returns how far e is used, of its limits the most.
func (s *shard) level(e *entry) int8 {
	level := 0
	for i, d := range s.memory.deciders {
		level = max(level, d.level(&e.states[i]))
	}
	return int8(level)
}

// refilled returns the instant at which e is as if never used.
func (s *shard) refilled(e *entry) int64 {
	var at int64
	for i, d := range s.memory.deciders {
		at = max(at, d.until(&e.states[i]))
	}
	return at
}
