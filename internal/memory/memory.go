// Package memory keeps the states of limits in this process, for limiters without Redis and for the outage
// policy FailLocal. The number of keys is bounded: when there is no room for another key, it replaces a key.
//
//	memory.go  Store: decides, holds, refunds, resets
//	limits.go  Limits: the limits of a limiter, and their states in the entry of a key
//	ban.go     decisions that may hold units or ban a key, and the bans
//	shard.go   shard: a part of the keys under one lock, with sweeping and eviction
package memory

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// The keys are divided among shards, each with a lock of its own. There is one shard for every shardSize
// keys, but at least one shard and at most maxShards.
const (
	maxShards = 64
	shardSize = 1024
)

// A Store keeps the states of limits for each key. Without a clock of its own, it uses the monotonic clock of the
// process. It is safe for concurrent use.
type Store struct {
	started time.Time
	startAt int64            // started, in microseconds since the Unix epoch
	clock   func() time.Time // the Store's own clock, or nil
	seed    maphash.Seed
	shards  []shard
}

// New returns a Store for at most entries keys. The ban of a key counts as another key. clock may be nil.
func New(entries int, clock func() time.Time) *Store {
	now := time.Now()
	m := &Store{
		started: now,
		startAt: now.UnixMicro(),
		clock:   clock,
		seed:    maphash.MakeSeed(),
		shards:  make([]shard, max(1, min(maxShards, entries/shardSize))),
	}
	for i := range m.shards {
		first, next := entries*i/len(m.shards), entries*(i+1)/len(m.shards)
		m.shards[i].init(next - first)
	}
	return m
}

// now returns the current instant in microseconds since the Unix epoch.
func (m *Store) now() int64 {
	if m.clock != nil {
		return m.clock().UnixMicro()
	}
	return m.startAt + time.Since(m.started).Microseconds()
}

// shard returns the shard of k, which must be in the form that key.Local returns.
func (m *Store) shard(k string) *shard {
	i, _ := bits.Mul64(maphash.String(m.seed, k), uint64(len(m.shards)))
	return &m.shards[i]
}

// lock locks the shard of the user's key k, which has both the states and the ban of k. It returns the shard, the
// key of the entry that has the states of k, and the current instant. The caller must unlock the shard.
func (m *Store) lock(k string) (s *shard, stored string, now int64) {
	k = key.Local(k)
	s, stored = m.shard(k), stateKey(k)
	now = m.now() // read before the lock is taken, so that the lock is held for less time
	s.Lock()
	return s, stored, s.clamp(now)
}

// stateKey returns the key of the entry that has the states of k. k must be in the form that key.Local returns. The
// result never equals a banKey.
func stateKey(k string) string {
	if k[0] == 0 {
		return "\x00k" + k
	}
	return k
}

// Decide evaluates each limit of l for n units of the user's key k, and writes its answer to answers. If all limits
// admit the units and charge is set, Decide charges them. It does not look at bans, and cannot take slots: see
// DecideHold.
func (m *Store) Decide(l *Limits, k string, n int64, charge bool, answers []algorithm.Answer) {
	s, k, now := m.lock(k)
	defer s.Unlock()
	e := s.find(k, l, now)
	if !l.evaluate(e, now, n, answers) || !charge {
		return
	}
	if e == nil {
		e = s.add(k, l, now)
	}
	l.adopt(e, now)
	for i := range l.limits {
		l.limits[i].Charge(&e.states[i], &answers[i], n)
	}
}

// hold evaluates the limits of l, and reports whether all admit. If so, it holds or charges the units of c, and writes
// the handles to c.Handles, which must not be nil. k is the key of the entry.
func (s *shard) hold(l *Limits, k string, now int64, c algorithm.Operation, answers []algorithm.Answer) bool {
	e := s.find(k, l, now)
	n, op, handles := c.N, c.Op, c.Handles
	if !l.evaluate(e, now, n, answers) {
		return false
	}
	if e == nil {
		e = s.add(k, l, now)
	}
	for i, limit := range l.limits {
		if limit.Slots || op == algorithm.OpReserve && !limit.Delays {
			handles[i] = limit.Reserve(&e.states[i], now, n)
		} else {
			l.adopt(e, now)
			handles[i] = limit.Acquire(&e.states[i], &answers[i], n)
		}
	}
	return true
}

// End ends the holds or charges of c.Handles by c.Op, which is OpSettle, OpRefund or OpRelease.
func (m *Store) End(l *Limits, k string, c algorithm.Operation) {
	s, k, now := m.lock(k)
	defer s.Unlock()
	e := s.find(k, l, now)
	if e == nil {
		if c.Op != algorithm.OpSettle || c.Actual == 0 {
			return
		}
		e = s.add(k, l, now)
	}
	for i, limit := range l.limits {
		state, handle := &e.states[i], c.Handles[i]
		switch {
		case limit.Slots:
			limit.Settle(state, now, c.N, 0, handle)
		case c.Op == algorithm.OpRefund, c.Op == algorithm.OpSettle && limit.Delays && c.Actual == 0:
			l.adopt(e, now)
			limit.Refund(state, now, c.N, handle)
		case c.Op == algorithm.OpSettle && !limit.Delays:
			limit.Settle(state, now, c.N, c.Actual, handle)
		}
	}
}

// Renew renews the holds of n units that handles identify, and returns their new handles. A limit whose hold has
// ended keeps its handle, and a limit whose slots are lost gets the zero Handle.
//
// In a Store with a clock of its own, Renew does not end holds that have expired, so that they can still be renewed.
// A test may advance such a clock by a long time at once. All holds are then renewed as if they had been renewed in
// time.
func (m *Store) Renew(l *Limits, k string, n int64, handles []algorithm.Handle) []algorithm.Handle {
	renewed := slices.Clone(handles)
	s, k, now := m.lock(k)
	defer s.Unlock()
	e := s.find(k, l, now)
	for i, limit := range l.limits {
		if limit.Slots {
			renewed[i] = algorithm.Handle{}
		}
		if e == nil || limit.Delays {
			continue
		}
		if m.clock == nil {
			limit.Expire(&e.states[i], now)
		}
		if handle, ok := limit.Renew(&e.states[i], now, n, handles[i]); ok {
			renewed[i] = handle
		}
	}
	return renewed
}

// Reset forgets what was charged to k by the limits of l. Held units stay held.
func (m *Store) Reset(l *Limits, k string) {
	s, k, now := m.lock(k)
	defer s.Unlock()
	e := s.find(k, l, now)
	if e == nil {
		return
	}
	held := false
	for i, limit := range l.limits {
		held = limit.Reset(&e.states[i], now) || held
	}
	if !held {
		e.states = make([]algorithm.State, len(e.states))
		if len(e.kept) == 0 {
			s.remove(e)
		}
	}
}
