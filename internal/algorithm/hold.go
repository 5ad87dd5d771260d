package algorithm

import (
	"cmp"
	"slices"
)

// A hold is a number of units that are admitted but not charged yet. A settlement ends the hold and charges
// the actual cost. If there is no settlement before the hold expires, all its units are charged then. Units
// that may be given back are held instead of charged, because most algorithms cannot distinguish charged units
// from what other callers charge later.
//
// A held unit can be spent at any instant until its hold ends. A decision on n units admits if the algorithm
// would admit n and all held units together. So at any decision, every unit that was spent before is either
// still held, and counts as if it was charged now, or was charged at the instant at which it was spent or
// later. A limit with holds is as exact as one with charges only if its algorithm never admits too much because
// of a charge that is made later than its units were spent. All algorithms whose units can be held are like
// that; "Holds and a new algorithm" in doc.go says when an algorithm is not.
//
// Expiries are rounded up to multiples of a sixth of the duration, so that a key has few different ones.
//
// The units of a Kind with Slots are always held and never charged: a slot that expires is free. In
// Redis, each call that takes slots has a member of its own in a sorted set; see lua/in_flight.lua.

// holds has all holds of one limit of one key in memory. In Redis, the holds are a record at the same key as
// the value of the algorithm, and lua/holds.lua does what this file does.
type holds struct {
	id   int64        // identifies these holds: if the state is lost, later holds of the key have another id
	list []holdRecord // the holds that have not ended, sorted by expiry
	rate int64        // for a bucket, the fastest rate at which units were reserved; see State.C of bucket
}

// A holdRecord has all held units that expire at the same instant. They may be from several calls.
type holdRecord struct{ expiry, n int64 }

// expirySteps says how expiries are rounded: up to a multiple of the duration divided by expirySteps.
const expirySteps = 6

// MaxHold and MinHold are the longest and the shortest default duration of a hold, in microseconds. A duration
// that is configured may be longer or shorter.
const (
	MaxHold = 60_000_000
	MinHold = 1_000_000
)

// DefaultHold returns how long units of a limit are held by default: the window of its Capacity, but at least
// MinHold and at most MaxHold.
func DefaultHold(e Evaluator) int64 {
	_, window := e.Capacity()
	return max(MinHold, min(MaxHold, window))
}

// expiry returns the expiry of a hold that begins at now and lasts for a duration.
func expiry(now, duration int64) int64 {
	step := max(1, duration/expirySteps)
	end := now + duration
	return end + (step-end%step)%step
}

// MarkExpired returns the handles for an OpSettle that is sent to Redis. passed is how many
// microseconds have passed, by the clocks of this process, since the reply by which the units are held. The
// hold lasts for the given duration, or for the HoldDuration of each limit if duration is 0. If the hold must
// have expired, its handle gets a negative expiry. Its units were then charged when it expired, and the
// negative expiry makes sure that they are not charged again, even if Redis has forgotten the hold and its
// clock has stepped back. The handles of slots and of places in a queue stay as they are, because no units of
// these are charged at an expiry. MarkExpired does not change handles: it returns a copy, or handles itself if
// none must be marked.
func MarkExpired(limits []Limit, handles []Handle, passed, duration int64) []Handle {
	var marked []Handle // a copy
	for i, limit := range limits {
		lasts := cmp.Or(duration, limit.HoldDuration)
		if limit.Slots || limit.Delays || passed <= lasts+lasts/expirySteps { // the expiry was rounded up by at most lasts/expirySteps
			continue
		}
		if marked == nil {
			marked = slices.Clone(handles)
		}
		marked[i].B = -handles[i].B
	}
	if marked == nil {
		return handles
	}
	return marked
}

// held returns the number of units in all holds of s.
func (s *State) held() int64 {
	sum := int64(0)
	if s.holds != nil {
		for _, h := range s.holds.list {
			sum += h.n
		}
	}
	return sum
}

// Evaluate sets a to the answer of l to n units at now. It first charges the holds that have expired.
func (a *Answer) Evaluate(l Evaluator, s *State, now, n int64) {
	if s.holds == nil {
		a.Observation, a.Admits = l.Evaluate(s, now, n)
		a.Held = 0
		return
	}
	expire(l, s, now)
	a.Held = s.held()
	a.Observation, a.Admits = l.Evaluate(s, now, min(n, maxUnits)+a.Held) // min: the sum must not overflow
}

// Charge charges n units, which a must admit. If the limit is a queue, Charge also updates the size of the
// largest free place in a.
func (m Limit) Charge(s *State, a *Answer, n int64) {
	m.Evaluator.Charge(s, a.Observation, n)
	if q, ok := m.Evaluator.(*queue); ok {
		a.C = q.left(s, a.C)
	}
}

// Acquire is like Charge, and returns the handle of the charge.
func (m Limit) Acquire(s *State, a *Answer, n int64) Handle {
	m.Charge(s, a, n)
	if q, ok := m.Evaluator.(*queue); ok {
		return q.handle(a.Observation, n, s.C)
	}
	return m.ChargeHandle(a.Observation, n)
}

// Expire ends the holds of s that have expired by now, in the order of their expiries. Each is charged at its
// expiry, unless it holds slots, which become free.
func (m Limit) Expire(s *State, now int64) { expire(m.Evaluator, s, now) }

