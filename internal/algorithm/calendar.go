package algorithm

import (
	"github.com/redislimit/redislimit/internal/calendar"
)

// Calendar is a [FixedWindow] whose windows follow a calendar, such as the months in a time zone. In
// package core, both are called FixedWindow.
var Calendar = &Kind{
	Name: "calendar", Tag: "calendar", Moves: true, New: newCalendarWindow, Length: windowLength,
	lua: readLua("calendar", fixedWindowLua),
}

// A calendarWindow decides for [Calendar]. The process sends the windows around its own time to Redis,
// and the clock of Redis decides which of them is the current one.
//
//	Observation  A the used units. B the instant of the window's first charge, or of the decision if there
//	             was none. C how long after B the window ends; it is 0 or negative if the clock of Redis has
//	             stepped back since then by more than a window
//	State        A the used units. B the instant of the window's first charge. C the end of the window
//	Handle       A the instant of the window's first charge
type calendarWindow struct {
	fixedWindow

	calendar *calendar.Calendar
}

func newCalendarWindow(l Numbers) Evaluator {
	c := l.Calendar
	if c == nil {
		c = calendar.Even(l.Period)
	}
	return &calendarWindow{fixedWindow{count: l.Count, period: c.Longest()}, c}
}

func (w *calendarWindow) Evaluate(s *State, now, n int64) (Observation, bool) {
	around := w.calendar.Around(now)
	used, opened, end := s.A, s.B, around.Next
	switch {
	case opened >= end: // now is before the stored window: a hold that expired earlier is charged after other units
		end = s.C
	case opened < around.Start || used == 0:
		used, opened = 0, now
	}
	fits := used+min(n, w.count+1) <= w.count // min: the sum must not overflow
	return Observation{At: now, A: used, B: opened, C: end - opened}, fits
}

func (w *calendarWindow) Valid(o Observation) bool {
	used, opened, end := o.A, o.B, end(o)
	return used >= 0 && used < maxInstant && opened >= 0 && opened < maxInstant && end > o.At && end <= o.At+w.period
}

// Constants returns the constants with windows that are all zero. Only the number of constants counts here,
// because constantsAt returns the real ones.
func (w *calendarWindow) Constants() []any { return w.constants(&calendar.Windows{}) }

func (w *calendarWindow) constants(c *calendar.Windows) []any {
	return []any{w.count, w.period, c.Before, c.Start, c.Next, c.End}
}

// constantsAt implements Limit.ConstantsAt.
func (w *calendarWindow) constantsAt(now int64) (args []any, from, until int64) {
	c := w.calendar.Around(now)
	return w.constants(c), c.Start, c.Next
}

// windowLength is the Length of Calendar. It returns 0 if e does not decide for Calendar.
func windowLength(e Evaluator, o Observation) int64 {
	w, ok := e.(*calendarWindow)
	if !ok {
		return 0
	}
	return w.calendar.Length(end(o) - 1)
}
