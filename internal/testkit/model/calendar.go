package model

import (
	"math/big"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// Calendar is the fixed window whose windows follow a zone's calendar: days, weeks from Monday, or months, by the Unit of a
// Limit. Without a Zone the windows begin at multiples of Period.
var Calendar = register("calendar", algorithm{new: func() store { return &calendar{} }, spends: spends.Aligned})

// calendar has the units that were charged since an instant. The present Limit determines in which window this instant is.
// So limits with different zones, or different data about one zone, need not reset each other.
type calendar struct {
	stored bool
	opened int64 // the instant at which the first of the units was charged
	units  int64
}

func (c *calendar) clone() store {
	clone := *c
	return &clone
}

// clock returns an instant that is never before the stored window. Only the next window is known: if units were charged
// after the next window, they count in it.
func (c *calendar) clock(l Limit, now int64) int64 {
	if !c.stored {
		return now
	}
	start, _ := l.window(c.opened)
	_, next := l.window(now)
	return max(now, min(start, next))
}

// counts reports whether the stored units count at t.
func (c *calendar) counts(l Limit, t int64) bool {
	start, _ := l.window(t)
	return c.stored && c.opened >= start
}

func (c *calendar) used(l Limit, t int64) *big.Rat {
	if !c.counts(l, t) {
		return new(big.Rat)
	}
	return whole(c.units)
}

// reset returns the time until the end of the window.
func (c *calendar) reset(l Limit, t int64) *big.Rat {
	if !c.counts(l, t) {
		return new(big.Rat)
	}
	_, end := l.window(t)
	return whole(end - t)
}

func (c *calendar) retry(l Limit, t, _ int64) *big.Rat { return c.reset(l, t) }

func (c *calendar) charge(l Limit, t, n int64) ticket {
	if !c.counts(l, t) {
		*c = calendar{stored: true, opened: t}
	}
	c.units += n
	return ticket{units: n, start: c.opened}
}

func (c *calendar) refund(l Limit, t int64, back ticket) {
	if !c.counts(l, t) || c.opened != back.start {
		return
	}
	c.units -= back.units
	if c.units <= 0 { // the next charge opens its own window
		*c = calendar{}
	}
}

// window returns the window of l's calendar that contains t.
func (l Limit) window(t int64) (start, end int64) {
	if l.Zone == "" {
		start = windowStart(t, l.Period)
		return start, start + l.Period
	}
	return Window(l.Zone, l.Unit, t)
}

// Window returns the window of a zone's calendar that contains t. It walks through the zone's time hour by hour or, around
// changes, minute by minute and second by second. A window begins when the zone's date is later than all earlier dates.
func Window(zone, unit string, t int64) (start, end int64) {
	walking.Lock()
	defer walking.Unlock()
	key := windowKey{zone, unit}
	for _, w := range walked[key] {
		if w[0] <= t && t < w[1] {
			return w[0], w[1]
		}
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	const minute = 60_000_000
	at := windowStart(t, minute) - map[string]int64{"day": 4, "week": 10, "month": 35}[unit]*24*60*minute
	latest, offset := shown(at, loc, unit)
	for {
		if next, same := shown(at+60*minute, loc, unit); next == latest && same == offset { // nothing changes in this hour
			at += 60 * minute
			continue
		}
		for range 60 {
			if now, _ := shown(at+minute, loc, unit); now <= latest {
				at += minute
				continue
			}
			at = begins(at, latest, loc, unit)
			if latest, _ = shown(at, loc, unit); start > 0 {
				walked[key] = append(walked[key], [2]int64{start, at})
			}
			if at > t {
				return start, at
			}
			start = at
			at = windowStart(at, minute)
		}
		_, offset = shown(at, loc, unit)
	}
}

// begins returns the first second after at whose number is larger than the given one.
func begins(at int64, number int, loc *time.Location, unit string) int64 {
	for {
		at += 1_000_000
		if now, _ := shown(at, loc, unit); now > number {
			return at
		}
	}
}

type windowKey struct{ zone, unit string }

// walked has the windows that were found before, so that they need not be found again.
var (
	walking sync.Mutex
	walked  = map[windowKey][][2]int64{}
)

// shown returns the number of the day, week or month that a zone's clock shows, and the zone's offset.
func shown(t int64, loc *time.Location, unit string) (number, offset int) {
	local := time.UnixMicro(t).In(loc)
	year, month, day := local.Date()
	_, offset = local.Zone()
	days := int(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / 86_400)
	switch unit {
	case "month":
		return year*12 + int(month), offset
	case "week":
		return (days + 3) / 7, offset // the epoch was a Thursday
	}
	return days, offset
}
