package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
)

// calendarCases are what random histories of [Properties] do not show of windows of a calendar.
func calendarCases() []testCase {
	return []testCase{
		{"Calendar/WrongClock", wrongClock},
		{"Calendar/OtherZone", otherZone},
		{"Calendar/Longer", longerWindow},
	}
}

// wrongClock has processes whose clocks are wrong: by less than a window they count in the one that Redis's clock is in, and
// beyond two nothing is decided, and nothing changes.
func wrongClock(t *testing.T, s Store) {
	s.needsRedis(t, "no other clock than the process's")
	limit := core.FixedWindow(core.PerDay(10), core.In("Asia/Kathmandu"), core.Name("day"))
	now := s.limiter(t, "clocks", limit)
	at := allowN(t, now, "k", 1).At
	for i, wrong := range []time.Duration{-23 * time.Hour, -time.Hour, time.Hour, 23 * time.Hour} {
		lim := s.limiter(t, "clocks", limit, wallAt(at.Add(wrong)))
		if got, want := allowN(t, lim, "k", 1), peek(t, now, "k"); got.Remaining != int64(8-i) || got.ResetAfter != want.ResetAfter || got.Window != 24*time.Hour {
			t.Errorf("a clock that is wrong by %v: %+v, want %+v", wrong, got, want)
		}
	}
	held := reserve(t, now, "k", 2)
	for _, wrong := range []time.Duration{-49 * time.Hour, 49 * time.Hour} {
		lim := s.limiter(t, "clocks", limit, wallAt(at.Add(wrong)))
		before := s.dump(t)
		_, charged := lim.Allow(context.Background(), "k")
		_, reserved := lim.Reserve(context.Background(), "k", 1)
		for _, err := range []error{charged, reserved, lim.Reset(context.Background(), "k")} {
			if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "clock of redis or of this process is wrong") {
				t.Errorf("a clock that is wrong by %v: %v", wrong, err)
			}
		}
		if after := s.dump(t); !slices.Equal(before, after) {
			t.Errorf("a clock that is wrong by %v has changed %v to %v", wrong, before, after)
		}
	}
	settle(t, held, 1)
	remains(t, now, "k", 4)
	s.Advance(-24 * time.Hour) // what was charged still counts, for a process whose clock has stepped back and for one whose has not
	right, ahead := peek(t, now, "k"), peek(t, s.limiter(t, "clocks", limit, wallAt(at)), "k")
	if right.Remaining != 4 || right.ResetAfter != 24*time.Hour || right != ahead {
		t.Errorf("after a step back: %+v, want %+v", ahead, right)
	}
}

func wallAt(now time.Time) core.Option {
	return inside.Core.Wall(func() time.Time { return now })
}

// otherZone has two processes with other data of a zone, for which two zones stand: each window of either begins afresh once,
// and between their boundaries neither resets what the other has charged.
func otherZone(t *testing.T, s Store) {
	s.needsRedis(t, "each limiter has a state of its own")
	in := func(zone string) *core.Limiter {
		return s.limiter(t, "zones", core.FixedWindow(core.PerDay(100), core.In(zone), core.Name("day")))
	}
	early, late := in("Asia/Tokyo"), in("Asia/Shanghai") // an hour later
	s.Advance(peek(t, early, "k").Window)                // nothing is charged: the window is not known from this
	s.Advance(allowN(t, late, "k", 1).ResetAfter)        // its midnight
	allowN(t, late, "k", 5)
	used := func(lim *core.Limiter, want int64) {
		t.Helper()
		if res := allowN(t, lim, "k", 1); res.Remaining != 100-want {
			t.Errorf("%v: %d are used, want %d", res.At.UTC(), 100-res.Remaining, want)
		}
	}
	for i := range int64(20) {
		used(early, 6+2*i)
		used(late, 7+2*i)
		s.Advance(time.Hour)
	}
	s.Advance(3*time.Hour + 30*time.Minute) // between the two midnights
	used(early, 1)
	used(late, 2) // its day has not ended, and what was charged at the early midnight counts in it
	used(early, 3)
	s.Advance(30 * time.Minute)
	used(late, 1) // at its own midnight it begins afresh, once
	used(early, 2)
	used(late, 3)
}

// longerWindow changes a limit from a day to a month, and back: what was used since the new window began stays used, if the
// count began in it, too.
func longerWindow(t *testing.T, s Store) {
	lim := s.limiter(t, "longer", core.FixedWindow(core.PerDay(10), core.In("Europe/Berlin"), core.Name("quota")))
	allowN(t, lim, "k", 4)
	month := with(t, lim, core.FixedWindow(core.PerMonth(100), core.In("Europe/Berlin"), core.Name("quota")))
	remains(t, month, "k", 96)
	allowN(t, month, "k", 1)
	remains(t, lim, "k", 5)
	s.Advance(allowN(t, month, "k", 1).ResetAfter)
	remains(t, month, "k", 100)
	remains(t, lim, "k", 10)
	allowN(t, month, "k", 1)
	s.Advance(25 * time.Hour)
	allowN(t, month, "k", 1)
	remains(t, month, "k", 98)
	remains(t, lim, "k", 10) // the month's count began yesterday
}
