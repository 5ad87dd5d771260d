// Package model is an exact reference for the rate-limit algorithms. It follows their definitions literally, in rational
// numbers and without rounding, so that property tests can compare the real implementation with it. It shares no code with
// that implementation, and prefers obvious code to fast code.
//
// A Model is not safe for concurrent use. It keeps its state forever, including the expiries of past holds. Redis deletes a
// key that is not needed any more. So a test in which keys expire must not turn the clock back to before their expiry.
package model

import (
	"fmt"
	"math/big"
	"slices"
)

// Model is one key with one or more limits.
type Model struct {
	limits []Limit
	states []*state          // one per limit, in the same order
	stored []map[form]*state // for each limit, the states of all forms that it has had; see Change
	bans   bans
}

// A state is the stored state of one limit: its charged units and its held units.
type state struct {
	store
	holds
	resets int // how often the charged units have been forgotten
}

// Outcome is the decision on one call.
type Outcome struct {
	Allowed bool
	Banned  bool      // the key is banned, so the state of the limits is hidden
	Each    []Verdict // one per limit, in the order given to New

	receipt *receipt // nil when nothing was charged or reserved
}

// Expiry returns when the held units of limit i expire. It panics if none are held.
func (o Outcome) Expiry(i int) int64 {
	if o.receipt == nil || !o.receipt.tickets[i].held {
		panic("model: nothing is held")
	}
	return o.receipt.tickets[i].expiry
}

// Verdict is the decision of one limit. Held units count as if they were charged at the instant of the decision. None of
// the Rats is nil.
type Verdict struct {
	Admits     bool     // whether this limit alone admits
	At         int64    // t, the instant of the decision, µs
	Limit      int64    // its capacity
	Remaining  int64    // whole units left, after the charge or the hold if there was one
	Never      bool     // n is above capacity; RetryAfter is then 0 and means nothing
	RetryAfter *big.Rat // µs from At; 0 if Admits
	ResetAfter *big.Rat // µs from At, after the charge or the hold if there was one
	Delay      *big.Rat // µs; 0 except for a LeakyBucket whose call was allowed
}

// receipt has the charged or reserved units, with one ticket per limit. Copies of an Outcome share it, so that only one of
// them can be refunded or settled.
type receipt struct {
	model    *Model
	limits   []Limit  // the limits at that time, which held units keep
	states   []*state // the states of these limits
	reserved bool
	tickets  []ticket
	spent    bool
}

// ticket identifies one charge to one store, or one hold. The fields that matter depend on the store.
type ticket struct {
	units  int64
	resets int      // how often the state had been reset
	start  int64    // windows: the start of the charged window
	charge int64    // log: the number of the charge
	ends   *big.Rat // buckets: when the debt ends, after the charge
	epoch  int      // queues: counts how often the queue was empty
	place  place    // queues: when the charge is served

	held   bool
	id     int // the id of the holds
	expiry int64
}

// store has the charged units of one limit. All algorithms admit n if the used units and n do not exceed the capacity. They
// differ in which units count as used, and for how long.
type store interface {
	clone() store
	clock(l Limit, now int64) int64       // returns t, the instant of a decision
	used(l Limit, t int64) *big.Rat       // returns the units that count at t
	retry(l Limit, t, n int64) *big.Rat   // returns the time until n fits, which does not fit at t
	reset(l Limit, t int64) *big.Rat      // returns the time until no unit counts any more
	charge(l Limit, t, n int64) ticket    // charges n > 0 units, whether they fit or not
	refund(l Limit, t int64, back ticket) // takes back the units of a charge that still count
}

// New returns the model of one key without charges. It panics on an invalid limit.
func New(limits ...Limit) *Model {
	if len(limits) == 0 {
		panic("model: no limits")
	}
	m := &Model{}
	for _, l := range limits {
		l.check()
		s := &state{store: newStore(l)}
		m.limits, m.states = append(m.limits, l), append(m.states, s)
		m.stored = append(m.stored, map[form]*state{l.form(): s})
	}
	return m
}

