package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
)

// calendarCases are what random histories of [Properties] do not show of windows of a calendar.
func calendarCases() []testCase {
	return []testCase{
		{"Calendar/WrongClock", wrongClock},
		{"Calendar/WindowAt", windowAt},
	}
}

// wrongClock has processes whose clocks are wrong: by less than a window they count in the one that Redis's clock is in, and
// beyond two nothing is decided, and nothing changes.
func wrongClock(t *testing.T, s Store) {
	s.needsRedis(t, "no other clock than the process's")
	limit := core.FixedWindow(core.PerDay(10), core.In("Asia/Kathmandu"), core.LimitName("day"))
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

// windowAt compares WindowAt with decisions, whose clock is moved over months: with when they say that a window ends, and with where
// the count is fresh again.
func windowAt(t *testing.T, s Store) {
	for _, limit := range []core.Limit{
		core.FixedWindow(core.PerHour(10), core.Aligned()),
		core.FixedWindow(core.PerDay(10), core.In("America/New_York"), core.LimitName("newyork")),
		core.FixedWindow(core.PerDay(10), core.In("Australia/Lord_Howe"), core.LimitName("lordhowe")),
		core.FixedWindow(core.PerWeek(10), core.In("Europe/Berlin")),
		core.FixedWindow(core.PerMonth(10)),
	} {
		lim := s.limiter(t, "windows", limit)
		for range 10 {
			res := allowN(t, lim, "k", 1)
			start, end, ok := limit.WindowAt(res.At)
			if !ok || !end.Equal(res.At.Add(res.ResetAfter)) || end.Sub(start) != res.Window || res.At.Before(start) {
				t.Fatalf("%v at %v: from %v to %v, %v; a decision says %+v", limit, res.At, start, end, ok, res)
			}
			s.Advance(res.ResetAfter - time.Microsecond)
			remains(t, lim, "k", 9)
			s.Advance(time.Microsecond)
			fresh := peek(t, lim, "k")
			if next, _, _ := limit.WindowAt(fresh.At); fresh.Remaining != 10 || fresh.ResetAfter != 0 || !next.Equal(end) {
				t.Fatalf("%v: the window after %v begins at %v; a decision says %+v", limit, end, next, fresh)
			}
			s.Advance(37 * 24 * time.Hour / 2)
		}
	}
}

func wallAt(now time.Time) core.Option {
	return inside.Core.Simulate(coreaccess.Simulation{Wall: func() time.Time { return now }})
}
