// Package memory keeps the state of limits in this process: for limiters without
// Redis, and for the outage policy FailLocal. It is bounded: when it is full, another
// key is evicted for a new one.
//
//	memory.go  Store: decides, holds, refunds, resets
//	limits.go  Limits: by which a Store decides; how the state of a key passes from one to another
//	shard.go   a part of the keys, under one lock: which are removed, which evicted
package memory

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
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
	started time.Time
	startAt int64 // started, in microseconds since the epoch
	seed    maphash.Seed
	shards  []shard
}

// New returns a Store of at most entries keys. owner is the Owner of its claims.
func New(entries int, owner uint64) *Store {
	now := time.Now()
	m := &Store{
		started: now,
		startAt: now.UnixMicro(),
		seed:    maphash.MakeSeed(),
		shards:  make([]shard, max(1, min(maxShards, entries/shardSize))),
	}
	for i := range m.shards {
		first, next := entries*i/len(m.shards), entries*(i+1)/len(m.shards)
		m.shards[i].init(next-first, owner)
	}
	return m
}

func (m *Store) now() int64 { return m.startAt + time.Since(m.started).Microseconds() }

func (m *Store) shard(k string) *shard {
	i, _ := bits.Mul64(maphash.String(m.seed, k), uint64(len(m.shards)))
	return &m.shards[i]
}

// open locks the shard of the user's key k. It returns that, the entry of the key or nil, the
// key as it is stored, and the instant.
func (m *Store) open(l *Limits, k string) (s *shard, e *entry, stored string, now int64) {
	stored = l.local(k)
	s = m.shard(stored)
	now = m.now() // before the lock is taken, which is then held for less time
	s.Lock()
	now = s.clamp(now)
	return s, s.find(stored, l, now), stored, now
}

// Decide evaluates each of l for n units of the user's key k, and writes its answer
// to answers. If all limits admit n and charge is set, it charges n and
// returns a Claim to that.
func (m *Store) Decide(l *Limits, k string, n int64, charge bool, answers []algorithm.Answer) claim.Claim {
	s, e, k, now := m.open(l, k)
	if !l.evaluate(e, now, n, answers) || !charge {
		s.Unlock()
		return claim.Claim{}
	}
	if e == nil {
		e = s.add(k, l, now)
	}
	for i := range l.members {
		l.members[i].Charge(&e.states[i], answers[i].Observation, n)
	}
	c := s.claims.Next()
	s.Unlock()
	return c
}

// Hold decides as Decide does, but holds n units instead of charging them: those of
// every limit if op is OpReserve, else only slots. It writes each limit's handle to
// refs, and reports whether the units were admitted.
func (m *Store) Hold(l *Limits, k string, n int64, op algorithm.Op, answers []algorithm.Answer, refs []algorithm.Ref) bool {
	s, e, k, now := m.open(l, k)
	defer s.Unlock()
	if !l.evaluate(e, now, n, answers) {
		return false
	}
	if e == nil {
		e = s.add(k, l, now)
	}
	for i, member := range l.members {
		if member.Slots || op == algorithm.OpReserve && !member.Delays {
			refs[i] = member.Reserve(&e.states[i], now, n)
		} else {
			member.Charge(&e.states[i], answers[i].Observation, n)
			refs[i] = member.ChargeID(answers[i].Observation, n)
		}
	}
	return true
}

// Settle charges actual units in place of the n that were reserved under refs.
func (m *Store) Settle(l *Limits, k string, n, actual int64, refs []algorithm.Ref) {
	s, e, k, now := m.open(l, k)
	defer s.Unlock()
	if e == nil {
		if actual == 0 {
			return
		}
		e = s.add(k, l, now)
	}
	for i, member := range l.members {
		switch state := &e.states[i]; {
		case !member.Delays:
			algorithm.Settle(member.Evaluator, state, now, n, actual, refs[i])
		case actual == 0:
			member.Refund(state, now, n, refs[i])
		}
	}
}

// Release frees n slots that are held by refs.
func (m *Store) Release(l *Limits, k string, n int64, refs []algorithm.Ref) {
	s, e, _, now := m.open(l, k)
	defer s.Unlock()
	for i, member := range l.members {
		if member.Slots && e != nil {
			algorithm.Settle(member.Evaluator, &e.states[i], now, n, 0, refs[i])
		}
	}
}

// Renew holds n units for longer, and returns the new handles. A limit whose hold has
// ended keeps its handle, and one whose slots are lost has the zero Ref.
func (m *Store) Renew(l *Limits, k string, n int64, refs []algorithm.Ref) []algorithm.Ref {
	renewed := slices.Clone(refs)
	s, e, _, now := m.open(l, k)
	defer s.Unlock()
	for i, member := range l.members {
		if member.Slots {
			renewed[i] = algorithm.Ref{}
		}
		if e == nil || member.Delays {
			continue
		}
		if ref, ok := member.Renew(&e.states[i], now, n, refs[i]); ok {
			renewed[i] = ref
		}
	}
	return renewed
}

// Refund takes back n units that were charged to k. ids are the handles, one for each
// limit.
func (m *Store) Refund(l *Limits, k string, n int64, ids []algorithm.Ref) {
	s, e, _, now := m.open(l, k)
	defer s.Unlock()
	if e == nil {
		return
	}
	for i, member := range l.members {
		if member.Slots {
			algorithm.Settle(member.Evaluator, &e.states[i], now, n, 0, ids[i])
		} else {
			algorithm.Refund(member.Evaluator, &e.states[i], now, n, ids[i])
		}
	}
}

// Reset forgets what was charged to k, and keeps what is held.
func (m *Store) Reset(l *Limits, k string) {
	s, e, _, now := m.open(l, k)
	defer s.Unlock()
	if e == nil {
		return
	}
	held := false
	for i, member := range l.members {
		held = algorithm.Reset(member.Evaluator, &e.states[i], now) || held
	}
	if !held {
		s.remove(e)
	}
}
