package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redislimit/redislimit/internal/calendar"
)

// The bounds of a Rate. They help to keep all numbers in the range in which the arithmetic of Lua is exact.
const (
	maxCount  = 1_000_000_000
	minPeriod = time.Millisecond
	maxPeriod = 400 * day
	day       = 24 * time.Hour
)

// A Rate is a number of units per period, such as 100 per minute. The count is from 0 to 1e9, and
// the period from 1 millisecond to 400 days in whole microseconds; [New], [ParseRate] and
// [Limiter.With] refuse anything else. A count of 0 denies everything except what costs 0. [New]
// refuses it, but [ParseRate] and [Limiter.With] do not: see [Limit]. Rates are comparable with
// ==.
type Rate struct {
	count  int64
	period time.Duration
	unit   calendar.Unit // the unit of calendar windows, for PerWeek, PerMonth and the texts that mean them; otherwise 0
}

// PerSecond returns the Rate of n units per second.
func PerSecond(n int64) Rate { return Per(n, time.Second) }

// PerMinute returns the Rate of n units per minute.
func PerMinute(n int64) Rate { return Per(n, time.Minute) }

// PerHour returns the Rate of n units per hour.
func PerHour(n int64) Rate { return Per(n, time.Hour) }

// PerDay returns the Rate of n units per 24 hours.
func PerDay(n int64) Rate { return Per(n, day) }

// PerWeek returns the Rate of n units per calendar week, which begins on Monday. Only a
// [FixedWindow] takes it; for other algorithms, use Per(n, 7*24*time.Hour).
func PerWeek(n int64) Rate { return Rate{n, 7 * day, calendar.Week} }

// PerMonth returns the Rate of n units per calendar month. Only a [FixedWindow] takes it, because a
// month has no fixed length. Its Period is 31 days.
func PerMonth(n int64) Rate { return Rate{n, 31 * day, calendar.Month} }

// Per returns the Rate of n units per period.
func Per(n int64, period time.Duration) Rate { return Rate{count: n, period: period} }

// ParseRate parses a Rate in the form that suits a configuration file: a count, a slash and a
// period, such as "100/m", "5/10s" or "1000/24h". The period is one of:
//
//   - a unit: ms, s, m, h or d; sec, min, hour or day; second or minute
//   - a number of days, such as "7d"
//   - anything that [time.ParseDuration] accepts
//   - week or month, which mean [PerWeek] and [PerMonth]
//
// The error for any other text says what is allowed.
func ParseRate(s string) (Rate, error) {
	r, err := parseRate(s)
	if err != nil {
		return Rate{}, fmt.Errorf("redislimit: %w", err)
	}
	return r, nil
}

func parseRate(s string) (Rate, error) {
	count, period, found := strings.Cut(s, "/")
	if !found {
		return Rate{}, fmt.Errorf("rate %.40q: want COUNT/PERIOD, as in \"100/m\" or \"5/10s\"", s)
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		return Rate{}, fmt.Errorf("rate %.40q: the count must be a whole number from 0 to %d", s, maxCount)
	}
	d, err := parsePeriod(period)
	if err != nil {
		return Rate{}, fmt.Errorf("rate %.40q: the period must be a unit (ms, s, m, h, d, or sec, min, hour, day, week, month) "+
			"or a duration, as in \"10s\" or \"1h30m\"", s)
	}
	r := Rate{n, d, calendarUnits[period]}
	if err := r.check(); err != nil {
		return Rate{}, fmt.Errorf("rate %.40q: %w", s, err)
	}
	return r, nil
}

// Count returns the units allowed per period.
func (r Rate) Count() int64 { return r.count }

// Period returns the time in which Count units are allowed. For [PerMonth] it is 31 days.
func (r Rate) Period() time.Duration { return r.period }

// UnmarshalText parses text as [ParseRate] does, so that a Rate can be a field of a configuration.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// MarshalText returns the text of [Rate.String].
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns the Rate in a form that [ParseRate] reads, such as "100/1m". ParseRate refuses the text if
// the Rate itself is not allowed.
func (r Rate) String() string {
	period := formatPeriod(r.period)
	if r.unit > 0 {
		period = r.unit.String()
	}
	return strconv.FormatInt(r.count, 10) + "/" + period
}

func (r Rate) check() error {
	switch {
	case r.count < 0 || r.count > maxCount:
		return fmt.Errorf("the count is %d, allowed is 0 to %d", r.count, maxCount)
	case r.period < minPeriod || r.period > maxPeriod:
		return fmt.Errorf("the period is %v, allowed is %v to %d days%s", r.period, minPeriod, maxPeriod/day, forgottenUnit(r.period))
	case r.period%time.Microsecond != 0:
		return fmt.Errorf("the period is %v, allowed are whole microseconds", r.period)
	}
	return nil
}

// forgottenUnit returns a hint for a positive period of less than a microsecond: the program has probably
// forgotten to multiply a number by a unit. For any other period the hint is empty.
func forgottenUnit(period time.Duration) string {
	if period < 1 || period >= time.Microsecond {
		return ""
	}
	return fmt.Sprintf(": did you mean %d*time.Second?", period)
}

// micros returns the period in microseconds.
func (r Rate) micros() int64 { return r.period.Microseconds() }

var periodUnits = []struct {
	name string
	unit time.Duration
}{
	{"d", day},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
	{"ms", time.Millisecond},
	{"us", time.Microsecond},
	{"ns", time.Nanosecond},
}

// periodWords are further words that ParseRate accepts as a period.
var periodWords = map[string]time.Duration{
	"sec": time.Second, "second": time.Second, "min": time.Minute, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 31 * day,
}

var calendarUnits = map[string]calendar.Unit{"week": calendar.Week, "month": calendar.Month}

func parsePeriod(s string) (time.Duration, error) {
	if d, ok := periodWords[s]; ok {
		return d, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok && days != "" {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	for _, u := range periodUnits {
		if s == u.name {
			return u.unit, nil
		}
	}
	return time.ParseDuration(s)
}

// formatPeriod formats d in the largest unit that divides it. The text is part of Redis keys, so it
// is short, and the same for equal periods.
func formatPeriod(d time.Duration) string {
	for _, u := range periodUnits {
		if d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String()
}
