package model_test

import (
	"math/rand/v2"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

func log(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.SlidingWindowLog, Count: count, Period: period}
}

func TestLogCountsExactly(t *testing.T) {
	k := newKey(t, log(5, 100))
	k.take(1000, 2, "ok t=1000 left=3/5 reset=100 until=1100")
	k.take(1030, 1, "ok t=1030 left=2/5 reset=100 until=1130")
	k.take(1060, 2, "ok t=1060 left=0/5 reset=100 until=1160")
	k.take(1070, 1, "no t=1070 left=0/5 retry=30 reset=90 until=1160") // the two of 1000
	k.take(1070, 2, "no t=1070 left=0/5 retry=30 reset=90 until=1160")
	k.take(1070, 3, "no t=1070 left=0/5 retry=60 reset=90 until=1160") // and the one of 1030
	k.take(1070, 4, "no t=1070 left=0/5 retry=90 reset=90 until=1160")
	k.take(1070, 6, "never t=1070 left=0/5 reset=90 until=1160")
	k.take(1099, 1, "no t=1099 left=0/5 retry=1 reset=61 until=1160")
	k.take(1100, 3, "no t=1100 left=2/5 retry=30 reset=60 until=1160") // (t-T, t] excludes 1000
	k.take(1100, 2, "ok t=1100 left=0/5 reset=100 until=1200")
	k.peek(1199, "ok t=1199 left=3/5 reset=1 until=1200")
	k.peek(1200, "ok t=1200 left=5/5 until=1200")
}

func TestLogClockBack(t *testing.T) {
	k := newKey(t, log(5, 100))
	k.take(1000, 2, "ok t=1000 left=3/5 reset=100 until=1100")
	k.take(1050, 1, "ok t=1050 left=2/5 reset=100 until=1150")
	k.take(900, 1, "ok t=1050 left=1/5 reset=100 until=1150")
	k.take(1000, 2, "no t=1050 left=1/5 retry=50 reset=100 until=1150")
	// The entry written in the past counts from the instant the log was at.
	k.peek(1149, "ok t=1149 left=3/5 reset=1 until=1150")
	// Entries that have left still hold the clock.
	k.peek(2000, "ok t=2000 left=5/5 until=1150")
	k.peek(1, "ok t=1050 left=1/5 reset=100 until=1150")
}

func TestLogRefund(t *testing.T) {
	k := newKey(t, log(5, 100))
	a := k.take(1000, 2, "ok t=1000 left=3/5 reset=100 until=1100")
	b := k.take(1000, 1, "ok t=1000 left=2/5 reset=100 until=1100")
	c := k.take(1040, 1, "ok t=1040 left=1/5 reset=100 until=1140")
	k.Refund(1050, b) // one of two charges at one instant
	k.peek(1050, "ok t=1050 left=2/5 reset=90 until=1140")
	k.peek(1100, "ok t=1100 left=4/5 reset=40 until=1140")
	k.Refund(1050, c) // the newest goes: the log ends, and the clock is held, where the one before is
	k.peek(1050, "ok t=1050 left=3/5 reset=50 until=1140")
	k.peek(990, "ok t=1000 left=3/5 reset=100 until=1140")
	k.Refund(1050, a)
	k.peek(990, "ok t=990 left=5/5")

	// Entries removed by a later charge give nothing back; others are not touched for them.
	k = newKey(t, log(5, 100))
	a = k.take(1000, 2, "ok t=1000 left=3/5 reset=100 until=1100")
	k.take(1100, 2, "ok t=1100 left=3/5 reset=100 until=1200")
	k.Refund(1100, a)
	k.peek(1100, "ok t=1100 left=3/5 reset=100 until=1200")
}

func TestLogChange(t *testing.T) {
	k := newKey(t, log(5, 100))
	k.take(1000, 2, "ok t=1000 left=3/5 reset=100 until=1100")
	k.take(1050, 2, "ok t=1050 left=1/5 reset=100 until=1150")
	k.Change(log(3, 100))
	k.take(1060, 1, "no t=1060 left=0/3 retry=40 reset=90 until=1150")
	k.take(1060, 2, "no t=1060 left=0/3 retry=90 reset=90 until=1150")
	k.Change(log(5, 20))
	k.peek(1080, "ok t=1080 left=5/5 until=1150")
	k.Change(log(5, 100)) // nothing was removed: no charge came under 20
	k.peek(1080, "ok t=1080 left=1/5 reset=70 until=1150")
	k.Change(log(5, 60))
	k.take(1080, 1, "ok t=1080 left=2/5 reset=60 until=1140") // removes what was at 1020 and before
	k.Change(log(5, 1000))
	k.peek(1080, "ok t=1080 left=2/5 reset=1000 until=1140") // the two of 1000 are gone for good
	k.peek(2050, "ok t=2050 left=4/5 reset=30 until=1140")
}

func TestLogTakesALargeCount(t *testing.T) {
	k := newKey(t, log(100_000, 1_000_000))
	k.take(0, 100_000, "ok t=0 left=0/100000 reset=1000000 until=1000000")
	k.take(999_999, 1, "no t=999999 left=0/100000 retry=1 reset=1 until=1000000")
	for i := range int64(100_000) { // one by one, each at its own instant
		if !k.Decide(1_000_000+i, 1).Allowed {
			t.Fatalf("unit %d denied", i)
		}
	}
	k.take(1_100_000, 70_000, "no t=1100000 left=0/100000 retry=969999 reset=999999 until=2099999")
}

// A list of all units ever admitted, searched from end to end.
func TestLogAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const count, period = 6, 40
	m := model.New(log(count, period))
	var units []int64
	now := int64(1000)
	for range 20_000 {
		now += r.Int64N(30) - 6
		at := now
		if len(units) > 0 {
			at = max(at, units[len(units)-1])
		}
		in := int64(0)
		for _, u := range units[max(0, len(units)-50):] {
			if u > at-period && u <= at {
				in++
			}
		}
		n := 1 + r.Int64N(3)
		o := m.Decide(now, n)
		if o.Each[0].At != at || o.Allowed != (in+n <= count) {
			t.Fatalf("at %d (%d), %d in the window, n=%d: %s", now, at, in, n, show(o.Each[0]))
		}
		for range n {
			if o.Allowed {
				units = append(units, at)
			}
		}
	}
}
