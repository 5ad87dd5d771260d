package algorithm

import (
	"cmp"
	"slices"
)

// A hold is units that are admitted but not charged yet. They are charged when the hold is settled,
// or else when it expires. What may be given back is held instead of charged: what others charge
// meanwhile could not be told apart from a charge.
//
// A decision on n units admits if the algorithm would admit n and all held units. So for any
// decision a unit spent before is either still held, or charged at an instant not before it was
// spent. That is why holds are as exact as charges.
//
// Expiries are rounded up to a sixth of the duration, so that a key has few.
//
// The units of a Kind with Slots are always held and never charged: an expired slot is free. In
// Redis each call then has a hold of its own; see lua/in_flight.lua.

// holds are those of one limit of one key. In Redis they are a record beside what the algorithm
// stores; lua/holds.lua does there what this file does in memory.
type holds struct {
	id   int64  // of these holds: after a loss of the state other holds have another
	list []hold // by expiry; those that were not charged
	rate int64  // of a bucket: the fastest rate at which they were reserved; see State.C of bucket
}

// A hold is all units that expire at the same instant, of any number of calls.
type hold struct{ expiry, n int64 }

// An expiry is rounded up to a multiple of the duration divided by expirySteps.
const expirySteps = 6

// MaxHold bounds the default duration of a hold, and MinHold any.
const (
	MaxHold = 60_000_000
	MinHold = 1_000_000
)

// DefaultHold returns for how long units of a limit are held by default: for the time in which the
// limit comes back whole, within bounds.
func DefaultHold(e Evaluator) int64 {
	_, window := e.Capacity()
	return max(MinHold, min(MaxHold, window))
}

// expiry returns the expiry of a hold of a duration that begins at now.
func expiry(now, duration int64) int64 {
	step := max(1, duration/expirySteps)
	end := now + duration
	return end + (step-end%step)%step
}

// MarkExpired returns the handles for an OpSettle that is sent to Redis when so many microseconds
// have passed by the clocks of this process since the reply came by which units are held: for a
// duration, or if that is 0 for the Hold of each limit. The expiry of what cannot last any more is
// negative. So a hold that was charged is not charged again, although Redis no longer knows of it
// and its clock has stepped back.
func MarkExpired(members []Member, handles []Handle, passed, duration int64) []Handle {
	var marked []Handle // a copy
	for i, m := range members {
		lasts := cmp.Or(duration, m.Hold)
		if m.Slots || m.Delays || passed <= lasts+lasts/expirySteps { // the expiry was rounded up
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

// held returns the units of all holds in s.
func (s *State) held() int64 {
	sum := int64(0)
	if s.holds != nil {
		for _, h := range s.holds.list {
			sum += h.n
		}
	}
	return sum
}

// Evaluate sets a to l's answer to n units at now, counting the units that are held.
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

// Charge charges n units that a admits. Of a queue a then has the largest place that is left.
func (m Member) Charge(s *State, a *Answer, n int64) {
	m.Evaluator.Charge(s, a.Observation, n)
	if q, ok := m.Evaluator.(*queue); ok {
		a.C = q.left(s, a.C)
	}
}

// Acquire is Charge, and returns the handle of the charge.
func (m Member) Acquire(s *State, a *Answer, n int64) Handle {
	m.Charge(s, a, n)
	if q, ok := m.Evaluator.(*queue); ok {
		return q.handle(a.Observation, n, s.C)
	}
	return m.ChargeHandle(a.Observation, n)
}

// Expire charges the holds that have expired, in order: each at its expiry, or at the newest
// instant in s if that is later.
func (m Member) Expire(s *State, now int64) { expire(m.Evaluator, s, now) }

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

// force charges n units at now, whether they fit or not.
func force(l Evaluator, s *State, now, n int64) {
	if n == 0 {
		return // what is stored may be of other limits
	}
	o, _ := l.Evaluate(s, now, 0)
	if n = l.MaxCharge(o, n); n > 0 {
		l.Charge(s, o, n)
	}
}

// Reserve holds n units of s, which Evaluate admitted at now, and returns their handle.
func (m Member) Reserve(s *State, now, n int64) Handle {
	if s.holds == nil {
		s.holds = &holds{id: NewHoldID()}
	}
	end := now + m.Hold
	if !m.Slots {
		end = expiry(now, m.Hold)
	}
	if b, ok := m.Evaluator.(*bucket); ok && (len(s.holds.list) == 0 || rate(b.rate) > rate(s.holds.rate)) {
		s.holds.rate = b.rate
	}
	s.add(end, n)
	return Handle{s.holds.id, end}
}

func (s *State) add(expiry, n int64) {
	i, found := s.find(expiry)
	if !found {
		s.holds.list = slices.Insert(s.holds.list, i, hold{expiry: expiry})
	}
	s.holds.list[i].n += n
}

func (s *State) find(expiry int64) (int, bool) {
	return slices.BinarySearchFunc(s.holds.list, expiry, func(h hold, expiry int64) int { return cmp.Compare(h.expiry, expiry) })
}

// take takes n units off the hold of a handle. It reports false if there is none: it has expired,
// or s was lost since.
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

// Settle ends the hold of a handle, of n units, and charges actual units at now in its place. If
// the hold has expired, it charges only what exceeds it: whether its charge is still stored does
// not matter. What was lost before it expired is charged in full until then.
func (m Member) Settle(s *State, now, n, actual int64, handle Handle) {
	m.Expire(s, now)
	if !s.take(handle, n) && handle.B <= now {
		actual = max(0, actual-n)
	}
	force(m.Evaluator, s, now, actual)
	if s.holds != nil && len(s.holds.list) == 0 {
		s.holds = nil
	}
}

// Renew moves n units from the hold of a handle to one that begins at now, and returns the new
// handle. It reports false if the hold has ended. What has expired is renewed, too, unless Expire
// was called before.
func (m Member) Renew(s *State, now, n int64, handle Handle) (Handle, bool) {
	if !s.take(handle, n) {
		return Handle{}, false
	}
	return m.Reserve(s, now, n), true
}

// Refund is Evaluator.Refund, after what has expired was charged.
func (m Member) Refund(s *State, now, n int64, charged Handle) {
	m.Expire(s, now)
	m.Evaluator.Refund(s, now, n, charged)
}

// Reset forgets what was charged, and keeps what is held. It reports whether anything is held.
func (m Member) Reset(s *State, now int64) bool {
	m.Expire(s, now)
	*s = State{holds: s.holds}
	if s.holds != nil && len(s.holds.list) == 0 {
		s.holds = nil
	}
	return s.holds != nil
}

// ResetAt returns the instant at which the full limit is available again, if what is held in s is
// charged when it expires.
func (m Member) ResetAt(s *State) int64 {
	at := m.Evaluator.ResetAt(s)
	if s.holds == nil || len(s.holds.list) == 0 {
		return at
	}
	at = max(at, s.holds.list[len(s.holds.list)-1].expiry)
	if _, ok := m.Evaluator.(*bucket); ok {
		return at + up(float64(s.held())/rate(s.holds.rate))
	}
	_, window := m.Capacity()
	return at + 2*window // at the latest
}

// Usage returns how much of the limit is used at now, from 0 to 1 or a little above.
func (m Member) Usage(s *State, now int64) float64 {
	used := m.Evaluator.Usage(s, now)
	if held := s.held(); held > 0 {
		capacity, _ := m.Capacity()
		used += float64(held) / float64(capacity)
	}
	return used
}
