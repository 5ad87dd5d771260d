package core

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// defaultEntries is how many keys a Limiter of NewMemory holds unless told.
const defaultEntries = 100_000

// NewMemory returns a Limiter that lives in this process and needs no Redis: the
// same algorithms, counted here alone. Each call makes a Limiter of its own,
// whatever its name. It suits tests, and services of one process.
//
// Its memory is bounded by [Entries]. When that many keys are held, a new one
// takes the place of one that is as if never used; only where there is none, of
// the one whose limit is least used, the longest unchanged of these. So newcomers
// are always served, and a key that is used up is the last to be forgotten. A
// [SlidingWindowLog] keeps, besides, 24 bytes for each admitted call in its
// window.
//
// The options are limits and Entries; those that concern Redis are refused.
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts, inMemory)
	if err != nil {
		return nil, err
	}
	l := newLimiter(name, c)
	l.store = newMemory(c.entries, l.deciders)
	return l, nil
}

// Entries sets how many keys a Limiter of [NewMemory] holds at most, from 1 to
// 1e8. The default is 100,000, at about 200 bytes each.
func Entries(n int) Option {
	return optionFunc(func(c *config) {
		if n < 1 || n > 1e8 {
			c.failf("Entries(%d): allowed is 1 to %d", n, int(1e8))
		}
		c.set("Entries", inMemory)
		c.entries = n
	})
}

// The keys are shared out to shards, each under a lock of its own: one for every
// shardSize keys, and no more than maxShards.
const (
	maxShards = 64
	shardSize = 256
)

// A memory is the store of a Limiter that lives in one process. Its clock is the
// monotonic one: it never steps back.
type memory struct {
	deciders []decider
	entries  int64
	count    atomic.Int64
	started  time.Time
	epoch    int64 // started, in microseconds
	seed     maphash.Seed
	shards   []shard
}

func newMemory(entries int, deciders []decider) *memory {
	now := time.Now()
	m := &memory{
		deciders: deciders,
		entries:  int64(entries),
		started:  now,
		epoch:    now.UnixMicro(),
		seed:     maphash.MakeSeed(),
		shards:   make([]shard, max(1, min(maxShards, entries/shardSize))),
	}
	for i := range m.shards {
		m.shards[i].memory = m
		m.shards[i].byKey = make(map[string]*entry)
		m.shards[i].blank = make([]state, len(deciders))
	}
	return m
}

func (m *memory) now() int64 { return m.epoch + time.Since(m.started).Microseconds() }

func (m *memory) shard(key string) *shard {
	return &m.shards[maphash.String(m.seed, key)%uint64(len(m.shards))]
}

func (m *memory) read(_ context.Context, key string, n int64, charge bool, into []reading) error {
	key = encodeKey(key)
	s := m.shard(key)
	s.Lock()
	defer s.Unlock()
	now := m.now()
	e := s.byKey[key]
	states := s.blank
	if e != nil {
		states = e.states
	}
	all := true
	for i, d := range m.deciders {
		into[i] = d.look(&states[i], now, n)
		all = all && into[i].admits
	}
	if !all || !charge {
		return nil
	}
	if e == nil {
		e = s.insert(key, now)
	}
	for i, d := range m.deciders {
		d.charge(&e.states[i], into[i], n)
	}
	s.touch(e)
	return nil
}

func (m *memory) refund(_ context.Context, key string, n int64, readings []reading) error {
	key = encodeKey(key)
	s := m.shard(key)
	s.Lock()
	defer s.Unlock()
	if e := s.byKey[key]; e != nil {
		for i, d := range m.deciders {
			d.refund(&e.states[i], m.now(), n, d.mark(readings[i]))
		}
		e.due = min(e.due, s.refilled(e))
		s.due.fix(e)
		s.touch(e)
	}
	return nil
}

func (m *memory) reset(_ context.Context, key string) error {
	key = encodeKey(key)
	s := m.shard(key)
	s.Lock()
	defer s.Unlock()
	if e := s.byKey[key]; e != nil {
		s.remove(e)
	}
	return nil
}

func (m *memory) source() Source { return SourceMemory }

// makeRoom evicts one key for a new one in s, which the caller has locked. What
// is as if never used goes first, in whatever shard; other shards that are busy
// are passed by, so that nobody waits for two locks.
func (m *memory) makeRoom(s *shard, now int64) {
	if s.evictRefilled(now) || m.elsewhere(s, func(o *shard) bool { return o.evictRefilled(now) }) {
		return
	}
	for level := range levels {
		if s.evictAt(level) || m.elsewhere(s, func(o *shard) bool { return o.evictAt(level) }) {
			return
		}
	}
}

func (m *memory) elsewhere(s *shard, evict func(*shard) bool) bool {
	for i := range m.shards {
		o := &m.shards[i]
		if o == s || !o.TryLock() {
			continue
		}
		done := evict(o)
		o.Unlock()
		if done {
			return true
		}
	}
	return false
}

// A shard holds some of the keys: by name, by when they will have refilled, and
// by how far they are used.
type shard struct {
	sync.Mutex
	memory *memory
	byKey  map[string]*entry
	due    dueHeap
	levels [levels]entryList
	blank  []state // of a key that is not there
}

// levels is how finely use is told apart when a key has to go.
const levels = 16

// An entry is one key's state.
type entry struct {
	key        string
	states     []state // one for each limit
	due        int64   // no later than the instant at which it will have refilled
	index      int     // in the heap
	level      int
	prev, next *entry // in the list of its level
}

func (s *shard) insert(key string, now int64) *entry {
	s.evictRefilled(now) // two out for one in, while there are such
	s.evictRefilled(now)
	if s.memory.count.Load() >= s.memory.entries {
		s.memory.makeRoom(s, now)
	}
	s.memory.count.Add(1)
	e := &entry{key: key, states: make([]state, len(s.memory.deciders)), due: now}
	s.byKey[key] = e
	s.due.push(e)
	s.levels[0].pushBack(e)
	return e
}

func (s *shard) remove(e *entry) {
	s.memory.count.Add(-1)
	delete(s.byKey, e.key)
	s.due.remove(e)
	s.levels[e.level].remove(e)
}

// touch files e anew after its states changed.
func (s *shard) touch(e *entry) {
	level := 0
	for i, d := range s.memory.deciders {
		level = max(level, min(int(d.share(&e.states[i])*levels), levels-1))
	}
	s.levels[e.level].remove(e)
	e.level = level
	s.levels[level].pushBack(e)
}

// refilled returns the instant at which e is as if never used.
func (s *shard) refilled(e *entry) int64 {
	var at int64
	for i, d := range s.memory.deciders {
		at = max(at, d.until(&e.states[i]))
	}
	return at
}

// evictRefilled evicts a key that is as if never used, if there is one. Charges
// do not move entries in the heap, so the first may be due later than it says.
func (s *shard) evictRefilled(now int64) bool {
	for len(s.due) > 0 && s.due[0].due <= now {
		e := s.due[0]
		at := s.refilled(e)
		if at <= now {
			s.remove(e)
			return true
		}
		e.due = at
		s.due.fix(e)
	}
	return false
}

// evictAt evicts a key that is used to the level, if there is one.
func (s *shard) evictAt(level int) bool {
	e := s.levels[level].front
	if e == nil {
		return false
	}
	s.remove(e)
	return true
}