// Decide decides on a call of n units when the server's clock shows now, and charges every limit if all admit.
func (m *Model) Decide(now, n int64) Outcome { return m.decide(now, n, false) }

// Reserve decides as Decide does. Instead of charging n units, it holds them until [Limit.Expiry], in every limit except a
// LeakyBucket, which charges them.
func (m *Model) Reserve(now, n int64) Outcome { return m.decide(now, n, true) }

func (m *Model) decide(now, n int64, reserve bool) Outcome {
	if n < 0 {
		panic(fmt.Sprintf("model: cost %d is negative", n))
	}
	if now < m.bans.until {
		out := Outcome{}
		m.banned(now, &out)
		return out
	}
	expire(now, m.limits, m.states)
	out := m.evaluate(now, n)
	if from, bans := m.counts(now, n); bans && !out.Allowed {
		m.bans.begin(now, from)
		m.banned(now, &out)
	}
	if !out.Allowed || n == 0 && !reserve {
		return out
	}
	out.receipt = &receipt{model: m, limits: m.limits, states: slices.Clone(m.states), reserved: reserve}
	for i, l := range m.limits {
		s, v, t := m.states[i], &out.Each[i], ticket{}
		switch {
		case reserve && !l.queues():
			t = s.hold(l, now, n)
		case n > 0:
			t = s.charge(l, v.At, n)
		}
		t.resets = s.resets
		out.receipt.tickets = append(out.receipt.tickets, t)
		v.describe(l, s)
	}
	return out
}

// Peek decides as Decide(now, 1) would, but charges nothing: Remaining and ResetAfter are the values before that charge.
func (m *Model) Peek(now int64) (out Outcome) {
	if now < m.bans.until {
		m.banned(now, &out)
		return out
	}
	expire(now, m.limits, m.states)
	return m.evaluate(now, 1)
}

// Refund takes back the charge of o, as far as its units still count, or settles its reservation at 0. Only the first
// refund or settlement of an Outcome or its copies has an effect.
func (m *Model) Refund(now int64, o Outcome) {
	if o.receipt != nil && o.receipt.reserved {
		m.Settle(now, o, 0)
		return
	}
	r := m.take(o)
	if r == nil {
		return
	}
	expire(now, r.limits, r.states)
	for i, l := range r.limits {
		r.states[i].giveBack(l, now, r.tickets[i])
	}
}

// Settle ends the hold of o and charges its actual cost, whether that fits or not. Units that were charged when their hold
// expired are neither charged again nor given back. This depends only on the time, and not on the state that is still
// stored. Only the first settlement or refund of an Outcome or its copies has an effect.
func (m *Model) Settle(now int64, o Outcome, actual int64) {
	switch {
	case actual < 0:
		panic(fmt.Sprintf("model: a cost of %d is negative", actual))
	case o.receipt != nil && !o.receipt.reserved:
		panic("model: settles units that were not reserved")
	}
	r := m.take(o)
	if r == nil {
		return
	}
	expire(now, r.limits, r.states)
	for i, l := range r.limits {
		s, back := r.states[i], r.tickets[i]
		switch {
		case !l.queues():
			s.settle(l, now, back, actual)
		case actual == 0:
			s.giveBack(l, now, back)
		}
	}
}

// take returns the receipt of o, but only once. It returns nil if no units were charged or reserved.
func (m *Model) take(o Outcome) *receipt {
	r := o.receipt
	if r == nil || r.spent {
		return nil
	}
	if r.model != m {
		panic("model: the outcome belongs to another model")
	}
	r.spent = true
	return r
}

