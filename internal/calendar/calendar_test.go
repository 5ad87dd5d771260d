package calendar_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/calendar"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// zones have calendars that differ from UTC's, except UTC.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein",
	"Pacific/Kiritimati", "America/Sao_Paulo", "Asia/Beirut", "Africa/Cairo", "America/Havana", "America/St_Johns", "Africa/Monrovia",
	"Asia/Tehran", "America/Asuncion", "Asia/Gaza", "Africa/Casablanca", "Europe/Dublin", "Antarctica/Troll", "Pacific/Chatham",
	"Asia/Amman", "America/Santiago", "Africa/El_Aaiun", "Atlantic/Azores", "Asia/Pyongyang", "America/Scoresbysund", "Etc/GMT+12", "Pacific/Auckland",
}

var units = []calendar.Unit{calendar.Day, calendar.Week, calendar.Month}

// check compares the windows around an instant with the windows that the model finds by walking through the
// zone's time.
func check(t *testing.T, zone string, u calendar.Unit, at int64) {
	t.Helper()
	c, err := calendar.In(zone, u)
	if err != nil {
		t.Fatal(err)
	}
	start, next := model.Window(zone, u.String(), at)
	before, _ := model.Window(zone, u.String(), start-1)
	_, end := model.Window(zone, u.String(), next)
	if got, want := *c.Around(at), (calendar.Windows{Before: before, Start: start, Next: next, End: end}); got != want {
		t.Errorf("%s, %v of %v: %v, want %v", zone, u, time.UnixMicro(at).UTC(), shown(zone, got), shown(zone, want))
	}
	for _, w := range [][2]int64{{before, start}, {start, next}, {next, end}} {
		for _, in := range []int64{w[0], w[1] - 1} {
			if got := c.Length(in); got != w[1]-w[0] {
				t.Errorf("%s, %v of %v lasts %v, want %v", zone, u, time.UnixMicro(in).UTC(), got, w[1]-w[0])
			}
		}
		if w[1]-w[0] > c.Longest() {
			t.Errorf("%s, %v of %v lasts %v, and the longest is %v", zone, u, time.UnixMicro(at).UTC(), w[1]-w[0], c.Longest())
		}
	}
}

func shown(zone string, w calendar.Windows) []time.Time {
	loc, _ := time.LoadLocation(zone)
	var all []time.Time
	for _, at := range []int64{w.Before, w.Start, w.Next, w.End} {
		all = append(all, time.UnixMicro(at).In(loc))
	}
	return all
}

// TestKnown checks days whose beginning and length almanacs list.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone, day, begins string
		unit              calendar.Unit
		lasts             time.Duration
	}{
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", calendar.Day, 23 * time.Hour},
		{"Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", calendar.Day, 25 * time.Hour},
		{"Europe/Berlin", "2024-02-29", "2024-01-31T23:00:00Z", calendar.Month, 29 * 24 * time.Hour},
		{"Europe/Berlin", "2026-10-25", "2026-10-18T22:00:00Z", calendar.Week, 7*24*time.Hour + time.Hour},
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", calendar.Day, 24*time.Hour + 30*time.Minute},
		{"Asia/Kathmandu", "2026-01-01", "2025-12-31T18:15:00Z", calendar.Day, 24 * time.Hour},
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04T03:00:00Z", calendar.Day, 23 * time.Hour},        // at one o'clock
		{"America/Sao_Paulo", "2018-02-17", "2018-02-17T02:00:00Z", calendar.Day, 25 * time.Hour},        // from midnight to 23 o'clock again
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", calendar.Day, 25 * time.Hour},           // with two midnights
		{"Asia/Beirut", "2022-03-27", "2022-03-26T22:00:00Z", calendar.Day, 23 * time.Hour},              // without midnight
		{"Africa/Cairo", "2023-04-28", "2023-04-27T22:00:00Z", calendar.Day, 23 * time.Hour},             // without midnight
		{"America/St_Johns", "2010-11-07", "2010-11-07T02:30:00Z", calendar.Day, 25 * time.Hour},         // back at one past midnight
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", calendar.Day, 24 * time.Hour},             // and then comes the 31st
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", calendar.Day, 24 * time.Hour},             // after the 29th
		{"Pacific/Apia", "2011-12-31", "2011-12-26T10:00:00Z", calendar.Week, 6 * 24 * time.Hour},        // without a Friday
		{"Pacific/Kwajalein", "1993-08-22", "1993-08-21T12:00:00Z", calendar.Day, 24 * time.Hour},        // after the 20th
		{"Pacific/Kwajalein", "1993-08-25", "1993-08-01T12:00:00Z", calendar.Month, 30 * 24 * time.Hour}, // of 31 days
		{"UTC", "2026-11-22", "2026-11-16T00:00:00Z", calendar.Week, 7 * 24 * time.Hour},
	} {
		loc, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		noon, _ := time.ParseInLocation("2006-01-02 15", c.day+" 12", loc)
		all, err := calendar.In(c.zone, c.unit)
		if err != nil {
			t.Fatal(err)
		}
		w := all.Around(noon.UnixMicro())
		begins, lasts := time.UnixMicro(w.Start).UTC().Format(time.RFC3339), time.Duration(w.Next-w.Start)*time.Microsecond
		if begins != c.begins || lasts != c.lasts {
			t.Errorf("%s, %v of %s begins %s and lasts %v, want %s and %v", c.zone, c.unit, c.day, begins, lasts, c.begins, c.lasts)
		}
	}
}

