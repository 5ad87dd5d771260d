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

// calendarCases test windows of a calendar in ways that the random histories of [Properties] do not reach.
func calendarCases() []testCase {
	return []testCase{
		{"Calendar/WrongClock", wrongClock},
		{"Calendar/WindowAt", windowAt},
	}
}

// wrongClock lets processes with wrong clocks decide. If a process's clock is wrong by less than a window, its calls count
// in the window of Redis's clock. If the clock is wrong by more than two windows, every call fails and changes nothing.
func wrongClock(t *testing.T, s Store) {
	s.needsRedis(t, "a store in memory has no clock besides the process's")
	limit := core.FixedWindow(core.PerDay(10), core.In("Asia/Kathmandu"), core.LimitName("day"))
	now := s.limiter(t, "clocks", limit)
	at := allowN(t, now, "k", 1).At
	for i, wrong := range []time.Duration{-23 * time.Hour, -time.Hour, time.Hour, 23 * time.Hour} {
		lim := s.limiter(t, "clocks", limit, wallAt(at.Add(wrong)))
		if got, want := allowN(t, lim, "k", 1), peek(t, now, "k"); got.Remaining != int64(8-i) || got.ResetAfter != want.ResetAfter || got.Window != 24*time.Hour {
			t.Errorf("a clock that is wrong by %v: got %+v, want %d remaining, and the end of the window as in %+v", wrong, got, 8-i, want)
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
				t.Errorf("a clock that is wrong by %v: got error %v, want ErrUnavailable that names the wrong clock", wrong, err)
			}
		}
		if after := s.dump(t); !slices.Equal(before, after) {
			t.Errorf("a clock that is wrong by %v changed the stored values to %v, want them unchanged: %v", wrong, after, before)
		}
	}
	settle(t, held, 1)
	remains(t, now, "k", 4)
	s.Advance(-24 * time.Hour) // the charges still count, whether a process's own clock has stepped back or not
	right, ahead := peek(t, now, "k"), peek(t, s.limiter(t, "clocks", limit, wallAt(at)), "k")
	if right.Remaining != 4 || right.ResetAfter != 24*time.Hour || right != ahead {
		t.Errorf("after a step back: a process whose clock did not step back got %+v, and one whose clock did got %+v; want both equal, with 4 units for 24h", ahead, right)
	}
}

// windowAt compares WindowAt with decisions while the clock moves over months: WindowAt must return the end of the window
// that a decision reports, and the instant at which the count starts afresh.
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
				t.Fatalf("%v: WindowAt(%v) = %v, %v, %v; want the window of the decision %+v", limit, res.At, start, end, ok, res)
			}
			s.Advance(res.ResetAfter - time.Microsecond)
			remains(t, lim, "k", 9)
			s.Advance(time.Microsecond)
			fresh := peek(t, lim, "k")
			if next, _, _ := limit.WindowAt(fresh.At); fresh.Remaining != 10 || fresh.ResetAfter != 0 || !next.Equal(end) {
				t.Fatalf("%v: WindowAt says that the next window begins at %v, want %v; a Peek then returns %+v, want a fresh count", limit, next, end, fresh)
			}
			s.Advance(37 * 24 * time.Hour / 2)
		}
	}
}

// wallAt makes now the time that the process's own clock shows.
func wallAt(now time.Time) core.Option {
	return inside.Core.Simulate(coreaccess.Simulation{Wall: func() time.Time { return now }})
}
