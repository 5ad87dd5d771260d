package core

import "math/bits"

// secondChances bounds the time that a newcomer takes.
const secondChances = 16

// makeRoom evicts one key for a new one in s, which the caller has locked. What
// is as if never used goes first, in whatever shard; other shards that are busy
// are passed by, so that nobody waits for two locks. A flood of new keys comes
// here with every call: shards that have nothing to offer are not even locked.
func (m *memory) makeRoom(s *shard, now int64) bool {
	if s.evictRefilled(now) {
		return true
	}
	occupied := s.occupied.Load()
	for i := range m.shards {
		o := &m.shards[i]
		if o.soonest.Load() <= now && o.TryLock() {
			done := o.evictRefilled(now)
			o.Unlock()
			if done {
				return true
			}
		}
		occupied |= o.occupied.Load()
	}
	for ; occupied != 0; occupied &= occupied - 1 {
		if m.evictAt(bits.TrailingZeros32(occupied), s) {
			return true
		}
	}
	return false
}

// evictAt evicts a key that is used to the level, of s if there is one.
func (m *memory) evictAt(level int, s *shard) bool {
	if s.evictAt(level) {
		return true
	}
	for i := range m.shards {
		o := &m.shards[i]
		if o.occupied.Load()&(1<<level) == 0 || !o.TryLock() {
			continue
		}
		done := o.evictAt(level)
		o.Unlock()
		if done {
			return true
		}
	}
	return false
}

// evictRefilled evicts a key that was as if never used by the instant given, if
// there is one. Charges do not move entries in the heap, so the first may be due
// later than it says.
func (s *shard) evictRefilled(by int64) bool {
	for len(s.due) > 0 && s.due[0].due <= by {
		e := s.due[0]
		at := s.refilled(e)
		if at <= by {
			s.remove(e)
			return true
		}
		s.expect(e, at)
	}
	return false
}

// evictAt evicts a key that is used to the level, if there is one. Those that have
// changed since they came to their place go to the back first, a few at a time.
func (s *shard) evictAt(level int) bool {
	l := &s.levels[level]
	for range secondChances {
		if l.front == nil || !l.front.changed {
			break
		}
		e := l.front
		e.changed = false
		l.remove(e)
		l.pushBack(e)
	}
	if l.front == nil {
		return false
	}
	s.remove(l.front)
	return true
}
