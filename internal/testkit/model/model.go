// Package model is an exact reference for the rate-limit algorithms. It follows their
// definitions literally, in rational numbers and without rounding, so that property
// tests can compare the real implementation with it. It shares no code with that
// implementation, and prefers what is obvious to what is fast.
//
// A Model is not safe for concurrent use. It keeps its state beyond Verdict.Expires,
// when Redis would have dropped the key: a test that lets keys expire must not turn the
// clock back past that.
package model

import (
	"fmt"
	"math/big"
)

// Model is one key with one or more limits.
type Model struct {
	limits []Limit
	stores []store // one per limit, in the same order
}

// Outcome is the decision on one call.
type Outcome struct {
	Allowed bool
	Each    []Verdict // one per limit, in the order given to New

	receipt *receipt // nil when nothing was charged
}

// Verdict is the answer of one limit. None of its Rats is nil except Expires.
type Verdict struct {
	Admits     bool     // whether this limit alone admits
	At         int64    // t, the instant of the decision, µs
	Limit      int64    // its capacity
	Remaining  int64    // whole units left, after the charge if there was one
	Never      bool     // n is above capacity; RetryAfter is then 0 and means nothing
	RetryAfter *big.Rat // µs from At; 0 if Admits
	ResetAfter *big.Rat // µs from At, after the charge if there was one
	Delay      *big.Rat // µs; 0 unless a LeakyBucket in a call that was allowed
	Expires    *big.Rat // instant from which the state is not needed; nil: there is none
}

// receipt is what was charged, one ticket per limit. Copies of an Outcome share it, so
// that only one of them can be refunded.
type receipt struct {
	model   *Model
	tickets []ticket
	spent   bool
}

// ticket identifies one charge to one store. Which fields count depends on the store.
type ticket struct {
	units         int64
	start, length int64 // windows: the one that was charged
	charge        int64 // log: the number of the charge
}

// store is the state of one limit. All six algorithms admit n when used + n is at
// most the capacity: they differ in what counts as used, and for how long.
type store interface {
	clock(now int64) int64                // t, the instant of a decision
	used(l Limit, t int64) *big.Rat       // units that count at t
	retry(l Limit, t, n int64) *big.Rat   // until n fits; n does not fit at t, but can
	reset(l Limit, t int64) *big.Rat      // until nothing counts any more
	charge(l Limit, t, n int64) ticket    // n > 0, and it fits
	refund(l Limit, t int64, back ticket) // as far as the charge still counts
	expires() *big.Rat                    // see Verdict.Expires
}

// New returns the model of one key without charges. It panics on an invalid limit.
func New(limits ...Limit) *Model {
	if len(limits) == 0 {
		panic("model: no limits")
	}
	m := &Model{}
	for _, l := range limits {
		l.check()
		m.limits = append(m.limits, l)
		m.stores = append(m.stores, newStore(l))
	}
	return m
}

// Decide answers a call of n units when the server's clock says now, and charges
// every limit if all admit.
func (m *Model) Decide(now, n int64) Outcome {
	if n < 0 {
		panic(fmt.Sprintf("model: cost %d is negative", n))
	}
	out := m.evaluate(now, n)
	if !out.Allowed || n == 0 {
		return out
	}
	out.receipt = &receipt{model: m}
	for i, l := range m.limits {
		v, s := &out.Each[i], m.stores[i]
		out.receipt.tickets = append(out.receipt.tickets, s.charge(l, v.At, n))
		v.describe(l, s)
	}
	return out
}

// Peek answers as Decide(now, 1) would, but charges nothing: Remaining and ResetAfter
// are as they are before that.
func (m *Model) Peek(now int64) Outcome { return m.evaluate(now, 1) }

// Refund takes back what was charged for o, as far as it still counts. Only the first
// refund of an Outcome or its copies does anything.
func (m *Model) Refund(now int64, o Outcome) {
	r := o.receipt
	if r == nil || r.spent {
		return
	}
	if r.model != m {
		panic("model: refund of another model's outcome")
	}
	r.spent = true
	for i, l := range m.limits {
		s := m.stores[i]
		s.refund(l, s.clock(now), r.tickets[i])
	}
}

// Change replaces the limits and keeps the state. It panics if more than count, period
// and burst differ.
func (m *Model) Change(limits ...Limit) {
	if len(limits) != len(m.limits) {
		panic("model: Change with another number of limits")
	}
	for i, l := range limits {
		l.check()
		if old := m.limits[i]; l.Algorithm != old.Algorithm || l.Aligned != old.Aligned {
			panic(fmt.Sprintf("model: Change of limit %d to another algorithm", i))
		}
	}
	m.limits = append([]Limit(nil), limits...)
}

// evaluate is a decision without its charge. It changes no store.
func (m *Model) evaluate(now, n int64) Outcome {
	out := Outcome{Allowed: true}
	for i, l := range m.limits {
		v := judge(l, m.stores[i], now, n)
		out.Allowed = out.Allowed && v.Admits
		out.Each = append(out.Each, v)
	}
	if !out.Allowed { // what is denied has no place in a queue
		for i := range out.Each {
			out.Each[i].Delay = new(big.Rat)
		}
	}
	return out
}

// judge is the answer of one limit alone.
func judge(l Limit, s store, now, n int64) Verdict {
	v := Verdict{At: s.clock(now), Limit: l.capacity(), RetryAfter: new(big.Rat), Delay: new(big.Rat)}
	v.describe(l, s)
	used := s.used(l, v.At)
	switch {
	case n == 0: // always allowed, even if more is used than a lowered limit has
		v.Admits = true
	case n > v.Limit:
		v.Never = true
	case new(big.Rat).Add(used, whole(n)).Cmp(whole(v.Limit)) > 0:
		v.RetryAfter = s.retry(l, v.At, n)
	default:
		v.Admits = true
		if algorithms[l.Algorithm].delays {
			v.Delay = l.drain(used)
		}
	}
	return v
}

// describe sets the fields that do not depend on the cost of a call.
func (v *Verdict) describe(l Limit, s store) {
	left := floor(new(big.Rat).Sub(whole(v.Limit), s.used(l, v.At)))
	v.Remaining = max(0, left)
	v.ResetAfter = s.reset(l, v.At)
	v.Expires = s.expires()
}
