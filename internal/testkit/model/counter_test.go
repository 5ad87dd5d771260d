package model_test

import (
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

func counter(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.SlidingWindowCounter, Count: count, Period: period}
}

func TestCounterWeighsThePreviousWindow(t *testing.T) {
	k := newKey(t, counter(10, 100))
	k.take(1090, 11, "never t=1090 left=10/10")
	k.take(1090, 8, "ok t=1090 left=2/10 reset=110 until=1200")
	// c = 8: 3 fit when 8*(1-e/100) <= 7 in the next window, e >= 12.5.
	k.take(1090, 3, "no t=1090 left=2/10 retry=23 reset=110 until=1200")
	k.take(1112, 3, "no t=1112 left=2/10 retry=1 reset=88 until=1200") // 7.04
	k.take(1113, 3, "ok t=1113 left=0/10 reset=187 until=1300")        // 6.96 + 3
	// 8*(1-e/100) + 3 + 1 <= 10 from e = 25.
	k.take(1113, 1, "no t=1113 left=0/10 retry=12 reset=187 until=1300")
	k.take(1125, 1, "ok t=1125 left=0/10 reset=175 until=1300") // 6 + 4
	k.take(1126, 1, "no t=1126 left=0/10 retry=12 reset=174 until=1300")
	// c + n is 10, so p must be gone: the first instant is that of the next window.
	k.take(1126, 6, "no t=1126 left=0/10 retry=74 reset=174 until=1300")
	// c + n is above 10: in the next window, 4*(1-e/100) <= 3.
	k.take(1126, 7, "no t=1126 left=0/10 retry=99 reset=174 until=1300")
	// All of 10: when c has faded out entirely, two windows on.
	k.take(1126, 10, "no t=1126 left=0/10 retry=174 reset=174 until=1300")
	k.peek(1199, "ok t=1199 left=5/10 reset=101 until=1300") // 10 - 0.08 - 4
	k.peek(1200, "ok t=1200 left=6/10 reset=100 until=1300")
	k.peek(1299, "ok t=1299 left=9/10 reset=1 until=1300")
	k.peek(1300, "ok t=1300 left=10/10 until=1300")
	k.take(1300, 10, "ok t=1300 left=0/10 reset=200 until=1500")
}

func TestCounterClockBack(t *testing.T) {
	k := newKey(t, counter(10, 100))
	k.take(1090, 8, "ok t=1090 left=2/10 reset=110 until=1200")
	k.take(1150, 2, "ok t=1150 left=4/10 reset=150 until=1300")
	// Within the window t follows, so more of the previous one counts again.
	k.peek(1125, "ok t=1125 left=2/10 reset=175 until=1300")
	// Not before its start.
	k.take(1050, 1, "no t=1100 left=0/10 retry=13 reset=200 until=1300")
	k.peek(5000, "ok t=5000 left=10/10 until=1300")
	k.take(900, 1, "no t=1100 left=0/10 retry=13 reset=200 until=1300")
}

func TestCounterRefund(t *testing.T) {
	k := newKey(t, counter(10, 100))
	a := k.take(1090, 5, "ok t=1090 left=5/10 reset=110 until=1200")
	b := k.take(1095, 3, "ok t=1095 left=2/10 reset=105 until=1200")
	k.Refund(1099, b) // from c
	k.peek(1099, "ok t=1099 left=5/10 reset=101 until=1200")
	c := k.take(1150, 2, "ok t=1150 left=5/10 reset=150 until=1300") // 2.5 + 2
	k.Refund(1150, a)                                                // not from p
	k.peek(1150, "ok t=1150 left=5/10 reset=150 until=1300")
	k.Refund(1150, c)
	k.peek(1150, "ok t=1150 left=7/10 reset=50 until=1300")

	// The last single unit.
	k = newKey(t, counter(10, 100))
	a = k.take(1090, 1, "ok t=1090 left=9/10 reset=110 until=1200")
	k.peek(1199, "ok t=1199 left=9/10 reset=1 until=1200")
	k.Refund(1199, a) // another window
	k.peek(1199, "ok t=1199 left=9/10 reset=1 until=1200")
	k.Refund(1090, a)
	k.peek(1090, "ok t=1090 left=9/10 reset=110 until=1200")

	// Two windows on nothing is left to give back, and nothing is written.
	k = newKey(t, counter(10, 100))
	a = k.take(1090, 5, "ok t=1090 left=5/10 reset=110 until=1200")
	k.Refund(1200, a)
	k.peek(1099, "ok t=1099 left=5/10 reset=101 until=1200")
	k.take(1250, 1, "ok t=1250 left=9/10 reset=150 until=1400")
	k.peek(1250, "ok t=1250 left=9/10 reset=150 until=1400")
}

func TestCounterChange(t *testing.T) {
	k := newKey(t, counter(10, 100))
	a := k.take(1290, 8, "ok t=1290 left=2/10 reset=110 until=1400")
	k.Change(counter(5, 100))
	k.take(1290, 1, "no t=1290 left=0/5 retry=60 reset=110 until=1400") // 8*(1-e/100) <= 4
	k.Change(counter(20, 100))
	k.take(1290, 1, "ok t=1290 left=11/20 reset=110 until=1400")
	k.Change(counter(20, 200))
	k.peek(1290, "ok t=1290 left=20/20 until=1400")
	k.peek(1000, "ok t=1200 left=20/20 until=1400") // the clock is held
	k.Change(counter(20, 100))
	k.peek(1290, "ok t=1290 left=11/20 reset=110 until=1400")
	k.Change(counter(20, 200))
	k.take(1290, 3, "ok t=1290 left=17/20 reset=310 until=1600")
	k.Refund(1290, a) // started at 1200 as well, but on the other grid
	k.peek(1290, "ok t=1290 left=17/20 reset=310 until=1600")

	k = newKey(t, counter(10, 100))
	a = k.take(1290, 4, "ok t=1290 left=6/10 reset=110 until=1400")
	k.Change(counter(10, 200))
	k.take(1290, 3, "ok t=1290 left=7/10 reset=310 until=1600")
	k.Change(counter(10, 100))
	k.Refund(1290, a) // on the grid of now, but the state is not
	k.peek(1290, "ok t=1290 left=10/10 until=1600")
	k.Change(counter(10, 200))
	k.peek(1290, "ok t=1290 left=7/10 reset=310 until=1600")
}
