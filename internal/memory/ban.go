package memory

import (
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// banLimits are the limits of every entry that stores a ban. Such an entry has one state, because all limits of a
// limiter share the ban of a key.
var banLimits = NewLimits([]algorithm.Limit{algorithm.BanLimit}, []string{""}, nil)

// banKey returns the key of the entry that stores the ban of the user's key k. It never equals a stateKey.
func banKey(k string) string { return "\x00b" + key.Local(k) }

// ban returns the ban of the user's key k, or the zero Ban if k is not banned at now.
func (s *shard) ban(k string, now int64) algorithm.Ban {
	if e := s.entries[banKey(k)]; e != nil {
		return e.states[0].Ban(now)
	}
	return algorithm.Ban{}
}

// banState returns the state that stores the ban of the user's key k. If there is none, banState adds an entry for
// it, which can evict any other entry.
func (s *shard) banState(k string, now int64) *algorithm.State {
	stored := banKey(k)
	e := s.entries[stored]
	if e == nil {
		e = s.add(stored, banLimits, now)
	}
	return &e.states[0]
}

// DecideHold is like Decide, but also for slots, reservations and bans. If all limits admit, it holds or charges c.N
// units of each limit. Slots are always held. The units of other limits are held if c.Op is OpReserve, except those
// of queues; otherwise they are charged. If c.Op is OpEvaluate, nothing is held or charged. DecideHold writes the
// handles of holds and charges to c.Handles, unless that is nil.
//
// If l has bans and k is banned already, DecideHold evaluates nothing and returns the ban. If c.Bans is set, a denial
// because of charged units begins a ban, which DecideHold returns.
func (m *Store) DecideHold(l *Limits, k string, c algorithm.Operation, answers []algorithm.Answer) (ban algorithm.Ban, admitted bool) {
	s, stored, now := m.lock(k)
	defer s.Unlock()
	if l.bans != nil {
		if ban = s.ban(k, now); ban.Until > 0 {
			return ban, false
		}
	}
	switch {
	case c.Op == algorithm.OpEvaluate:
		return ban, l.evaluate(s.find(stored, l, now), now, c.N, answers)
	case c.Handles == nil:
		c.Handles = make([]algorithm.Handle, len(answers))
	}
	if admitted = s.hold(l, stored, now, c, answers); admitted || !c.Bans {
		return ban, admitted
	}
	from, bans := int64(0), false
	e := s.find(stored, l, now)
	for i := range l.limits {
		if until, denies := l.limits[i].Bars(l.state(e, i, now), now, c.N); denies {
			from, bans = max(from, until), true
		}
	}
	if bans { // charged units suffice for the denial, without the held units
		ban = l.bans.Begin(s.banState(k, now), now, from)
	}
	return ban, false
}

// Block bans k by hand for lasts microseconds. If atLeast is set, a ban that ends later is not shortened. If lasts
// is 0, Block ends the ban and resets its level.
func (m *Store) Block(_ *Limits, k string, lasts int64, atLeast bool) {
	s, _, now := m.lock(k)
	defer s.Unlock()
	if lasts > 0 {
		s.banState(k, now).Block(now, lasts, atLeast)
	} else if e := s.entries[banKey(k)]; e != nil {
		s.remove(e)
	}
}
