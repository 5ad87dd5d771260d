package model_test

import (
	"fmt"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

// held returns l with a hold of 60 µs: expiries are multiples of 10.
func held(l model.Limit) model.Limit {
	l.Hold = 60
	return l
}

func (k key) reserve(now, n int64, want ...string) model.Outcome {
	k.t.Helper()
	o := k.Reserve(now, n)
	k.check(fmt.Sprintf("Reserve(%d, %d)", now, n), o, want)
	return o
}

func TestExpiry(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		limit     model.Limit
		now, want int64
	}{
		{held(fixed(1, 1)), 1000, 1060},
		{held(fixed(1, 1)), 1001, 1070},
		{held(fixed(1, 1)), 1009, 1070},
		{held(fixed(1, 1)), 1010, 1070},
		{held(fixed(1, 1)), -75, -10},
		{model.Limit{Algorithm: model.FixedWindow, Count: 1, Period: 1, Hold: 65}, 1000, 1070}, // by tens
		{model.Limit{Algorithm: model.FixedWindow, Count: 1, Period: 1, Hold: 5}, 1000, 1005},
		{fixed(1, 3600*second), 0, 60 * second},
		{fixed(1, 6*second), 1, 7 * second},
		{fixed(1, 1), 0, 166_666 * 7},                                   // a second, rounded up
		{bucketOf(model.GCRA, 3, 10*second, 2), 0, 1_111_111 * 7},       // 6,666,667 µs
		{bucketOf(model.TokenBucket, 3, second, 1000), 0, 60 * second},  // 333 s
		{bucketOf(model.TokenBucket, 1000, second, 10), 0, 166_666 * 7}, // 10 ms
	} {
		if got := c.limit.Expiry(c.now); got != c.want {
			t.Errorf("%+v at %d: expires at %d, want %d", c.limit, c.now, got, c.want)
		}
	}
}

// What is held counts as if it were charged now, and is charged when it is settled.
func TestHeldUnitsCount(t *testing.T) {
	k := newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a := k.reserve(1000, 3, "ok t=1000 left=1/4 reset=30") // nothing is charged
	k.peek(1030, "ok t=1030 left=1/4 reset=30")            // and nothing drains
	k.take(1030, 2, "no t=1030 left=1/4 retry=10 reset=30")
	k.reserve(1030, 2, "no t=1030 left=1/4 retry=10 reset=30")
	k.take(1030, 5, "never t=1030 left=1/4 reset=30")
	k.take(1030, 0, "ok t=1030 left=1/4 reset=30")
	k.take(1030, 1, "ok t=1030 left=0/4 reset=40 until=1040")
	k.Settle(1035, a, 2) // 0.5 + 2
	k.peek(1035, "ok t=1035 left=1/4 reset=25 until=1060")
	k.Settle(1035, a, 2)
	k.Refund(1035, a)
	k.peek(1035, "ok t=1035 left=1/4 reset=25 until=1060")

	// The limit of each is its own: the window opens when something is charged.
	k = newKey(t, held(fixed(4, 100)))
	a = k.reserve(1000, 3, "ok t=1000 left=1/4 reset=100")
	k.peek(1020, "ok t=1020 left=1/4 reset=100")
	k.take(1020, 2, "no t=1020 left=1/4 retry=100 reset=100")
	b := k.take(1030, 1, "ok t=1030 left=0/4 reset=100 until=1130")
	k.take(1040, 1, "no t=1040 left=0/4 retry=90 reset=90 until=1130")
	k.Settle(1050, a, 0)
	k.peek(1050, "ok t=1050 left=3/4 reset=80 until=1130")
	k.Refund(1050, b)
	k.peek(1050, "ok t=1050 left=4/4")

	k = newKey(t, held(log(4, 100)))
	k.take(1000, 1, "ok t=1000 left=3/4 reset=100 until=1100")
	k.reserve(1010, 2, "ok t=1010 left=1/4 reset=100 until=1100")
	k.take(1020, 2, "no t=1020 left=1/4 retry=80 reset=100 until=1100") // when the one has left
	k.take(1020, 3, "no t=1020 left=1/4 retry=100 reset=100 until=1100")

	k = newKey(t, held(counter(10, 100)))
	k.take(1090, 5, "ok t=1090 left=5/10 reset=110 until=1200")
	k.reserve(1120, 2, "ok t=1120 left=4/10 reset=180 until=1200") // 5*0.8 + 2
	// 5*(1-e/100) + 2 + 5 <= 10 from e = 40.
	k.take(1120, 5, "no t=1120 left=4/10 retry=20 reset=180 until=1200")
}

