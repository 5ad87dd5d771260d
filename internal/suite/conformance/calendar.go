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

func wallAt(now time.Time) core.Option {
	return inside.Core.Wall(func() time.Time { return now })
}
