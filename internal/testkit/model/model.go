// Package model is an exact reference for the rate-limit algorithms. It follows their definitions
// literally, in rational numbers and without rounding, so that property tests can compare the real
// implementation with it. There is one exception: after a change of a bucket's rate, the model rounds as the
// implementation does. The model shares no code with the implementation, and prefers obvious code to fast code.
//
// A Model is not safe for concurrent use. It keeps its state for ever, including which holds have expired. Redis
// drops a key that is not needed any more, and forgets that. So a test that lets keys expire must not then turn
// the clock back to an instant at which they were needed.
package model

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// Model is one key with one or more limits.
type Model struct {
	limits []Limit
	states []*state          // one for each limit, in the same order
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
	Banned  bool      // whether the key is banned; the states of the limits are then not shown
	Each    []Verdict // one for each limit, in the order given to New

	receipt *receipt // nil if nothing was charged or reserved
}

// Expiry returns when the units expire that o holds of limit i. It panics if o holds none.
func (o Outcome) Expiry(i int) int64 {
	if o.receipt == nil || !o.receipt.tickets[i].held {
		panic("model: nothing is held")
	}
	return o.receipt.tickets[i].expiry
}

// Verdict is the answer of one limit. Held units count as if they were charged at the instant of the
// decision. None of its Rats is nil.
type Verdict struct {
	Admits     bool     // whether this limit alone admits
	At         int64    // t, the instant of the decision, in µs
	Limit      int64    // the capacity
	Remaining  int64    // whole units left, after the charge or the hold if there was one
	Never      bool     // whether the cost is above the capacity; RetryAfter is then 0 and has no meaning
	RetryAfter *big.Rat // in µs, counted from At; 0 if Admits
	ResetAfter *big.Rat // in µs, counted from At, after the charge or the hold if there was one
	Delay      *big.Rat // in µs; 0 except for a LeakyBucket in a call that was allowed
}

// receipt has what a call has charged or reserved. Copies of an Outcome share it, so that only one of them can be
// refunded or settled.
type receipt struct {
	model    *Model
	limits   []Limit  // the limits at the time of the call, which apply to its charges and holds even after a Change
	states   []*state // the states of these limits
	reserved bool
	tickets  []ticket // one for each limit
	spent    bool     // whether it was refunded or settled
}

// ticket identifies one charge to one store, or one hold. It depends on the store which fields are used.
type ticket struct {
	units  int64
	resets int      // how often the state had been reset before
	start  int64    // windows: the start of the window that was charged; for a calendar, the instant of its first charge
	charge int64    // log: the number of the charge
	ends   *big.Rat // buckets: when the used units have drained, as of just after the charge
	epoch  int      // queues: the epoch in which the place was taken
	place  place    // queues: the place that was taken

	held   bool  // whether the units are held; then the two fields below are used
	id     int   // the id of the holds
	expiry int64 // when the hold expires
}

// store has the units that are charged to one limit. All algorithms admit n units if the used units and n are together at
// most the capacity. They differ in which units count as used, and for how long.
type store interface {
	clone() store
	clock(l Limit, now int64) int64       // returns t, the instant of a decision when the clock says now
	used(l Limit, t int64) *big.Rat       // returns the units that count as used at t
	retry(l Limit, t, n int64) *big.Rat   // returns the time from t until n units fit; they must not fit at t, but be at most the capacity
	reset(l Limit, t int64) *big.Rat      // returns the time from t until no unit counts as used
	charge(l Limit, t, n int64) ticket    // charges n units, whether they fit or not; n must be positive
	refund(l Limit, t int64, back ticket) // takes back a charge, as far as it still counts
}

// New returns the model of one key without charges. It panics if a limit is not valid.
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

// Decide decides on n units when the server's clock says now, and charges every limit if all admit.
func (m *Model) Decide(now, n int64) Outcome { return m.decide(now, n, false) }

// Reserve decides as Decide does. It holds the n units until [Limit.Expiry] instead of charging them. Only a
// LeakyBucket charges them.
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

// Peek decides on 1 unit, but charges nothing. Remaining and ResetAfter are those without a charge.
func (m *Model) Peek(now int64) (out Outcome) {
	if now < m.bans.until {
		m.banned(now, &out)
		return out
	}
	expire(now, m.limits, m.states)
	return m.evaluate(now, 1)
}

// Refund takes back the units that were charged for o, as far as they still count. If o reserved units, Refund settles them
// at 0. Only the first refund or settlement of an Outcome and its copies has an effect.
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

