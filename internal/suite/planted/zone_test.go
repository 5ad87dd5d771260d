package planted

import (
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/calendar"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// TestZoneData lets two processes use different data about one time zone, represented by two zones. Each window of either
// process begins afresh once. Between the beginnings of their windows, neither process resets what the other has charged.
func TestZoneData(t *testing.T) {
	t.Parallel()
	w := oneLimit(t, "fixed_window_calendar", 100)
	process := func(zone string) (charge func(n, used int64)) {
		days, err := calendar.In(zone, calendar.Day)
		if err != nil {
			t.Fatal(err)
		}
		k := limits.Named("fixed_window_calendar").Kind
		members := []algorithm.Limit{{Kind: k, Evaluator: k.New(algorithm.Numbers{Count: 100, Period: days.Longest(), Calendar: days})}}
		return func(n, used int64) {
			t.Helper()
			args := members[0].Cost(append(w.constants(members), "1"), n)
			if reply := w.run(members, w.keys[:1], args); reply[2] != used {
				t.Errorf("at %v, %s: %d units were used, want %d", time.UnixMicro(w.now).UTC(), zone, reply[2], used)
			}
		}
	}
	early, late := process("Asia/Tokyo"), process("Asia/Shanghai") // the day in Shanghai begins an hour later
	midnight := time.Date(2065, 1, 24, 0, 0, 0, 0, time.FixedZone("Asia/Shanghai", 8*3600)).UnixMicro()
	pass := func(d time.Duration) { w.now += d.Microseconds() }
	w.now = midnight
	late(5, 0)
	for i := range int64(20) {
		early(1, 5+2*i)
		late(1, 6+2*i)
		pass(time.Hour)
	}
	pass(3*time.Hour + 30*time.Minute) // between the two midnights
	early(1, 0)
	late(1, 1) // this process's day has not ended, and the charge since the early midnight counts in it
	early(1, 2)
	pass(30 * time.Minute)
	late(1, 0) // at its own midnight, this process begins afresh, once
	early(1, 1)
	late(1, 2)
}