// expire is Expire for an Evaluator.
func expire(l Evaluator, s *State, now int64) {
	h := s.holds
	if h == nil {
		return
	}
	for len(h.list) > 0 && h.list[0].expiry <= now {
		first := h.list[0]
		h.list = h.list[1:]
		if b, ok := l.(*bucket); ok {
			b.chargeExpired(s, first.expiry, first.n)
		} else {
			force(l, s, first.expiry, first.n)
		}
	}
	if len(h.list) == 0 {
		s.holds = nil
	}
}

// force charges n units to s at now, whether they fit or not, but not more than MaxCharge allows.
func force(l Evaluator, s *State, now, n int64) {
	if n == 0 {
		return // a charge of 0 units could still rewrite the state, which may have been stored with other numbers
	}
	o, _ := l.Evaluate(s, now, 0)
	if n = l.MaxCharge(o, n); n > 0 {
		l.Charge(s, o, n)
	}
}

// Reserve holds n units from now on, and returns their handle. Evaluate must have admitted them at now, unless
// they were held until now.
func (m Limit) Reserve(s *State, now, n int64) Handle {
	if s.holds == nil {
		s.holds = &holds{id: NewHoldID()}
	}
	end := now + m.HoldDuration
	if !m.Slots {
		end = expiry(now, m.HoldDuration)
	}
	if b, ok := m.Evaluator.(*bucket); ok && (len(s.holds.list) == 0 || rate(b.rate) > rate(s.holds.rate)) {
		s.holds.rate = b.rate
	}
	s.add(end, n)
	return Handle{s.holds.id, end}
}

// add adds n units to the hold that expires at expiry.
func (s *State) add(expiry, n int64) {
	i, found := s.find(expiry)
	if !found {
		s.holds.list = slices.Insert(s.holds.list, i, holdRecord{expiry: expiry})
	}
	s.holds.list[i].n += n
}

// find returns the index of the hold that expires at expiry, and true; or the index at which it would have to
// be inserted, and false. s.holds must not be nil.
func (s *State) find(expiry int64) (int, bool) {
	return slices.BinarySearchFunc(s.holds.list, expiry, func(h holdRecord, expiry int64) int { return cmp.Compare(h.expiry, expiry) })
}

// take removes n units from the hold that handle identifies. It reports false if there is no such hold,
// because it has expired, was settled before, or was lost with the state of the key.
func (s *State) take(handle Handle, n int64) bool {
	if s.holds == nil || s.holds.id != handle.A {
		return false
	}
	i, found := s.find(handle.B)
	if !found || s.holds.list[i].n < n {
		return false
	}
	if s.holds.list[i].n -= n; s.holds.list[i].n == 0 {
		s.holds.list = slices.Delete(s.holds.list, i, i+1)
	}
	return true
}

// Settle ends the hold of n units that handle identifies, and charges actual units at now instead. If the
// hold has expired, its n units were charged when it expired, so Settle charges only the units that actual
// has more than n, whether or not the charge of the n units is still stored. If the state of the key was
// lost before the hold expired, and now is before the expiry, Settle charges all actual units.
func (m Limit) Settle(s *State, now, n, actual int64, handle Handle) {
	m.Expire(s, now)
	if !s.take(handle, n) && handle.B <= now {
		actual = max(0, actual-n)
	}
	force(m.Evaluator, s, now, actual)
	if s.holds != nil && len(s.holds.list) == 0 {
		s.holds = nil
	}
}

// Renew moves n units from the hold that handle identifies to a hold that begins at now, and returns the
// new handle. It reports false if the hold has ended. A hold that has expired has not ended until Expire is
// called, so it can still be renewed.
func (m Limit) Renew(s *State, now, n int64, handle Handle) (Handle, bool) {
	if !s.take(handle, n) {
		return Handle{}, false
	}
	return m.Reserve(s, now, n), true
}

// Refund charges the holds that have expired and then calls Evaluator.Refund.
func (m Limit) Refund(s *State, now, n int64, charged Handle) {
	m.Expire(s, now)
	m.Evaluator.Refund(s, now, n, charged)
}

// Reset forgets all charges and keeps all holds. It reports whether anything is held.
func (m Limit) Reset(s *State, now int64) bool {
	m.Expire(s, now)
	*s = State{holds: s.holds}
	if s.holds != nil && len(s.holds.list) == 0 {
		s.holds = nil
	}
	return s.holds != nil
}

// ResetAt returns an instant at which the full limit is certainly available again, even if all holds in s
// are charged when they expire.
func (m Limit) ResetAt(s *State) int64 {
	at := m.Evaluator.ResetAt(s)
	if s.holds == nil || len(s.holds.list) == 0 {
		return at
	}
	at = max(at, s.holds.list[len(s.holds.list)-1].expiry)
	if _, ok := m.Evaluator.(*bucket); ok {
		return at + up(float64(s.held())/rate(s.holds.rate))
	}
	_, window := m.Capacity()
	return at + 2*window // a sliding window counter needs that long; other windows need less
}

// Usage returns how much of the limit is charged or held at now. As in Evaluator.Usage, 1 is the whole limit, and
// the result may be above 1.
func (m Limit) Usage(s *State, now int64) float64 {
	used := m.Evaluator.Usage(s, now)
	if held := s.held(); held > 0 {
		capacity, _ := m.Capacity()
		used += float64(held) / float64(capacity)
	}
	return used
}
