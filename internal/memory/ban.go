package memory

import (
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// banLimits are those of the entry that has the ban of a key: for all limits of a limiter the same.
var banLimits = NewLimits([]algorithm.Member{algorithm.BanMember}, []string{""}, nil)

// banKey returns the key of that entry. No other entry has it: see stateKey.
func banKey(k string) string { return "\x00b" + key.Local(k) }

// ban returns the ban of the user's key k that lasts at now.
func (s *shard) ban(k string, now int64) algorithm.Ban {
	if e := s.entries[banKey(k)]; e != nil {
		return e.states[0].Ban(now)
	}
	return algorithm.Ban{}
}

// banState returns the state of a ban of k, which is about to be written.
func (s *shard) banState(k string, now int64) *algorithm.State {
	stored := banKey(k)
	e := s.entries[stored]
	if e == nil {
		e = s.add(stored, banLimits, now)
	}
	return &e.states[0]
}

// Hold decides as Decide does, but holds n units instead of charging them: those of every limit if
// c is OpReserve, else only slots. It writes the handles of what it held or charged to those of c,
// if they are not nil. For limits with bans it returns that of k too, and evaluates nothing where
// that was there before.
func (m *Store) Hold(l *Limits, k string, c algorithm.HoldCall, answers []algorithm.Answer) (ban algorithm.Ban, admitted bool) {
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
	for i := range l.members {
		if until, denies := l.members[i].Bars(l.state(e, i, now), now, c.N); denies {
			from, bans = max(from, until), true
		}
	}
	if bans { // it is not only what is held that denies
		ban = l.bans.Begin(s.banState(k, now), now, from)
	}
	return ban, false
}

// Block bans k by hand, for so many microseconds, or with atLeast until its ban ends if that is
// later; 0 ends its ban, and the levels.
func (m *Store) Block(_ *Limits, k string, lasts int64, atLeast bool) {
	s, _, now := m.lock(k)
	defer s.Unlock()
	if lasts > 0 {
		s.banState(k, now).Block(now, lasts, atLeast)
	} else if e := s.entries[banKey(k)]; e != nil {
		s.remove(e)
	}
}
