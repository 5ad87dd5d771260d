package algorithm

import (
	"github.com/redislimit/redislimit/internal/calendar"
)

// Calendar is a [FixedWindow] whose windows follow a calendar, such as the months in a time zone. Users
// know both by one name.
var Calendar = &Kind{
	Name: "calendar", Tag: "calendar", Moves: true, New: newCalendarWindow, Length: windowLength,
	lua: readLua("calendar", fixedWindowLua),
}

// A calendarWindow decides for [Calendar]. The process sends the windows around its own time to Redis,
// and the clock of Redis decides which of them counts.
//
//	Observation  A the used units, B when the window was charged first, C how long after that it ends,
//	             which is negative where Redis's clock has stepped back since by more than a window
//	State        A the used units, B when the window was charged first, C its end
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
	case opened >= end: // held units are charged after others
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

// Constants returns arbitrary windows, because the windows of a calendar depend on the time.
func (w *calendarWindow) Constants() []any { return w.constants(&calendar.Windows{}) }

func (w *calendarWindow) constants(c *calendar.Windows) []any {
	return []any{w.count, w.period, c.Before, c.Start, c.Next, c.End}
}

func (w *calendarWindow) constantsAt(now int64) (args []any, from, until int64) {
	c := w.calendar.Around(now)
	return w.constants(c), c.Start, c.Next
}

func windowLength(e Evaluator, o Observation) int64 {
	w, ok := e.(*calendarWindow)
	if !ok {
		return 0
	}
	return w.calendar.Length(end(o) - 1)
}
