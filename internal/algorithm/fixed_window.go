package algorithm

import _ "embed"

//go:embed lua/fixed_window.lua
var fixedWindowLua string

// FixedWindow counts the units in windows, which begin with the first admitted request, or at
// multiples of the period if they are aligned.
var FixedWindow = &Kind{
	Name: "fixed_window", Tag: "fixed", Aligns: true, New: newFixedWindow,
	lua: parseLua(fixedWindowLua),
}

// A fixedWindow decides for [FixedWindow].
//
//	Observation  A the used units, B when the window was opened, C its length, which
//	             after a change of the limit may not be the period
//	State        A the used units, B when the window was opened, C its end
type fixedWindow struct {
	limit, period  int64
	aligned, named bool
}

func newFixedWindow(l Numbers) Evaluator {
	return &fixedWindow{limit: l.Count, period: l.Period, aligned: l.Aligned, named: l.Named}
}

func (w *fixedWindow) Evaluate(s *State, now, n int64) (Observation, bool) {
	used, start, length := s.A, s.B, w.period
	switch {
	case now >= s.C || used == 0:
		used, start = 0, now
	case !w.aligned:
		length = s.C - s.B // that of the limit which opened the window
	}
	fits := used+min(n, w.limit+1) <= w.limit // min: the sum must not overflow
	return Observation{At: now, A: used, B: start, C: length}, fits
}

func (w *fixedWindow) Charge(s *State, o Observation, n int64) {
	s.A, s.B, s.C = o.A+n, o.B, w.end(o)
}

// end returns the end of the window. An aligned one begins at a multiple of its length.
func (w *fixedWindow) end(o Observation) int64 {
	if w.aligned {
		return o.B - o.B%o.C + o.C
	}
	return o.B + o.C
}

func (w *fixedWindow) Refund(s *State, _, n int64, window Handle) {
	if s.B == window.A && s.A > 0 {
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
	return float64(s.A) / float64(w.limit)
}

func (w *fixedWindow) Constants() []any {
	kind := ""
	switch {
	case w.aligned && w.named:
		kind = "aligned named"
	case w.aligned:
		kind = "aligned"
	case w.named:
		kind = "named"
	}
	return []any{w.limit, w.period, kind}
}

func (w *fixedWindow) Cost(args []any, n int64) []any { return append(args, min(n, w.limit+1)) }

func (w *fixedWindow) Valid(o Observation) bool {
	used, start, length := o.A, o.B, o.C
	return used >= 0 && used < maxInstant && start >= 0 && length > 0 && length < maxInstant && w.end(o) > o.At && start+length < maxInstant
}

// ChargeHandle is the instant at which the window was opened: after a reset it is another.
func (w *fixedWindow) ChargeHandle(o Observation, _ int64) Handle { return Handle{A: o.B} }

func (w *fixedWindow) WithHeld(o Observation, _, held int64) Observation {
	o.A += held
	return o
}

func (w *fixedWindow) DeniedFor(o Observation, n, _ int64) int64 {
	if o.A+n <= w.limit {
		return 0
	}
	return w.Outcome(o, n, false, false).RetryAfter
}

// Adopt keeps the window that is open, unless it is aligned to another period.
func (w *fixedWindow) Adopt(_ *State, before Evaluator, _ int64) bool {
	old, ok := before.(*fixedWindow)
	return ok && old.aligned == w.aligned && (!w.aligned || old.period == w.period)
}

func (w *fixedWindow) MaxCharge(o Observation, n int64) int64 { return min(n, max(0, maxUnits-o.A)) }

func (w *fixedWindow) Capacity() (units, window int64) { return w.limit, w.period }

func (w *fixedWindow) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	used, remains := o.A, w.end(o)-o.At
	var out Outcome
	switch {
	case n > w.limit:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = remains
	}
	if charged {
		used += n
	}
	out.Remaining = max(0, w.limit-used)
	if used > 0 {
		out.ResetAfter = remains
	}
	return out
}
