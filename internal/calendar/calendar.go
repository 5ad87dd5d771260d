// Package calendar computes where the windows of a calendar begin in a time zone: a day at local midnight,
// a week at midnight on Monday, and a month at midnight on its first day.
//
// A window begins at the first instant at which the local clock shows the first date of the window, or a
// later date. Changes of the clock therefore have these effects:
//
//   - A day on which the clock is put forward or back by an hour lasts 23 or 25 hours.
//   - A day without a midnight begins when the clock jumps over midnight, for example to one o'clock.
//   - A day with two midnights begins at the first of them. If the clock is put back over midnight, the
//     hour that is repeated belongs to the new day.
//   - A day that the zone skipped has no window.
package calendar

import (
	"fmt"
	"regexp"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// A Unit is the length of a calendar's windows.
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
	second = 1_000_000 // instants are in microseconds since the Unix epoch
	day    = 86_400 * second
)

// Longest returns an upper bound on the length of a window, in microseconds. It allows for a zone that has
// a day twice.
func (u Unit) Longest() int64 { return [...]int64{0, 2, 8, 32}[u] * day }

// first returns the first date of a window, as midnight in UTC. If windows is 0, this is the window that
// contains the given date. Otherwise it is the window that comes that many windows later, or earlier if
// the number is negative.
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

// Windows describes the window of an instant, from Start to Next, and its neighbors: the previous window
// lasts from Before to Start, and the following one from Next to End.
type Windows struct{ Before, Start, Next, End int64 }

// A Calendar finds the windows of one unit in one zone. It is safe for concurrent use.
type Calendar struct {
	// Location is the zone. It is nil if [Even] made the Calendar.
	Location *time.Location

	longest int64                   // see Longest
	around  func(at int64) Windows  // computes the windows around an instant
	latest  atomic.Pointer[Windows] // the last result of Around
}

// known contains every Calendar that In has returned.
var known = struct {
	sync.Mutex

	calendars map[kind]*Calendar
}{calendars: make(map[kind]*Calendar)}

// A kind identifies a Calendar.
type kind struct {
	zone string
	unit Unit
}

// In returns the Calendar of a zone in the IANA database. It returns an error if zone is not the name of a
// zone, or if this machine does not know the zone. Calls with the same arguments return the same Calendar.
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

// names matches the spelling of the names in the IANA database, of which the longest has 32 bytes. A
// machine also knows other names for the same zones, such as right/Europe/Berlin, and a zone of its own,
// Local. They are not accepted: processes on different machines must find the same windows.
var names = regexp.MustCompile(`^[A-Z][\w+-]*(/[A-Z][\w+-]*)*$`)

// maxName is the length of the longest name that is looked up, in bytes.
const maxName = 64

// load returns the zone of the given name, if the name means the same zone on every machine. Otherwise, or if
// this machine does not know the zone, it returns an error.
func load(zone string) (*time.Location, error) {
	if zone == "Local" || len(zone) > maxName || !names.MatchString(zone) {
		return nil, fmt.Errorf("%.80q is no zone of the IANA database", zone)
	}
	return time.LoadLocation(zone)
}

// Even returns a Calendar for tests. Its windows all have the given length, and begin at multiples of it.
func Even(length int64) *Calendar {
	return &Calendar{longest: length, around: func(at int64) Windows {
		start := at - at%length
		return Windows{start - length, start, start + length, start + 2*length}
	}}
}

// Longest returns an upper bound on the length of a window, in microseconds.
func (c *Calendar) Longest() int64 { return c.longest }

// Around returns the windows around an instant. Repeated calls for instants in the same window are fast:
// Around keeps its last result.
func (c *Calendar) Around(at int64) *Windows {
	if w := c.latest.Load(); w != nil && at >= w.Start && at < w.Next {
		return w
	}
	w := c.around(at)
	c.latest.Store(&w)
	return &w
}

// Window returns the start of the window that contains an instant, and the start of the next window.
// Unlike Around, it does not replace the result that Around keeps for decisions, so it can be called for
// any instant.
func (c *Calendar) Window(at int64) (start, next int64) {
	w := c.latest.Load()
	if w == nil || at < w.Start || at >= w.Next {
		around := c.around(at)
		w = &around
	}
	return w.Start, w.Next
}

// Length returns the length of the window that contains an instant. It is fast if the instant is in a
// window of the last result of Around, or in a neighbor of that window.
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

// around computes the windows around an instant.
func around(loc *time.Location, u Unit, at int64) Windows {
	year, month, d := time.UnixMicro(at).In(loc).Date()
	begins := func(i int) int64 { return begins(loc, u.first(year, month, d, i)) }
	i := 0
	for begins(i+1) <= at { // the clock has been put back over midnight, so a later window has begun already
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

// begins returns the first instant, in microseconds, at which a zone's clock shows midnight of a date or a
// later time. midnight is midnight of that date in UTC. begins does not use the method ZoneBounds of time.Time,
// which is wrong on the last day of a leap year beyond the zone's table of transitions.
func begins(loc *time.Location, midnight time.Time) int64 {
	ahead := func(at int64) int64 {
		_, offset := time.Unix(at, 0).In(loc).Zone()
		return int64(offset)
	}
	const hour = 3600
	at := midnight.Unix() - 24*hour // no zone is 24 hours ahead of UTC
	for {
		offset := ahead(at)
		shows := midnight.Unix() - offset
		if shows <= at {
			return at * second
		}
		next := min(shows, at+hour)
		if ahead(next) != offset { // continue at the first second with the new offset
			next = at + 1 + int64(sort.Search(int(next-at-1), func(i int) bool { return ahead(at+1+int64(i)) != offset }))
		}
		at = next
	}
}
