package calendar_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/calendar"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// zones are those whose calendars are not like UTC's.
var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Kwajalein",
	"Pacific/Kiritimati", "America/Sao_Paulo", "Asia/Beirut", "Africa/Cairo", "America/Havana", "America/St_Johns", "Africa/Monrovia",
	"Asia/Tehran", "America/Asuncion", "Asia/Gaza", "Africa/Casablanca", "Europe/Dublin", "Antarctica/Troll", "Pacific/Chatham",
	"Asia/Amman", "America/Santiago", "Africa/El_Aaiun", "Atlantic/Azores", "Asia/Pyongyang", "America/Scoresbysund", "Etc/GMT+12", "Pacific/Auckland",
}

var units = []calendar.Unit{calendar.Day, calendar.Week, calendar.Month}

// check compares the windows around an instant with those that a walk through the zone's time finds.
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

// TestTransitions looks at the windows around the instants at which a zone's clock is put forward or back, in 80 years.
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

// TestRandom looks at random instants, and at those that the zones' histories are known for.
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