// Reset forgets the charged units and keeps the held ones. If none are held, it forgets the whole state.
func (m *Model) Reset(now int64) {
	expire(now, m.limits, m.states)
	for i, s := range m.states {
		if s.total() > 0 {
			s.store = newStore(m.limits[i])
			s.resets++
		} else {
			s.lose(m.limits[i])
		}
	}
}

// Whole reports whether no charged unit of limit i counts at now.
func (m *Model) Whole(i int, now int64) bool { return m.states[i].whole(m.limits[i], now) }

// WholeOf reports whether no charged unit counts at now in the limit i, in the form that it had when o's units were held.
func (o Outcome) WholeOf(i int, now int64) bool {
	return o.receipt.states[i].whole(o.receipt.limits[i], now)
}

func (s *state) whole(l Limit, now int64) bool {
	later := state{store: s.clone(), holds: s.holds}
	later.live = slices.Clone(s.live)
	later.expire(l, now)
	return later.reset(l, later.clock(l, now)).Sign() == 0
}

// Held returns how many units of limit i are held and not charged yet.
func (m *Model) Held(i int) int64 { return m.states[i].total() }

// Lose is an eviction: limit i loses its charged and held units, in all forms that it has had.
func (m *Model) Lose(i int) {
	for f, s := range m.stored[i] {
		s.lose(Limit{Algorithm: f.algorithm})
	}
}

func (s *state) lose(l Limit) {
	*s = state{store: newStore(l), holds: holds{id: s.id + 1}, resets: s.resets + 1}
}

// Clock returns the instant at which limit i would decide when the server's clock shows now. It is never before the newest
// stored instant.
func (m *Model) Clock(i int, now int64) int64 { return m.states[i].clock(m.limits[i], now) }

// ClockOf is Clock for l, a form that limit i has had, by the stored state of that form.
func (m *Model) ClockOf(i int, l Limit, now int64) int64 {
	return m.stored[i][l.form()].clock(l, now)
}

// Key identifies the stored state of l among all limits with its name.
func (l Limit) Key() any { return l.form() }

// Window returns the window of a FixedWindow that was opened last, unless it has been forgotten.
func (m *Model) Window(i int) (start, end int64, ok bool) {
	w, ok := m.states[i].store.(*fixedWindow)
	if !ok || !w.stored {
		return 0, 0, false
	}
	return w.start, w.start + m.limits[i].Period, true
}

// A form has the properties of a named limit that are part of its Redis key: limits of the same form share their stored
// state.
type form struct {
	algorithm  Algorithm
	aligned    bool
	zone, unit string
	period     int64
}

func (l Limit) form() form {
	switch {
	case l.queues():
		return form{algorithm: l.Algorithm}
	case l.bucket():
		return form{algorithm: TokenBucket} // and GCRA
	}
	return form{l.Algorithm, l.Aligned, l.Zone, l.Unit, l.Period}
}

// Change replaces each limit by another one of the same name, which uses only the stored state of its own form.
func (m *Model) Change(limits ...Limit) {
	if len(limits) != len(m.limits) {
		panic("model: Change with another number of limits")
	}
	for i, l := range limits {
		l.check()
		if m.stored[i][l.form()] == nil {
			m.stored[i][l.form()] = &state{store: newStore(l)}
		}
		m.states[i] = m.stored[i][l.form()]
	}
	m.limits = slices.Clone(limits)
}

// expire charges the units whose holds have expired. It must run before anything else is read, charged or refunded.
func expire(now int64, limits []Limit, states []*state) {
	for i, l := range limits {
		states[i].expire(l, now)
	}
}

func (s *state) expire(l Limit, now int64) {
	for _, due := range s.due(now) {
		if b, ok := s.store.(*bucket); ok {
			b.chargeExpired(l, s.fastest, due.expiry, due.units)
		} else {
			s.charge(l, s.clock(l, due.expiry), due.units)
		}
	}
}

