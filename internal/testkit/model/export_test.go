package model

import (
	"maps"
	"math/big"
	"slices"
)

// EveryLimit returns a limit of 5 per 100 µs of every algorithm that has a model.
func EveryLimit() []Limit {
	all := []Limit{{Algorithm: FixedWindow, Count: 5, Period: 100, Aligned: true}}
	for _, name := range slices.Sorted(maps.Keys(algorithms)) {
		l := Limit{Algorithm: name, Count: 5, Period: 100}
		if l.bucket() {
			l.Burst = 5
		}
		all = append(all, l)
	}
	return all
}

// Clone returns a copy of m that goes on by itself.
func (m *Model) Clone() *Model {
	c := &Model{limits: m.limits, states: slices.Clone(m.states)}
	for i := range c.states {
		c.states[i].store = c.states[i].clone()
		c.states[i].live = slices.Clone(c.states[i].live)
	}
	return c
}

// Of returns o as an Outcome of a clone, unspent.
func (o Outcome) Of(m *Model) Outcome {
	r := *o.receipt
	r.model, r.spent = m, false
	o.receipt = &r
	return o
}

// The rules of holds, each of them broken. All are of a Model with one limit.

// ForgetExpired drops holds at their expiry, instead of charging them.
func (m *Model) ForgetExpired(now int64) { m.states[0].due(now) }

// WithoutHolds does what a process does that knows nothing of holds.
func (m *Model) WithoutHolds(do func()) {
	s := &m.states[0]
	live := s.live
	s.live = nil
	do()
	s.live = live
}

// TakeAgain takes the units of o from its expiry's, as a second settlement at 0 would.
func (m *Model) TakeAgain(o Outcome) {
	s, t := &m.states[0], o.receipt.tickets[0]
	if !s.charged(t.expiry) {
		s.takeAtMost(func(h hold) bool { return h.expiry == t.expiry }, t.units)
	}
}

// TakeFromOthers takes the units of o from whatever is held.
func (m *Model) TakeFromOthers(o Outcome) {
	m.states[0].takeAtMost(func(hold) bool { return true }, o.receipt.tickets[0].units)
}

func (h *holds) takeAtMost(from func(hold) bool, units int64) {
	for i := range h.live {
		if from(h.live[i]) {
			n := min(units, h.live[i].units)
			h.live[i].units -= n
			units -= n
		}
	}
	h.live = slices.DeleteFunc(h.live, func(each hold) bool { return each.units == 0 })
}

// Late reports whether the hold of o has been charged at its expiry.
func (m *Model) Late(now int64, o Outcome) bool {
	m.expire(now, m.limits)
	return m.states[0].charged(o.receipt.tickets[0].expiry)
}

// ChargeLess takes units off what is charged, whichever charge they are of.
func (m *Model) ChargeLess(now, units int64) {
	l, s := m.limits[0], m.states[0].store
	t := s.clock(now)
	switch s := s.(type) {
	case *bucket:
		if debt := s.debtAt(t); debt.Cmp(whole(units)) <= 0 {
			*s = bucket{}
		} else {
			s.write(l, t, debt.Sub(debt, whole(units)))
		}
	case *fixedWindow:
		s.units = max(0, s.units-units)
	case *slidingCounter:
		if s.stored {
			*s = s.at(l, t)
			s.cur = max(0, s.cur-units)
		}
	case *slidingLog:
		for i := range s.runs {
			n := min(units, s.runs[i].units)
			s.runs[i].units -= n
			s.units -= n
			units -= n
		}
	}
}

// ChargeEarly charges what has expired at its expiry, though the clock had stepped back
// and the log has newer charges.
func (m *Model) ChargeEarly(now int64) {
	l, s := m.limits[0], &m.states[0]
	log, ok := s.store.(*slidingLog)
	if !ok {
		return
	}
	for _, due := range s.due(now) {
		units := min(due.units, l.Count)
		i := slices.IndexFunc(log.runs, func(r run) bool { return r.instant > due.expiry })
		if i < 0 {
			i = len(log.runs)
		}
		log.runs = slices.Insert(log.runs, i, run{instant: due.expiry, units: units})
		log.units += units
	}
}

// Clip keeps the debt of a bucket down to its capacity.
func (m *Model) Clip(now int64) {
	l := m.limits[0]
	if b, ok := m.states[0].store.(*bucket); ok && b.debtAt(now).Cmp(big.NewRat(l.Burst, 1)) > 0 {
		b.write(l, now, whole(l.Burst))
	}
}
