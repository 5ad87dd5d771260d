// Package model is an exact reference for the six rate-limit algorithms. It
// follows the contract literally, in rational numbers and with nothing rounded,
// so that property tests can hold the real implementation against it. It shares
// no code with that implementation, and prefers the obvious to the fast.
//
// A Model is not safe for concurrent use, and keeps what it stored past
// Verdict.Expires, where Redis would have dropped the key: a test that lets keys
// expire has to account for that if it also turns the clock back past them.
package model

import (
	"fmt"
	"math/big"
)

// Model is one key under one or more limits.
type Model struct {
	limits []Limit
	stores []store // one per limit, in the same order
}

// Outcome is what a Model says to one call.
type Outcome struct {
	Allowed bool
	Each    []Verdict // one per limit, in the order given to New

	receipt *receipt // nil when nothing was charged
}

// Verdict is the answer of one limit. None of its Rats is nil except Expires.
type Verdict struct {
	Admits     bool     // what this limit alone says
	At         int64    // the instant t that the limit went by, µs
	Limit      int64    // its capacity
	Remaining  int64    // whole units left, after the charge if there was one
	Never      bool     // n is above capacity; RetryAfter is then 0 and means nothing
	RetryAfter *big.Rat // µs from At; 0 if Admits
	ResetAfter *big.Rat // µs from At, after the charge if there was one
	Delay      *big.Rat // µs; 0 unless a LeakyBucket in a call that was allowed
	Expires    *big.Rat // instant from which what is stored is not needed; nil: nothing is stored
}

// receipt is what a charge took, one ticket per limit. It is behind a pointer so
// that an Outcome and its copies can be refunded once between them.
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
	clock(now int64) int64                // the instant t to go by
	used(l Limit, t int64) *big.Rat       // units that count at t
	retry(l Limit, t, n int64) *big.Rat   // until n fits; asked only if it does not now but can
	reset(l Limit, t int64) *big.Rat      // until nothing counts any more
	charge(l Limit, t, n int64) ticket    // n > 0, and it fits
	refund(l Limit, t int64, back ticket) // as far as the charge still counts
	expires() *big.Rat                    // see Verdict.Expires
}

// New returns the model of one key, never used. It panics on a limit that makes no sense.
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
	out := m.ask(now, n)
	if !out.Allowed || n == 0 {
		return out
	}
	out.receipt = &receipt{model: m}
	for i, l := range m.limits {
		v, s := &out.Each[i], m.stores[i]
		out.receipt.tickets = append(out.receipt.tickets, s.charge(l, v.At, n))
		v.stand(l, s)
	}
	return out
}

// Peek answers as Decide(now, 1) would, but charges nothing; Remaining and
// ResetAfter are as they stand.
func (m *Model) Peek(now int64) Outcome { return m.ask(now, 1) }

// Refund gives back what o charged, as far as it still counts. Only the first
// refund of an Outcome or its copies does anything, even if it found nothing left to give.
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

// Change replaces the limits while the stored state stays. Only count, period and
// burst may differ; it panics otherwise.
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

// ask is a decision without its charge: it must leave every store untouched.
func (m *Model) ask(now, n int64) Outcome {
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

// judge is the answer of one limit on its own.
func judge(l Limit, s store, now, n int64) Verdict {
	v := Verdict{At: s.clock(now), Limit: l.capacity(), RetryAfter: new(big.Rat), Delay: new(big.Rat)}
	v.stand(l, s)
	used := s.used(l, v.At)
	switch {
	case n == 0: // always allowed, even over a limit that was lowered below what is used
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

// stand fills in what does not depend on the cost of a call.
func (v *Verdict) stand(l Limit, s store) {
	left := floor(new(big.Rat).Sub(whole(v.Limit), s.used(l, v.At)))
	v.Remaining = max(0, left)
	v.ResetAfter = s.reset(l, v.At)
	v.Expires = s.expires()
}
