package core

import (
	"math/rand/v2"
	"testing"
	"time"
)

// movingZones are time zones with unusual changes of the clock: at midnight, by half an hour, or over a whole day; and zones with
// usual changes or none.
var movingZones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "Pacific/Apia", "America/Havana",
	"Asia/Kathmandu",
}

// knownWindows returns limits whose windows do not depend on the first request.
func knownWindows() (limits []Limit) {
	limits = []Limit{
		FixedWindow(PerDay(9), Aligned()), FixedWindow(Per(9, 7*24*time.Hour), Aligned()), FixedWindow(Per(9, 7*time.Millisecond), Aligned()),
		FixedWindow(PerWeek(9)), FixedWindow(PerMonth(9), Aligned()),
	}
	for _, zone := range movingZones {
		limits = append(limits, FixedWindow(PerDay(9), In(zone)), FixedWindow(PerWeek(9), In(zone)), FixedWindow(PerMonth(9), In(zone)))
	}
	return limits
}

// TestWindowAtIsOfDecisions compares WindowAt with decisions at random times, at both ends of a window, and just before and after
// the ends. A decision that charges says when the window ends, and its Result says how long the window is.
func TestWindowAtIsOfDecisions(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	first, last := time.Date(1975, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2036, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, limit := range knownWindows() {
		check := func(at time.Time) (start, end time.Time) {
			start, end, ok := limit.WindowAt(at)
			lim := MustNewMemory("api", limit, Clock(func() time.Time { return at })) // a new one each time, because a count does not go back in time
			res, err := lim.Allow(t.Context(), "k")
			if ends := res.At.Add(res.ResetAfter); err != nil || !ok || !ends.Equal(end) || end.Sub(start) != res.Window || at.Before(start) {
				t.Fatalf("%v at %v: WindowAt returns %v to %v; the Result of a decision has the end %v and the length %v, error %v", limit, at, start, end, ends, res.Window, err)
			}
			return start, end
		}
		for range 100 {
			at := first.Add(time.Duration(random.Int64N(int64(last.Sub(first)))).Truncate(time.Microsecond))
			start, end := check(at)
			if same, _ := check(start); !same.Equal(start) {
				t.Errorf("%v: the window of its start %v begins at %v, want the same", limit, start, same)
			}
			if same, _ := check(end.Add(-time.Microsecond)); !same.Equal(start) {
				t.Errorf("%v: the last microsecond of the window of %v is in a window that begins at %v, want %v", limit, at, same, start)
			}
			if next, _ := check(end); !next.Equal(end) {
				t.Errorf("%v: the window after the one of %v begins at %v, want %v", limit, at, next, end)
			}
			if _, before := check(start.Add(-time.Microsecond)); !before.Equal(start) {
				t.Errorf("%v: the window before the one of %v ends at %v, want %v", limit, at, before, start)
			}
		}
	}
}

// TestWindowAt checks windows that can be looked up in a calendar, in the time zone of the limit.
func TestWindowAt(t *testing.T) {
	t.Parallel()
	const layout = "2006-01-02 15:04:05.999999 -07:00"
	for _, c := range []struct {
		limit          Limit
		at, start, end string
	}{
		{FixedWindow(PerDay(1), In("Europe/Berlin")), "2026-03-29T12:00:00Z", "2026-03-29 00:00:00 +01:00", "2026-03-30 00:00:00 +02:00"}, // 23 hours
		{FixedWindow(PerDay(1), In("Europe/Berlin")), "2026-10-25T22:59:59Z", "2026-10-25 00:00:00 +02:00", "2026-10-26 00:00:00 +01:00"}, // 25 hours
		{FixedWindow(PerDay(1), In("America/Sao_Paulo")), "2018-11-04T12:00:00Z", "2018-11-04 01:00:00 -02:00", "2018-11-05 00:00:00 -02:00"},
		{FixedWindow(PerDay(1), In("Pacific/Apia")), "2011-12-30T09:59:59Z", "2011-12-29 00:00:00 -10:00", "2011-12-31 00:00:00 +14:00"},
		{FixedWindow(PerWeek(1), In("America/New_York")), "2026-11-02T04:59:59Z", "2026-10-26 00:00:00 -04:00", "2026-11-02 00:00:00 -05:00"},
		{FixedWindow(PerMonth(1)), "2028-02-29T23:59:59.999999999Z", "2028-02-01 00:00:00 +00:00", "2028-03-01 00:00:00 +00:00"},
		{FixedWindow(PerMonth(1), In("Asia/Kathmandu")), "2026-12-31T18:15:00Z", "2027-01-01 00:00:00 +05:45", "2027-02-01 00:00:00 +05:45"},
		{FixedWindow(Per(1, 7*24*time.Hour), Aligned()), "2026-11-28T12:00:00+09:00", "2026-11-26 00:00:00 +00:00", "2026-12-03 00:00:00 +00:00"},
		{FixedWindow(PerHour(1), Aligned()), "1969-12-31T23:59:59.9999999Z", "1969-12-31 23:00:00 +00:00", "1970-01-01 00:00:00 +00:00"},
		{FixedWindow(PerHour(1), Aligned()), "1969-12-31T23:00:00Z", "1969-12-31 23:00:00 +00:00", "1970-01-01 00:00:00 +00:00"},
		{FixedWindow(PerDay(1), In("UTC")), "0001-01-01T00:00:00Z", "0001-01-01 00:00:00 +00:00", "0001-01-02 00:00:00 +00:00"},
		{FixedWindow(PerMonth(1)), "9999-12-31T23:59:59Z", "9999-12-01 00:00:00 +00:00", "10000-01-01 00:00:00 +00:00"},
	} {
		at, err := time.Parse(time.RFC3339Nano, c.at)
		if err != nil {
			t.Fatal(err)
		}
		start, end, ok := c.limit.WindowAt(at)
		if got := start.Format(layout); !ok || got != c.start {
			t.Errorf("%v: the window of %s begins at %s, %v; want %s", c.limit, c.at, got, ok, c.start)
		}
		if got := end.Format(layout); got != c.end {
			t.Errorf("%v: the window of %s ends at %s, want %s", c.limit, c.at, got, c.end)
		}
	}
	inOtherYear := time.Date(10_000, 1, 1, 0, 30, 0, 0, time.FixedZone("", 3600)) // in UTC the year is 9999
	if _, _, ok := FixedWindow(PerDay(1), Aligned()).WindowAt(inOtherYear); !ok {
		t.Errorf("WindowAt(%v): got no window, want one", inOtherYear)
	}
}

// TestWindowAtOfOthers checks that WindowAt returns false for limits whose windows slide or begin with the first request of a key,
// for limits that New refuses, and for times outside the years 1 to 9999.
func TestWindowAtOfOthers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		limit Limit
		at    time.Time
	}{
		{FixedWindow(PerDay(1)), now},
		{SlidingWindowCounter(PerDay(1)), now},
		{SlidingWindowLog(PerDay(1)), now},
		{TokenBucket(PerDay(1)), now},
		{InFlight(1), now},
		{Limit{}, now},
		{FixedWindow(Per(1, 0), Aligned()), now},
		{FixedWindow(PerDay(1), In("Mars/Olympus")), now},
		{FixedWindow(PerHour(1), In("Europe/Berlin")), now},
		{TokenBucket(PerMonth(1)), now},
		{FixedWindow(PerMonth(1)), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)},
		{FixedWindow(PerDay(1), Aligned()), time.Unix(1<<60, 0)},
		{FixedWindow(PerDay(1), In("UTC")), time.Time{}.Add(-1)},
	} {
		if start, end, ok := c.limit.WindowAt(c.at); ok || !start.IsZero() || !end.IsZero() {
			t.Errorf("%v at %v: got the window %v to %v, %v; want none", c.limit, c.at, start, end, ok)
		}
	}
}
