package model_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

func fixed(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.FixedWindow, Count: count, Period: period}
}

func aligned(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.FixedWindow, Count: count, Period: period, Aligned: true}
}

func TestFixedWindowOpensWithItsFirstCharge(t *testing.T) {
	k := newKey(t, fixed(3, 100))
	k.take(1000, 4, "never t=1000 left=3/3")
	k.take(1005, 0, "ok t=1005 left=3/3")
	k.take(1010, 2, "ok t=1010 left=1/3 reset=100 until=1110")
	k.take(1050, 2, "no t=1050 left=1/3 retry=60 reset=60 until=1110")
	k.take(1050, 1, "ok t=1050 left=0/3 reset=60 until=1110")
	k.take(1109, 1, "no t=1109 left=0/3 retry=1 reset=1 until=1110")
	k.peek(1110, "ok t=1110 left=3/3 until=1110") // the end instant is outside
	k.take(1110, 3, "ok t=1110 left=0/3 reset=100 until=1210")
}

func TestFixedWindowClockBack(t *testing.T) {
	k := newKey(t, fixed(3, 100))
	k.take(1000, 1, "ok t=1000 left=2/3 reset=100 until=1100")
	k.take(950, 1, "ok t=1000 left=1/3 reset=100 until=1100")
	// Closed windows hold the clock too.
	k.take(1200, 3, "ok t=1200 left=0/3 reset=100 until=1300")
	k.peek(1400, "ok t=1400 left=3/3 until=1300")
	k.take(1050, 1, "no t=1200 left=0/3 retry=100 reset=100 until=1300")
}

func TestFixedWindowRefund(t *testing.T) {
	k := newKey(t, fixed(3, 100))
	a := k.take(1000, 2, "ok t=1000 left=1/3 reset=100 until=1100")
	b := k.take(1040, 1, "ok t=1040 left=0/3 reset=60 until=1100")
	k.Refund(1050, a)
	k.peek(1050, "ok t=1050 left=2/3 reset=50 until=1100") // the window stays where it is
	k.Refund(1060, b)
	k.peek(1060, "ok t=1060 left=3/3") // none left: closed, and the clock is free
	k.take(1030, 1, "ok t=1030 left=2/3 reset=100 until=1130")

	k = newKey(t, fixed(3, 100))
	late := k.take(1000, 2, "ok t=1000 left=1/3 reset=100 until=1100")
	k.Refund(1100, late)
	k.peek(1050, "ok t=1050 left=1/3 reset=50 until=1100") // was closed then, and is spent
	k.Refund(1050, late)
	k.peek(1050, "ok t=1050 left=1/3 reset=50 until=1100")

	k = newKey(t, fixed(3, 100))
	old := k.take(1000, 2, "ok t=1000 left=1/3 reset=100 until=1100")
	k.take(1100, 2, "ok t=1100 left=1/3 reset=100 until=1200")
	k.Refund(1110, old) // another window's units
	k.peek(1110, "ok t=1110 left=1/3 reset=90 until=1200")

	k = newKey(t, fixed(3, 100))
	o := k.take(1000, 2, "ok t=1000 left=1/3 reset=100 until=1100")
	k.Refund(500, o) // t is 1000: the window is open
	k.peek(500, "ok t=500 left=3/3")
}

func TestFixedWindowChange(t *testing.T) {
	k := newKey(t, fixed(3, 100))
	k.take(1000, 3, "ok t=1000 left=0/3 reset=100 until=1100")
	k.Change(fixed(5, 30)) // the open end stays, the units stay, the count is new
	k.take(1050, 1, "ok t=1050 left=1/5 reset=50 until=1100")
	k.Change(fixed(2, 1000))
	k.take(1099, 1, "no t=1099 left=0/2 retry=1 reset=1 until=1100")
	k.take(1099, 3, "never t=1099 left=0/2 reset=1 until=1100")
	o := k.take(1100, 1, "ok t=1100 left=1/2 reset=1000 until=2100")
	k.Change(fixed(2, 10))
	k.Refund(1500, o) // still the same open window
	k.peek(1500, "ok t=1500 left=2/2")
}

func TestAlignedWindows(t *testing.T) {
	k := newKey(t, aligned(3, 100))
	k.take(1090, 2, "ok t=1090 left=1/3 reset=10 until=1100")
	k.take(1099, 2, "no t=1099 left=1/3 retry=1 reset=1 until=1100")
	k.take(1100, 3, "ok t=1100 left=0/3 reset=100 until=1200")
	k.take(1050, 1, "no t=1100 left=0/3 retry=100 reset=100 until=1200")
	k.peek(1200, "ok t=1200 left=3/3 until=1200")
	k.take(1350, 1, "ok t=1350 left=2/3 reset=50 until=1400")

	before := newKey(t, aligned(1, 100))
	before.take(-30, 1, "ok t=-30 left=0/1 reset=30 until=0")
}

func TestAlignedChangeOfPeriodStartsAfresh(t *testing.T) {
	k := newKey(t, aligned(3, 100))
	a := k.take(1250, 3, "ok t=1250 left=0/3 reset=50 until=1300")
	k.Change(aligned(3, 200)) // the new grid has a window from 1200 too, but not that one
	k.peek(1250, "ok t=1250 left=3/3 until=1300")
	k.peek(1150, "ok t=1200 left=3/3 until=1300") // the clock is still held
	k.Change(aligned(4, 100))                     // and back: nothing was written meanwhile
	k.peek(1250, "ok t=1250 left=1/4 reset=50 until=1300")
	k.Change(aligned(3, 200))
	k.take(1250, 1, "ok t=1250 left=2/3 reset=150 until=1400")
	k.Refund(1250, a) // of a window that is gone
	k.peek(1250, "ok t=1250 left=2/3 reset=150 until=1400")
}

func TestAlignedRefund(t *testing.T) {
	k := newKey(t, aligned(3, 100))
	a := k.take(1250, 1, "ok t=1250 left=2/3 reset=50 until=1300")
	b := k.take(1260, 1, "ok t=1260 left=1/3 reset=40 until=1300")
	k.Refund(1299, a)
	k.peek(1299, "ok t=1299 left=2/3 reset=1 until=1300")
	k.Refund(1300, b)
	k.peek(1299, "ok t=1299 left=2/3 reset=1 until=1300")
}
