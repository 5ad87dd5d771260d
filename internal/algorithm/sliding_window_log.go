package algorithm

import (
	"fmt"
	"math/bits"
	"slices"
)

// SlidingWindowLog remembers when each charge was made, and of how many units.
var SlidingWindowLog = &Kind{
	Name: "sliding_window_log", Tag: "log", Validate: validateLog, New: newLog,
	lua:  readLua("sliding_window_log", bansLua),
	work: workOfLog,
}

// maxLog is the largest count of a sliding window log. It is bounded because the memory of a log grows
// with the charges in its window. In Redis, the number of units of one charge has at most 17 bits.
const maxLog = 100_000

// workOfLog is the Work of a decision on n units. It grows with the number of entries that the Lua file
// stores for the charge: one for the first unit, and one for each bit that is set in n-1.
func workOfLog(n int64) int64 {
	if n <= 1 {
		return 4
	}
	return 16 + 2*int64(bits.OnesCount64(uint64(n-1)))
}

func validateLog(l Numbers) error {
	if l.Count > maxLog {
		return fmt.Errorf("the count is %d, a sliding window log allows at most %d: use SlidingWindowCounter", l.Count, maxLog)
	}
	return nil
}

// A log decides for [SlidingWindowLog]. Each charge has a number of its own: the instant of the
// charge, or the number of the newest charge plus 1 if that is larger.
//
//	Observation  A the units in the window. If the log admits, B is the number that the charge gets. If it
//	             denies, B is the instant at which it will admit, but has no meaning if the units are more
//	             than the limit, because it then never admits. C the instant of the newest charge, or 0
//	State        A the sum of the units in log
//	Handle       A the number of the charge
type log struct{ count, period int64 }

func newLog(l Numbers) Evaluator { return &log{count: l.Count, period: l.Period} }

// A logEntry is one charge of a log, or one free place of a queue.
type logEntry struct {
	at     int64 // in a log, the instant of the charge; in a queue, the number of the place's first unit
	number int64 // in a log, the number of the charge; in a queue, the number of the first unit after the place
	n      int64 // in a log, the units of the charge; not used in a queue
}

// logEntries are the charges of a log, the oldest first, or the free places of a queue, the first one
// first.
type logEntries []logEntry

// entries returns the charges of a log, or the free places of a queue.
func entries(s *State) logEntries {
	if s.log == nil {
		return nil
	}
	return *s.log
}

func (l *log) Evaluate(s *State, now, n int64) (Observation, bool) {
	log := entries(s)
	for len(log) > 0 && log[0].at <= now-l.period {
		s.A -= log[0].n
		log = log[1:]
		*s.log = log
	}
	o := Observation{At: now, A: s.A, B: now}
	admits := n <= l.count && s.A+n <= l.count
	if len(log) == 0 {
		return o, admits
	}
	newest := log[len(log)-1]
	o.B, o.C = max(now, newest.number+1), newest.at
	if !admits && n <= l.count {
		o.B = l.admittedAt(log, s.A+n-l.count) + l.period
	}
	return o, admits
}

// admittedAt returns the instant of the charge to which the n-th oldest unit belongs.
func (l *log) admittedAt(log logEntries, n int64) int64 {
	for _, e := range log {
		if n -= e.n; n <= 0 {
			return e.at
		}
	}
	return 0 // not reached: the log has at least n units
}

func (l *log) Charge(s *State, o Observation, n int64) {
	s.A += n
	if s.log == nil {
		s.log = new(logEntries)
	}
	number := o.At
	if last := len(*s.log) - 1; last >= 0 {
		number = max(number, (*s.log)[last].number+1)
	}
	*s.log = append(*s.log, logEntry{o.At, number, n})
}

func (l *log) Refund(s *State, _, n int64, id Handle) {
	for i, e := range entries(s) {
		if e.number == id.A && e.n == n {
			s.A -= n
			*s.log = slices.Delete(*s.log, i, i+1)
			return
		}
	}
}

func (l *log) ResetAt(s *State) int64 {
	log := entries(s)
	if len(log) == 0 {
		return 0
	}
	return log[len(log)-1].at + l.period
}

func (l *log) Usage(s *State, now int64) float64 {
	if l.ResetAt(s) <= now {
		return 0
	}
	return float64(s.A) / float64(l.count)
}

func (l *log) Constants() []any { return []any{l.count, l.period} }

func (l *log) Cost(args []any, n int64) []any { return append(args, min(n, l.count+1)) }

func (l *log) Valid(o Observation) bool {
	return o.A >= 0 && o.A < maxInstant && o.B >= 0 && o.B < maxInstant && o.C >= 0 && o.C <= o.At
}

// ChargeHandle returns the number of the charge.
func (l *log) ChargeHandle(o Observation, _ int64) Handle { return Handle{A: o.B} }

// WithHeld adds the held units to the units in the window. Each held unit counts as charged at o.At.
//
// If the log denies, o.B need not change as long as n and the held units are together within the limit:
// o was observed by a decision on both, so o.B is the instant at which enough charged units have left the
// window. If they are above the limit, some held units must leave the window, too, which takes a period.
func (l *log) WithHeld(o Observation, n, held int64) Observation {
	if o.A+held+n > l.count && held+n > l.count {
		o.B = o.At + l.period
	}
	o.A += held
	if held > 0 {
		o.C = o.At
	}
	return o
}

// DeniedFor returns 0 if units are held: o.B is when the log will admit n units in addition to the held ones. The
// held units may be given back at any time, and the log may then admit n units sooner.
func (l *log) DeniedFor(o Observation, n, held int64) int64 {
	if held > 0 {
		return 0
	}
	return l.Outcome(o, n, false, false).RetryAfter
}

// Adopt does nothing: logs with the same key have the same period, and differ only in their limits.
func (l *log) Adopt(*State, Evaluator, int64) {}

// MaxCharge is bounded by maxLog instead of the limit of l, because the units may have been held by a log
// with the same key and a larger limit.
func (l *log) MaxCharge(_ Observation, n int64) int64 { return min(n, maxLog) }

func (l *log) Capacity() (units, window int64) { return l.count, l.period }

func (l *log) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	var out Outcome
	switch {
	case n > l.count:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = max(0, o.B-o.At)
	}
	used, newest := o.A, o.C
	if charged {
		used, newest = used+n, o.At
	}
	out.Remaining = max(0, l.count-used)
	if used > 0 {
		out.ResetAfter = max(0, newest+l.period-o.At)
	}
	return out
}