// A settlement charges what it costs, whether it fits or not.
func TestSettleForMoreIsADebt(t *testing.T) {
	k := newKey(t, held(bucketOf(model.GCRA, 1, 10, 4)))
	k.Settle(1000, k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10"), 7)
	k.take(1000, 1, "no t=1000 left=0/4 retry=40 reset=70 until=1070")
	k.take(1000, 0, "ok t=1000 left=0/4 reset=70 until=1070")
	k.take(1039, 1, "no t=1039 left=0/4 retry=1 reset=31 until=1070")
	k.take(1040, 1, "ok t=1040 left=0/4 reset=40 until=1080")

	k = newKey(t, held(fixed(4, 100)))
	k.Settle(1010, k.reserve(1000, 1, "ok t=1000 left=3/4 reset=100"), 7)
	k.take(1010, 1, "no t=1010 left=0/4 retry=100 reset=100 until=1110")
	k.take(1110, 4, "ok t=1110 left=0/4 reset=100 until=1210")

	k = newKey(t, held(counter(4, 100)))
	k.Settle(1050, k.reserve(1000, 1, "ok t=1000 left=3/4 reset=200"), 8)
	// 8*(1-e/100) <= 3 in the next window, e >= 62.5.
	k.take(1050, 1, "no t=1050 left=0/4 retry=113 reset=150 until=1200")
	k.take(1150, 1, "no t=1150 left=0/4 retry=13 reset=50 until=1200")
	k.take(1163, 1, "ok t=1163 left=0/4 reset=137 until=1300")

	k = newKey(t, held(log(4, 100)))
	k.take(1000, 2, "ok t=1000 left=2/4 reset=100 until=1100")
	k.Settle(1010, k.reserve(1000, 1, "ok t=1000 left=1/4 reset=100 until=1100"), 7) // adds 4
	k.take(1010, 1, "no t=1010 left=0/4 retry=100 reset=100 until=1110")
	k.take(1110, 4, "ok t=1110 left=0/4 reset=100 until=1210")

	// Nothing was held, and it has a cost.
	k = newKey(t, held(fixed(4, 100)))
	k.Settle(1010, k.reserve(1000, 0, "ok t=1000 left=4/4"), 3)
	k.peek(1010, "ok t=1010 left=1/4 reset=100 until=1110")
}

// Expired holds are charged at their expiries, and what a late settlement says counts
// only beyond that.
func TestHoldsExpire(t *testing.T) {
	k := newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a := k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10")
	b := k.reserve(1001, 2, "ok t=1001 left=1/4 reset=30")
	k.peek(1059, "ok t=1059 left=1/4 reset=30")
	k.peek(1060, "ok t=1060 left=1/4 reset=30 until=1070")
	k.peek(1065, "ok t=1065 left=1/4 reset=25 until=1070")
	k.peek(1075, "ok t=1075 left=2/4 reset=15 until=1090") // charged at 1070, when the first was gone
	k.Settle(1075, a, 1)
	k.Settle(1075, b, 0)
	k.peek(1075, "ok t=1075 left=2/4 reset=15 until=1090")

	k = newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a = k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10")
	k.Settle(1060, a, 3) // now is the expiry: one is charged by it, and two are due
	k.peek(1060, "ok t=1060 left=1/4 reset=30 until=1090")

	k = newKey(t, held(fixed(4, 100)))
	a = k.reserve(1000, 3, "ok t=1000 left=1/4 reset=100")
	k.take(1200, 2, "ok t=1200 left=2/4 reset=100 until=1300") // its window was [1060, 1160)
	k.Settle(1200, a, 4)
	k.peek(1200, "ok t=1200 left=1/4 reset=100 until=1300")

	k = newKey(t, held(fixed(4, 100)))
	k.reserve(1000, 3, "ok t=1000 left=1/4 reset=100")
	k.take(1159, 2, "no t=1159 left=1/4 retry=1 reset=1 until=1160")

	// At the newest instant stored, where the clock had stepped back.
	k = newKey(t, held(log(4, 100)))
	k.take(1100, 1, "ok t=1100 left=3/4 reset=100 until=1200")
	k.reserve(1000, 2, "ok t=1100 left=1/4 reset=100 until=1200")
	k.peek(1199, "ok t=1199 left=1/4 reset=1 until=1200")
	k.peek(1200, "ok t=1200 left=4/4 until=1200")

	// A step back does not bring back what was charged.
	k = newKey(t, held(bucketOf(model.GCRA, 1, 10, 4)))
	a = k.reserve(1000, 2, "ok t=1000 left=2/4 reset=20")
	k.peek(1060, "ok t=1060 left=2/4 reset=20 until=1080")
	k.peek(1050, "ok t=1050 left=1/4 reset=30 until=1080")
	k.Settle(1050, a, 2)
	k.peek(1050, "ok t=1050 left=1/4 reset=30 until=1080")

	// Nor is what is held after it taken for that.
	k = newKey(t, held(fixed(4, 100)))
	k.reserve(1000, 1, "ok t=1000 left=3/4 reset=100")
	k.peek(1070, "ok t=1070 left=3/4 reset=90 until=1160")
	a = k.reserve(1001, 1, "ok t=1060 left=2/4 reset=100 until=1160") // until 1061, and not until 1060
	k.Settle(1002, a, 0)
	k.peek(1070, "ok t=1070 left=3/4 reset=90 until=1160")
	k.reserve(1001, 1, "ok t=1060 left=2/4 reset=100 until=1160")
	k.peek(1160, "ok t=1160 left=4/4 until=1160") // charged at 1061
}

// A settlement takes from its own expiry's units only.
func TestSettleTakesFromItsOwnExpiry(t *testing.T) {
	k := newKey(t, held(log(4, 100)))
	a := k.reserve(1000, 1, "ok t=1000 left=3/4 reset=100")
	b := k.reserve(1020, 1, "ok t=1020 left=2/4 reset=100")
	c := k.reserve(1020, 1, "ok t=1020 left=1/4 reset=100")
	k.Settle(1060, a, 0) // charged at 1060
	k.peek(1060, "ok t=1060 left=1/4 reset=100 until=1160")
	k.Settle(1070, b, 0)
	k.peek(1070, "ok t=1070 left=2/4 reset=100 until=1160")
	k.peek(1080, "ok t=1080 left=2/4 reset=100 until=1180") // c expired
	k.Settle(1080, c, 1)
	k.peek(1159, "ok t=1159 left=2/4 reset=21 until=1180")
	k.peek(1160, "ok t=1160 left=3/4 reset=20 until=1180")
}

func TestResetKeepsWhatIsHeld(t *testing.T) {
	k := newKey(t, held(fixed(4, 100)))
	old := k.take(1000, 2, "ok t=1000 left=2/4 reset=100 until=1100")
	a := k.reserve(1000, 1, "ok t=1000 left=1/4 reset=100 until=1100")
	k.reserve(995, 1, "ok t=1000 left=0/4 reset=100 until=1100") // expires with a
	k.Reset(1010)
	k.peek(1010, "ok t=1010 left=2/4 reset=100")
	k.take(1010, 2, "ok t=1010 left=0/4 reset=100 until=1110")
	k.Refund(1010, old) // forgotten
	k.peek(1010, "no t=1010 left=0/4 retry=100 reset=100 until=1110")
	k.Settle(1020, a, 0)
	k.peek(1020, "ok t=1020 left=1/4 reset=90 until=1110")
	k.Reset(1060) // what has expired is charged, and so forgotten
	k.peek(1060, "ok t=1060 left=4/4")

	// The charge of a window that begins as the forgotten one is another's.
	for _, l := range model.EveryLimit() {
		k := newKey(t, l)
		old := k.Decide(1000, 5)
		k.Reset(1000)
		k.Decide(1000, 5)
		k.Refund(1000, old)
		if k.Decide(1000, 1).Allowed {
			t.Errorf("%+v: the refund of what was forgotten gave back what was charged since", l)
		}
	}
}

// What is lost is charged in full, and what others hold since is not taken for it.
func TestLostHolds(t *testing.T) {
	k := newKey(t, held(log(4, 100)))
	a := k.reserve(1000, 2, "ok t=1000 left=2/4 reset=100")
	k.Lose(0, false, true)
	b := k.reserve(1000, 2, "ok t=1000 left=2/4 reset=100")
	k.Settle(1010, a, 1)
	k.peek(1010, "ok t=1010 left=1/4 reset=100 until=1110")
	k.Lose(0, true, false)
	k.peek(1010, "ok t=1010 left=2/4 reset=100")
	k.Settle(1010, b, 0)
	k.peek(1010, "ok t=1010 left=4/4")
}

// Held units keep the limit that they were reserved under.
func TestHoldsAndChange(t *testing.T) {
	k := newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a := k.reserve(1000, 4, "ok t=1000 left=0/4 reset=40")
	k.Change(held(bucketOf(model.TokenBucket, 1, 100, 2)))
	k.take(1000, 1, "no t=1000 left=0/2 retry=300 reset=400")
	k.Settle(1000, a, 4)
	// Charged at the old rate; a debt of another rate is at most the capacity.
	k.take(1000, 1, "no t=1000 left=0/2 retry=100 reset=200 until=1040")
	k.take(1030, 1, "ok t=1030 left=0/2 reset=200 until=1230")
}

func TestQueuesHoldNothing(t *testing.T) {
	l := held(bucketOf(model.LeakyBucket, 1, 10, 4))
	k := newKey(t, l, held(bucketOf(model.GCRA, 1, 10, 4)))
	a := k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10 until=1010", "ok t=1000 left=3/4 reset=10")
	k.Settle(1000, a, 3) // keeps its place
	k.peek(1000, "ok t=1000 left=3/4 reset=10 delay=10 until=1010", "ok t=1000 left=1/4 reset=30 until=1030")
	b := k.reserve(1000, 2, "ok t=1000 left=3/4 reset=10 until=1010", "no t=1000 left=1/4 retry=10 reset=30 until=1030")
	k.Settle(1000, b, 2)
	c := k.reserve(1000, 1, "ok t=1000 left=2/4 reset=20 delay=10 until=1020", "ok t=1000 left=0/4 reset=40 until=1030")
	k.Refund(1000, c) // is to settle it at 0
	k.peek(1000, "ok t=1000 left=3/4 reset=10 delay=10 until=1010", "ok t=1000 left=1/4 reset=30 until=1030")
	d := k.reserve(1000, 0, "ok t=1000 left=3/4 reset=10 until=1010", "ok t=1000 left=1/4 reset=30 until=1030")
	k.Settle(1000, d, 0)
	k.peek(1000, "ok t=1000 left=3/4 reset=10 delay=10 until=1010", "ok t=1000 left=1/4 reset=30 until=1030")
}