// Settle ends the hold of o and charges the actual cost, whether it fits or not. Units that were charged when their hold
// expired are neither charged again nor given back, even if that charge is not stored any more. Only the first settlement
// or refund of an Outcome and its copies has an effect.
func (m *Model) Settle(now int64, o Outcome, actual int64) {
	switch {
	case actual < 0:
		panic(fmt.Sprintf("model: a cost of %d is negative", actual))
	case o.receipt != nil && !o.receipt.reserved:
		panic("model: settles what was not reserved")
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

// take returns the receipt of o. It returns nil if nothing was charged or reserved, or if take was called for the receipt
// before.
func (m *Model) take(o Outcome) *receipt {
	r := o.receipt
	if r == nil || r.spent {
		return nil
	}
	if r.model != m {
		panic("model: another model's outcome")
	}
	r.spent = true
	return r
}

// Reset forgets the charged units of all limits, and keeps the held units. If a limit has no held units, Reset forgets its
// whole state.
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

// Whole reports whether the full limit i is available at now, apart from its held units that have not expired.
func (m *Model) Whole(i int, now int64) bool { return m.states[i].whole(m.limits[i], now) }

// WholeOf is Whole for limit i as it was at the call of o, in the form that it had then.
func (o Outcome) WholeOf(i int, now int64) bool {
	return o.receipt.states[i].whole(o.receipt.limits[i], now)
}

func (s *state) whole(l Limit, now int64) bool {
	later := state{store: s.clone(), holds: s.holds}
	later.live = slices.Clone(s.live)
	later.expire(l, now)
	return later.reset(l, later.clock(l, now)).Sign() == 0
}

// Held returns how many units of limit i are held.
func (m *Model) Held(i int) int64 { return m.states[i].total() }

// Lose makes limit i lose its charged and its held units, in all forms that it has had. An eviction does that.
func (m *Model) Lose(i int) {
	for f, s := range m.stored[i] {
		s.lose(Limit{Algorithm: f.algorithm})
	}
}

func (s *state) lose(l Limit) {
	*s = state{store: newStore(l), holds: holds{id: s.id + 1}, resets: s.resets + 1}
}

// Clock returns the instant at which limit i would decide when the server's clock says now. If the clock has stepped
// back, that may be a stored instant instead of now.
func (m *Model) Clock(i int, now int64) int64 { return m.states[i].clock(m.limits[i], now) }

// ClockOf is Clock for limit i in the form of l, which it must have had.
func (m *Model) ClockOf(i int, l Limit, now int64) int64 {
	return m.stored[i][l.form()].clock(l, now)
}

// Key identifies the Redis key of l among the keys of all limits that have the same name.
func (l Limit) Key() any { return l.form() }

// An opener is a store whose windows begin with a charge. The store of each algorithm that is judged by spends.Windows
// must be one.
type opener interface {
	// window returns the last window. ok is false if no window is stored.
	window(l Limit) (start, end int64, ok bool)
}

// Window returns the last window of limit i. ok is false if the windows of the limit do not begin with a charge, or if no
// window is stored.
func (m *Model) Window(i int) (start, end int64, ok bool) {
	w, ok := m.states[i].store.(opener)
	switch {
	case ok:
		return w.window(m.limits[i])
	case m.limits[i].Spends() == spends.Windows:
		panic(fmt.Sprintf("model: %s is judged by its windows: its store needs a method window, as in fixed.go", m.limits[i].Algorithm))
	}
	return 0, 0, false
}

// A form has what the Redis key of a named limit says about the limit. Limits of one form share their stored state.
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
		return form{algorithm: TokenBucket} // TokenBucket and GCRA have the same form
	}
	return form{l.Algorithm, l.Aligned, l.Zone, l.Unit, l.Period}
}

// Change replaces each limit by another one of the same name. The new limit gets the state that is stored for its form,
// if there is one.
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

// expire charges the holds that have expired. It must be called before anything else is read, charged or refunded.
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

// hold adds n units to the held units.
func (s *state) hold(l Limit, now, n int64) ticket {
	t := ticket{units: n, held: true, id: s.id, expiry: l.Expiry(now)}
	if s.charged(t.expiry) { // the clock has stepped back: this hold must differ from the holds that were charged
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

// settle ends a hold whose actual cost was actual units, and charges what is left to charge.
func (s *state) settle(l Limit, now int64, back ticket, actual int64) {
	due := actual
	switch {
	case back.units == 0: // nothing was held
	case back.id == s.id && !s.charged(back.expiry):
		s.take(back.expiry, back.units)
	case back.id == s.id || back.expiry <= now:
		due = max(0, actual-back.units)
	default: // the hold was lost before its expiry, so nothing was charged for it
	}
	if due > 0 {
		s.charge(l, s.clock(l, now), due)
	}
}

// giveBack refunds a charge, unless a reset has forgotten it.
func (s *state) giveBack(l Limit, now int64, back ticket) {
	if back.units > 0 && back.resets == s.resets {
		s.refund(l, s.clock(l, now), back)
	}
}

// asCharged returns the store as it would be if all held units were charged at t.
func (s *state) asCharged(l Limit, t int64) store {
	held := s.total()
	if held == 0 {
		return s.store
	}
	c := s.clone()
	c.charge(l, t, held)
	return c
}

// evaluate decides on n units, and charges nothing.
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

// judge returns the answer of one limit alone: the answer of its algorithm if all held units were charged.
func judge(l Limit, s *state, now, n int64) Verdict {
	v := Verdict{At: s.clock(l, now), Limit: l.capacity(), RetryAfter: new(big.Rat), Delay: new(big.Rat)}
	v.describe(l, s)
	charged := s.asCharged(l, v.At)
	used := charged.used(l, v.At)
	switch {
	case n == 0: // always admitted, even if more units are used than the capacity
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

// describe sets Remaining and ResetAfter, which do not depend on the cost of a call.
func (v *Verdict) describe(l Limit, s *state) {
	charged := s.asCharged(l, v.At)
	left := floor(new(big.Rat).Sub(whole(v.Limit), charged.used(l, v.At)))
	v.Remaining = max(0, left)
	if q, ok := charged.(*queue); ok {
		v.Remaining = max(v.Remaining, q.largest(l, v.At))
	}
	v.ResetAfter = charged.reset(l, v.At)
}
