package core

import (
	"hash/maphash"
	"math/bits"
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
// one whose limit is least used, and of these one that has not changed for long.
// So newcomers are always served, and a key that is used up is the last to be
// forgotten. A [SlidingWindowLog] keeps, besides, 24 bytes for each admitted call
// in its window.
//
// The options are limits and Entries; those that concern Redis are refused.
func NewMemory(name string, opts ...Option) (*Limiter, error) {
	c, err := configure(name, opts, inMemory)
	if err != nil {
		return nil, err
	}
	l := newLimiter(name, c)
	l.local = newMemory(l, c.entries, l.deciders, SourceMemory)
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

// A memory keeps the state of keys in this process. Its clock is the monotonic
// one: it never steps back. It has no interface in common with what keeps it in
// Redis: what it finds would have to be on the heap to pass through one.
type memory struct {
	limiter  *Limiter
	deciders []decider // of the limits of limiter, or its share of them
	source   Source
	entries  int64
	count    atomic.Int64
	started  time.Time
	epoch    int64 // started, in microseconds
	seed     maphash.Seed
	blank    []state // of a key that is not there
	shards   []shard
}

func newMemory(l *Limiter, entries int, deciders []decider, source Source) *memory {
	now := time.Now()
	m := &memory{
		limiter:  l,
		deciders: deciders,
		source:   source,
		entries:  int64(entries),
		started:  now,
		epoch:    now.UnixMicro(),
		seed:     maphash.MakeSeed(),
		blank:    make([]state, len(deciders)),
		shards:   make([]shard, max(1, min(maxShards, entries/shardSize))),
	}
	for i := range m.shards {
		m.shards[i].init(m)
	}
	return m
}

func (m *memory) now() int64 { return m.epoch + time.Since(m.started).Microseconds() }

func (m *memory) shard(key string) *shard {
	i, _ := bits.Mul64(maphash.String(m.seed, key), uint64(len(m.shards)))
	return &m.shards[i]
}

// decide decides on n units, and writes the decision to res: to return it through
// each of these calls would copy it as often, which took a quarter of the time. A
// book holds the receipts of many decisions and what was found stays on the stack,
// so that one limit costs no allocation.
func (m *memory) decide(res *Result, key string, n int64, charge bool) {
	var room [1]reading
	found := room[:]
	if len(m.deciders) > len(room) {
		found = make([]reading, len(m.deciders))
	}
	b, number := m.read(key, n, charge, found)
	m.limiter.describe(res, found, m.deciders, n, charge, m.source)
	res.receipt.book, res.receipt.number, res.receipt.key, res.receipt.n = b, number, key, n
}

// read finds how each limit stands. If all of them admit n units and charges is
// set, it charges them, and returns the place of their receipt in a book.
func (m *memory) read(key string, n int64, charges bool, found []reading) (b *book, number uint8) {
	key = localKey(key)
	s := m.shard(key)
	now := m.now() // others need not wait for the clock
	s.Lock()
	now = s.later(now)
	e := s.byKey[key]
	states := m.blank
	if e != nil {
		states = e.states
	}
	all := true
	for i, d := range m.deciders {
		look(d, &found[i], &states[i], now, n)
		all = all && found[i].admits
	}
	if !all || !charges {
		s.Unlock()
		return nil, 0
	}
	known := e != nil
	if !known {
		e = newEntry(key, len(m.deciders))
	}
	for i, d := range m.deciders {
		charge(d, &e.states[i], &found[i], n)
	}
	if known {
		s.touch(e)
	} else {
		s.insert(e, now)
	}
	b, number = s.receipt()
	s.Unlock()
	return b, number
}

// refund gives back what r was charged.
func (m *memory) refund(key string, r Result) {
	key = localKey(key)
	s := m.shard(key)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.later(now)
	e := s.byKey[key]
	if e == nil {
		return
	}
	i := 0
	for each := range r.All() {
		m.deciders[i].refund(&e.states[i], now, r.receipt.n, each.receipt.mark)
		i++
	}
	s.expect(e, min(e.due, s.refilled(e)))
	s.touch(e)
}

func (m *memory) reset(key string) {
	key = localKey(key)
	s := m.shard(key)
	s.Lock()
	defer s.Unlock()
	if e := s.byKey[key]; e != nil {
		s.remove(e)
	}
}
