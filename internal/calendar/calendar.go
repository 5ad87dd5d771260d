// Package calendar says where the windows of a calendar begin: at local midnight, on Monday, on the
// first of a month.
//
// A window begins with the first instant whose local date is that of its day, or later. So a day
// has 23 or 25 hours where the clock is put forward or back; it begins at one o'clock where there
// is no midnight; with the first of two midnights where there are two; and a day that a zone
// skipped has no window. What comes again when the clock is put back over midnight belongs to the
// new day.
package calendar

import (
	"fmt"
	"regexp"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// A Unit is how long the windows of a calendar are.
type Unit uint8

// The units. A week begins on Monday.
const (
	Day Unit = 1 + iota
	Week
	Month
)

// String returns the name of the unit, such as "week".
func (u Unit) String() string { return [...]string{"", "day", "week", "month"}[u] }

const (
	second = 1_000_000 // instants are in microseconds
	day    = 86_400 * second
)

// Longest returns more than the length of any window: a zone may have a day twice.
func (u Unit) Longest() int64 { return [...]int64{0, 2, 8, 32}[u] * day }

// first returns the midnight of UTC that has the date with which a window begins, so many windows
// after that of a date.
func (u Unit) first(year int, month time.Month, d, windows int) time.Time {
	switch u {
	case Day:
		d += windows
	case Week:
		weekday := time.Date(year, month, d, 0, 0, 0, 0, time.UTC).Weekday()
		d += 7*windows - int(weekday+6)%7
	case Month:
		month, d = month+time.Month(windows), 1
	}
	return time.Date(year, month, d, 0, 0, 0, 0, time.UTC)
}

// Windows are that of an instant, from Start to Next, the one before and the one after.
type Windows struct{ Before, Start, Next, End int64 }

// A Calendar is the windows of a zone. It is safe for concurrent use.
type Calendar struct {
	// Location is the zone; nil of [Even].
	Location *time.Location

	longest int64
	around  func(at int64) Windows
	latest  atomic.Pointer[Windows] // around the instant that was asked for last
}

var known = struct {
	sync.Mutex

	calendars map[kind]*Calendar
}{calendars: make(map[kind]*Calendar)}

type kind struct {
	zone string
	unit Unit
}

// In returns the Calendar of a zone of the IANA database. That of a zone that this machine does not
// know is an error.
func In(zone string, u Unit) (*Calendar, error) {
	known.Lock()
	defer known.Unlock()
	if c := known.calendars[kind{zone, u}]; c != nil {
		return c, nil
	}
	loc, err := load(zone)
	if err != nil {
		return nil, err
	}
	c := &Calendar{Location: loc, longest: u.Longest(), around: func(at int64) Windows { return around(loc, u, at) }}
	known.calendars[kind{zone, u}] = c
	return c, nil
}

// names are those of the IANA database, whose longest has 32 bytes. A machine has other spellings
// of the same zones, such as right/Europe/Berlin, and one of its own: each would be a calendar of
// its own.
var names = regexp.MustCompile(`^[A-Z][\w+-]*(/[A-Z][\w+-]*)*$`)

const maxName = 64

// load returns a zone that is the same wherever it is known.
func load(zone string) (*time.Location, error) {
	if zone == "Local" || len(zone) > maxName || !names.MatchString(zone) {
		return nil, fmt.Errorf("%.80q is no zone of the IANA database", zone)
	}
	return time.LoadLocation(zone)
}

// Even returns the Calendar whose windows all have one length, and begin at its multiples: for
// tests.
func Even(length int64) *Calendar {
	return &Calendar{longest: length, around: func(at int64) Windows {
		start := at - at%length
		return Windows{start - length, start, start + length, start + 2*length}
	}}
}

// Longest returns what no window is longer than.
func (c *Calendar) Longest() int64 { return c.longest }

// Around returns the windows around an instant. For those of one window it costs next to nothing.
func (c *Calendar) Around(at int64) *Windows {
	if w := c.latest.Load(); w != nil && at >= w.Start && at < w.Next {
		return w
	}
	w := c.around(at)
	c.latest.Store(&w)
	return &w
}

// Window returns the start of the window that an instant is in, and that of the next one. It is for
// questions about any instant: it does not replace the windows that Around keeps for decisions.
func (c *Calendar) Window(at int64) (start, next int64) {
	w := c.latest.Load()
	if w == nil || at < w.Start || at >= w.Next {
		around := c.around(at)
		w = &around
	}
	return w.Start, w.Next
}

// Length returns that of the window which an instant is in. It costs next to nothing near the last
// one that was asked for.
func (c *Calendar) Length(at int64) int64 {
	w := c.latest.Load()
	switch {
	case w == nil || at < w.Before || at >= w.End:
		w = c.Around(at)
	case at < w.Start:
		return w.Start - w.Before
	case at >= w.Next:
		return w.End - w.Next
	}
	return w.Next - w.Start
}

// around finds the windows around an instant.
func around(loc *time.Location, u Unit, at int64) Windows {
	year, month, d := time.UnixMicro(at).In(loc).Date()
	begins := func(i int) int64 { return begins(loc, u.first(year, month, d, i)) }
	i := 0
	for begins(i+1) <= at { // the clock was put back since, over midnight
		i++
	}
	w := Windows{Start: begins(i), Next: begins(i + 1)}
	before, end := i-1, i+2
	for begins(before) == w.Start { // a day that was skipped has no window
		before--
	}
	for begins(end) == w.Next {
		end++
	}
	w.Before, w.End = begins(before), begins(end)
	return w
}

// begins returns the first instant at which a zone's clock shows midnight of a date, or later. It
// does not go by time.ZoneBounds, which is wrong on the last day of a leap year beyond the table of
// the zone.
func begins(loc *time.Location, midnight time.Time) int64 {
	ahead := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		return int64(offset)
	}
	const hour = 3600
	at := midnight.Unix() - 24*hour // no zone is so far ahead
	for {
		offset := ahead(at)
		shows := midnight.Unix() - offset
		if shows <= at {
			return at * second
		}
		next := min(shows, at+hour)
		if ahead(next) != offset { // to the first second of what is new
			next = at + 1 + int64(sort.Search(int(next-at-1), func(i int) bool { return ahead(at+1+int64(i)) != offset }))
		}
		at = next
	}
}
