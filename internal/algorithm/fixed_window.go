package algorithm

var fixedWindowLua = readLua("fixed_window", bansLua)

// FixedWindow counts the units in windows. A window begins with the first charge after the previous window
// has ended, or after all units of the previous window were refunded or reset. Aligned windows begin at
// multiples of the period since the Unix epoch instead.
var FixedWindow = &Kind{
	Name: "fixed_window", Tag: "fixed", Aligns: true, New: newFixedWindow,
	lua: fixedWindowLua,
}

// A fixedWindow decides for [FixedWindow].
//
//	Observation  A the used units. B the instant of the window's first charge, or of the decision if there
//	             was none. C how long after B the window ends
//	State        A the used units. B the instant of the window's first charge. C the end of the window
//	Handle       A the instant of the window's first charge
type fixedWindow struct {
	count, period int64
	aligned       bool
}

func newFixedWindow(l Numbers) Evaluator {
	return &fixedWindow{count: l.Count, period: l.Period, aligned: l.Aligned}
}

func (w *fixedWindow) Evaluate(s *State, now, n int64) (Observation, bool) {
	used, opened, end := s.A, s.B, s.C
	if now >= end || used == 0 {
		used, opened, end = 0, now, now+w.length(now)
	}
	fits := used+min(n, w.count+1) <= w.count // min: the sum must not overflow
	return Observation{At: now, A: used, B: opened, C: end - opened}, fits
}

// length returns how long a window lasts after its first charge, which is made at the instant firstCharge.
func (w *fixedWindow) length(firstCharge int64) int64 {
	if w.aligned {
		return w.period - firstCharge%w.period
	}
	return w.period
}

func (w *fixedWindow) Charge(s *State, o Observation, n int64) {
	s.A, s.B, s.C = o.A+n, o.B, end(o)
}

// end returns the end of the window that o has observed.
func end(o Observation) int64 { return o.B + o.C }

func (w *fixedWindow) Refund(s *State, _, n int64, window Handle) {
	if s.B == window.A {
		s.A = max(0, s.A-n)
	}
}

func (w *fixedWindow) ResetAt(s *State) int64 {
	if s.A == 0 {
		return 0
	}
	return s.C
}

func (w *fixedWindow) Usage(s *State, now int64) float64 {
	if now >= s.C {
		return 0
	}
	return float64(s.A) / float64(w.count)
}

func (w *fixedWindow) Constants() []any {
	form := "first"
	if w.aligned {
		form = "aligned"
	}
	return []any{w.count, w.period, form}
}

// Cost appends n. A cost above the limit is sent as the limit plus 1: the answer is the same, and no sum in Lua
// becomes too large.
func (w *fixedWindow) Cost(args []any, n int64) []any { return append(args, min(n, w.count+1)) }

func (w *fixedWindow) Valid(o Observation) bool {
	used, opened, length := o.A, o.B, o.C
	return used >= 0 && used < maxInstant && opened >= 0 && opened < maxInstant && length > 0 && length <= w.period && end(o) > o.At
}

// ChargeHandle returns the instant of the window's first charge. After a reset, the first charge has a later
// instant (unless the clock still shows the same microsecond), so Refund takes nothing from the new window.
func (w *fixedWindow) ChargeHandle(o Observation, _ int64) Handle { return Handle{A: o.B} }

func (w *fixedWindow) WithHeld(o Observation, _, held int64) Observation {
	o.A += held
	return o
}

// DeniedFor returns 0 if n units would be admitted without the held units.
func (w *fixedWindow) DeniedFor(o Observation, n, _ int64) int64 {
	if o.A+n <= w.count {
		return 0
	}
	return w.Outcome(o, n, false, false).RetryAfter
}

// Adopt does nothing: all limits with the same Redis key have the same windows.
func (w *fixedWindow) Adopt(*State, Evaluator, int64) {}

// MaxCharge keeps the units of a window within maxUnits, because a script treats a stored value with more units
// as foreign.
func (w *fixedWindow) MaxCharge(o Observation, n int64) int64 { return min(n, max(0, maxUnits-o.A)) }

func (w *fixedWindow) Capacity() (units, window int64) { return w.count, w.period }

func (w *fixedWindow) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	used, remains := o.A, end(o)-o.At
	var out Outcome
	switch {
	case n > w.count:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = remains
	}
	if charged {
		used += n
	}
	out.Remaining = max(0, w.count-used)
	if used > 0 {
		out.ResetAfter = remains
	}
	return out
}