// TestBackOverMidnight checks a zone whose clock is put back by an hour at one minute past midnight: the
// hour that is repeated belongs to the new day.
func TestBackOverMidnight(t *testing.T) {
	midnight := time.Date(2010, 11, 7, 2, 30, 0, 0, time.UTC)
	const before = -time.Microsecond // leaves the window, so that the windows are computed again afterwards
	for _, d := range []time.Duration{30 * time.Minute, before, time.Minute, before, 0, before, time.Hour, before, 2 * time.Hour} {
		for _, u := range units {
			check(t, "America/St_Johns", u, midnight.Add(d).UnixMicro())
		}
	}
}

// TestUnknown checks that names that are not zones, or not the same zone on every machine, are rejected.
func TestUnknown(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{
		"", "Local", "localtime", "Europe/Berlinn", "../UTC", "/UTC", "UTC\x00", "UTC\n", "CEST+1 ", strings.Repeat("X", 1<<16),
		"Europe//Berlin", "Europe/Berlin/", "./UTC", "europe/Berlin", "Europe/berlin", "right/Europe/Berlin", "posix/Europe/Berlin", "posixrules",
		"Europe" + strings.Repeat("/", 60) + "Berlin",
	} {
		if c, err := calendar.In(zone, calendar.Day); err == nil || c != nil || len(err.Error()) > 200 {
			t.Errorf("%.40q: %v, %v", zone, c, err)
		}
	}
}

// TestCached checks that the windows of an instant are not computed again.
func TestCached(t *testing.T) {
	c, err := calendar.In("Europe/Berlin", calendar.Month)
	if err != nil {
		t.Fatal(err)
	}
	at := c.Around(1_800_000_000_000_000).Start
	if n := testing.AllocsPerRun(100, func() { c.Around(at); c.Length(at - 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c.Around(at) != c.Around(at+1) {
		t.Error("the windows of an instant are not kept")
	}
}

// TestTransitions checks the windows around each instant at which a zone's clock is put forward or back,
// for 84 years.
func TestTransitions(t *testing.T) {
	t.Parallel()
	for _, zone := range zones {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		_, offset := time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC).In(loc).Zone()
		for at := time.Date(1971, 1, 1, 0, 0, 0, 0, loc); at.Year() < 2055; at = at.Add(12 * time.Hour) {
			_, now := at.Zone()
			if now == offset {
				continue
			}
			offset = now
			for _, d := range []time.Duration{-12 * time.Hour, -6 * time.Hour, 0} {
				check(t, zone, calendar.Day, at.Add(d).UnixMicro())
			}
			check(t, zone, calendar.Week, at.UnixMicro())
		}
	}
}

// TestRandom checks the windows around random instants.
func TestRandom(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 26))
	for _, zone := range zones {
		for range 5 {
			for _, u := range units {
				check(t, zone, u, time.Date(1971, 1, 1, r.IntN(80*366*24), r.IntN(60), 0, 0, time.UTC).UnixMicro())
			}
		}
	}
}