// hold adds n units to the held ones.
func (s *state) hold(l Limit, now, n int64) ticket {
	t := ticket{units: n, held: true, id: s.id, expiry: l.Expiry(now)}
	if s.charged(t.expiry) { // the clock stepped back: the hold must not be mistaken for one that was charged
		t.expiry = *s.expired + 1
	}
	if n > 0 {
		if s.total() == 0 || s.fastest.rate().Cmp(l.rate()) < 0 {
			s.fastest = l
		}
		s.add(t.expiry, n)
	}
	return t
}

// settle charges the units that a hold with this actual cost still has to pay.
func (s *state) settle(l Limit, now int64, back ticket, actual int64) {
	due := actual
	switch {
	case back.units == 0: // nothing was held
	case back.id == s.id && !s.charged(back.expiry):
		s.take(back.expiry, back.units)
	case back.id == s.id || back.expiry <= now:
		due = max(0, actual-back.units)
	default: // the hold was lost while it would last, and nothing was charged for it
	}
	if due > 0 {
		s.charge(l, s.clock(l, now), due)
	}
}

// giveBack refunds a charge, unless it has been forgotten by a reset.
func (s *state) giveBack(l Limit, now int64, back ticket) {
	if back.units > 0 && back.resets == s.resets {
		s.refund(l, s.clock(l, now), back)
	}
}

// asCharged returns the state as if all held units were charged at t.
func (s *state) asCharged(l Limit, t int64) store {
	held := s.total()
	if held == 0 {
		return s.store
	}
	c := s.clone()
	c.charge(l, t, held)
	return c
}

// evaluate makes a decision without its charge. It changes no state.
func (m *Model) evaluate(now, n int64) Outcome {
	out := Outcome{Allowed: true}
	for i, l := range m.limits {
		v := judge(l, m.states[i], now, n)
		out.Allowed = out.Allowed && v.Admits
		out.Each = append(out.Each, v)
	}
	if !out.Allowed { // a denied request has no place in a queue
		for i := range out.Each {
			out.Each[i].Delay = new(big.Rat)
		}
	}
	return out
}

// heldRetry is the longest RetryAfter, in µs, of a request that is denied only because of held units.
const heldRetry = 1_000_000

// judge returns the verdict of one limit alone, by its algorithm, with all held units charged.
func judge(l Limit, s *state, now, n int64) Verdict {
	v := Verdict{At: s.clock(l, now), Limit: l.capacity(), RetryAfter: new(big.Rat), Delay: new(big.Rat)}
	v.describe(l, s)
	charged := s.asCharged(l, v.At)
	used := charged.used(l, v.At)
	switch {
	case n == 0: // always allowed, even if more is used than a lowered limit has
		v.Admits = true
	case n > v.Limit:
		v.Never = true
	case l.queues() && charged.(*queue).begins(l, v.At, n) != nil:
		v.Admits = true
		v.Delay.Sub(charged.(*queue).begins(l, v.At, n), whole(v.At))
	case new(big.Rat).Add(used, whole(n)).Cmp(whole(v.Limit)) > 0:
		v.RetryAfter = charged.retry(l, v.At, n)
		plain := new(big.Rat).Add(s.used(l, v.At), whole(n))
		if plain.Cmp(whole(v.Limit)) <= 0 && v.RetryAfter.Cmp(whole(heldRetry)) > 0 {
			v.RetryAfter = whole(heldRetry)
		}
	default:
		v.Admits = true
		if l.queues() {
			v.Delay = l.drain(used)
		}
	}
	return v
}

// describe sets the fields that do not depend on the cost of a call.
func (v *Verdict) describe(l Limit, s *state) {
	charged := s.asCharged(l, v.At)
	left := floor(new(big.Rat).Sub(whole(v.Limit), charged.used(l, v.At)))
	v.Remaining = max(0, left)
	if q, ok := charged.(*queue); ok {
		v.Remaining = max(v.Remaining, q.largest(l, v.At))
	}
	v.ResetAfter = charged.reset(l, v.At)
}
