// Package memory keeps the state of limits in this process: for limiters without
// Redis, and for the outage policy FailLocal. It is bounded: when it is full, another
// key is evicted for a new one.
//
//	memory.go  Store: decides, refunds, resets
//	shard.go   a part of the keys, under one lock: which are removed, which evicted
package memory

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
	"github.com/redislimit/redislimit/internal/key"
)

// The keys are divided among shards, each under a lock of its own: one for every
// shardSize keys, and no more than maxShards.
const (
	maxShards = 64
	shardSize = 1024
)

// A Store keeps the state of the limits of keys. Its clock is the monotonic one:
// it never steps back. It is safe for concurrent use.
type Store struct {
	limits  []algorithm.Member
	started time.Time
	startAt int64 // started, in microseconds since the epoch
	seed    maphash.Seed
	unused  []algorithm.State // what a key without an entry is evaluated by
	shards  []shard
}

// New returns a Store of at most entries keys. owner is the Owner of its claims.
func New(entries int, limits []algorithm.Member, owner uint64) *Store {
	now := time.Now()
	m := &Store{
		limits:  limits,
		started: now,
		startAt: now.UnixMicro(),
		seed:    maphash.MakeSeed(),
		unused:  make([]algorithm.State, len(limits)),
		shards:  make([]shard, max(1, min(maxShards, entries/shardSize))),
	}
	for i := range m.shards {
		first, next := entries*i/len(m.shards), entries*(i+1)/len(m.shards)
		m.shards[i].init(limits, next-first, owner)
	}
	return m
}

func (m *Store) now() int64 { return m.startAt + time.Since(m.started).Microseconds() }

func (m *Store) shard(k string) *shard {
	i, _ := bits.Mul64(maphash.String(m.seed, k), uint64(len(m.shards)))
	return &m.shards[i]
}

// Decide evaluates each limit for n units of the user's key k, and writes its answer
// to answers. If all limits admit n and charge is set, it charges n and
// returns a Claim to that.
func (m *Store) Decide(k string, n int64, charge bool, answers []algorithm.Answer) claim.Claim {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now() // before the lock is taken, which is then held for less time
	s.Lock()
	now = s.clamp(now)
	e := s.entries[k]
	if !m.evaluate(e, now, n, answers) || !charge {
		s.Unlock()
		return claim.Claim{}
	}
	if e == nil {
		e = s.add(k, now)
	}
	for i := range m.limits {
		m.limits[i].Charge(&e.states[i], answers[i].Observation, n)
	}
	c := s.claims.Next()
	s.Unlock()
	return c
}

// evaluate writes the answer of each limit to answers, and reports whether all admit n.
func (m *Store) evaluate(e *entry, now, n int64, answers []algorithm.Answer) bool {
	states := m.unused
	if e != nil {
		states = e.states
	}
	admits := true
	for i := range m.limits {
		answers[i] = algorithm.Evaluate(m.limits[i].Evaluator, &states[i], now, n)
		admits = admits && answers[i].Admits
	}
	return admits
}

// Hold decides as Decide does, but holds n units instead of charging them: those of
// every limit if op is OpReserve, else only slots. It writes by what each limit finds
// them to refs, and reports whether they were admitted.
func (m *Store) Hold(k string, n int64, op algorithm.Op, answers []algorithm.Answer, refs []algorithm.Ref) bool {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	e := s.entries[k]
	if !m.evaluate(e, now, n, answers) {
		return false
	}
	if e == nil {
		e = s.add(k, now)
	}
	for i, l := range m.limits {
		if l.Slots || op == algorithm.OpReserve && !l.Delays {
			refs[i] = l.Reserve(&e.states[i], now, n)
		} else {
			l.Charge(&e.states[i], answers[i].Observation, n)
			refs[i] = l.ChargeID(answers[i].Observation, n)
		}
	}
	return true
}

// Settle charges actual units in place of the n that were reserved under refs.
func (m *Store) Settle(k string, n, actual int64, refs []algorithm.Ref) {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	e := s.entries[k]
	if e == nil {
		if actual == 0 {
			return
		}
		e = s.add(k, now)
	}
	for i, l := range m.limits {
		switch state := &e.states[i]; {
		case !l.Delays:
			algorithm.Settle(l.Evaluator, state, now, n, actual, refs[i])
		case actual == 0:
			l.Refund(state, now, n, refs[i])
		}
	}
}

// Release frees n slots that are held by refs.
func (m *Store) Release(k string, n int64, refs []algorithm.Ref) {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	e := s.entries[k]
	for i, l := range m.limits {
		if l.Slots && e != nil {
			algorithm.Settle(l.Evaluator, &e.states[i], now, n, 0, refs[i])
		}
	}
}

// Renew holds n units for longer. It returns by what they are found then: a limit whose
// hold has ended keeps its Ref, and one whose slots are lost has the zero Ref.
func (m *Store) Renew(k string, n int64, refs []algorithm.Ref) []algorithm.Ref {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	renewed := slices.Clone(refs)
	e := s.entries[k]
	for i, l := range m.limits {
		if l.Slots {
			renewed[i] = algorithm.Ref{}
		}
		if e == nil || l.Delays {
			continue
		}
		if ref, ok := l.Renew(&e.states[i], now, n, refs[i]); ok {
			renewed[i] = ref
		}
	}
	return renewed
}

// Refund takes back n units that were charged to k; ids are the ChargeIDs, one
// for each limit.
func (m *Store) Refund(k string, n int64, ids []algorithm.Ref) {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	if e := s.entries[k]; e != nil {
		for i, l := range m.limits {
			if l.Slots {
				algorithm.Settle(l.Evaluator, &e.states[i], now, n, 0, ids[i])
			} else {
				algorithm.Refund(l.Evaluator, &e.states[i], now, n, ids[i])
			}
		}
	}
}

// Reset forgets what was charged to k, and keeps what is held.
func (m *Store) Reset(k string) {
	k = key.Local(k)
	s := m.shard(k)
	now := m.now()
	s.Lock()
	defer s.Unlock()
	now = s.clamp(now)
	e := s.entries[k]
	if e == nil {
		return
	}
	held := false
	for i, l := range m.limits {
		held = algorithm.Reset(l.Evaluator, &e.states[i], now) || held
	}
	if !held {
		s.remove(e)
	}
}
