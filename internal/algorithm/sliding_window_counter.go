package algorithm

import (
	"math/bits"
)

// SlidingWindowCounter counts the units in the current aligned window and in the window before. The units
// of the window before count only in part: they are weighted by the fraction of that window that lies within
// the last period.
var SlidingWindowCounter = &Kind{
	Name: "sliding_window_counter", Tag: "counter", New: newCounter,
	lua: readLua("sliding_window_counter", bansLua),
}

// A counter decides for [SlidingWindowCounter].
//
//	Observation  A the units in the current window, B the units in the window before, C the instant of the
//	             first charge in the current window, or of the decision if there was none
//	State        the same, for the window that was charged last and the window before that one
//	Handle       A the instant of the first charge in the window
type counter struct{ count, period int64 }

func newCounter(l Numbers) Evaluator { return &counter{count: l.Count, period: l.Period} }

// start returns the start of the window that contains an instant.
func (c *counter) start(at int64) int64 { return at - at%c.period }

// at returns the Observation's A, B and C for the window that contains now.
func (c *counter) at(s *State, now int64) (current, before, opened int64) {
	start, stored := c.start(now), c.start(s.C)
	switch {
	case start > stored+c.period:
		return 0, 0, now
	case start > stored:
		return 0, s.A, now
	}
	return s.A, s.B, s.C
}

func (c *counter) Evaluate(s *State, now, n int64) (Observation, bool) {
	o := Observation{At: now}
	o.A, o.B, o.C = c.at(s, now)
	return o, n <= c.count && c.fitsAt(o, n) <= now
}

func (c *counter) Charge(s *State, o Observation, n int64) { s.A, s.B, s.C = o.A+n, o.B, o.C }

// Refund takes units back only if the window that was charged is still the current one. For the window
// before, the instant of its first charge is not stored, so a charge before a reset could not be
// distinguished from a charge after it.
func (c *counter) Refund(s *State, now, n int64, window Handle) {
	if c.start(s.C) == c.start(now) && s.C == window.A {
		s.A = max(0, s.A-n)
	}
}

func (c *counter) ResetAt(s *State) int64 {
	switch {
	case s.A > 0:
		return c.start(s.C) + 2*c.period
	case s.B > 0:
		return c.start(s.C) + c.period
	}
	return 0
}

func (c *counter) Usage(s *State, now int64) float64 {
	current, before, _ := c.at(s, now)
	covered := float64(c.start(now)+c.period-now) / float64(c.period)
	return (float64(current) + float64(before)*covered) / float64(c.count)
}

func (c *counter) Constants() []any { return []any{c.count, c.period} }

func (c *counter) Cost(args []any, n int64) []any { return append(args, min(n, c.count+1)) }

func (c *counter) Valid(o Observation) bool {
	current, before, opened := o.A, o.B, o.C
	return current >= 0 && current <= 1<<31 && before >= 0 && before <= 1<<31 && opened >= 0 && c.start(opened) == c.start(o.At)
}

// ChargeHandle returns the instant of the first charge in the window. After a reset that instant is another
// one, so Refund does not take back from a window that was opened after the reset.
func (c *counter) ChargeHandle(o Observation, _ int64) Handle { return Handle{A: o.C} }

func (c *counter) WithHeld(o Observation, _, held int64) Observation {
	o.A += held
	return o
}

// DeniedFor need not treat the held units apart: o does not count them, and fitsAt uses only what o counts.
func (c *counter) DeniedFor(o Observation, n, _ int64) int64 {
	return c.Outcome(o, n, false, false).RetryAfter
}

// Adopt does nothing: the windows with one key are the same for all limits.
func (c *counter) Adopt(*State, Evaluator, int64) {}

// MaxCharge keeps the units of a window within maxUnits, because a script treats a stored value with more units
// as foreign.
func (c *counter) MaxCharge(o Observation, n int64) int64 { return min(n, max(0, maxUnits-o.A)) }

func (c *counter) Capacity() (units, window int64) { return c.count, c.period }

func (c *counter) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	current, before := o.A, o.B
	var out Outcome
	switch {
	case n > c.count:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = c.fitsAt(o, n) - o.At
	}
	if charged {
		current += n
	}
	left := c.start(o.At) + c.period - o.At // until the end of the current window
	weight := divCeil(before, left, c.period)
	out.Remaining = min(max(0, c.count-current-weight), c.count)
	switch {
	case current > 0:
		out.ResetAfter = left + c.period
	case before > 0:
		out.ResetAfter = left
	}
	return out
}

// fitsAt returns the first instant from o.At on at which n units fit if nothing else is charged. n must be
// at most the limit.
func (c *counter) fitsAt(o Observation, n int64) int64 {
	current, before, start := o.A, o.B, c.start(o.At)
	if free := c.count - current - n; free >= 0 {
		return max(o.At, start+c.fadedAfter(before, free))
	}
	return start + c.period + c.fadedAfter(current, c.count-n)
}

// fadedAfter returns how long after the start of a window the units of the window before count as at most
// free units.
func (c *counter) fadedAfter(before, free int64) int64 {
	if before <= free {
		return 0
	}
	hi, lo := bits.Mul64(uint64(free), uint64(c.period))
	covered, _ := bits.Div64(hi, lo, uint64(before)) // less than the period, as free is less than before
	return c.period - int64(covered)
}

// divCeil returns a*b/c, rounded up. b must be at most c.
func divCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(q)
}
