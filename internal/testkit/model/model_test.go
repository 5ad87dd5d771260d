package model_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

// show writes every field of a verdict, so that an expectation states all of them.
// The zero fields are left out; "left" is Remaining/Limit.
func show(v model.Verdict) string {
	var b strings.Builder
	switch {
	case v.Admits && v.Never:
		b.WriteString("contradiction")
	case v.Admits:
		b.WriteString("ok")
	case v.Never:
		b.WriteString("never")
	default:
		b.WriteString("no")
	}
	fmt.Fprintf(&b, " t=%d left=%d/%d", v.At, v.Remaining, v.Limit)
	for _, f := range []struct {
		name string
		r    *big.Rat
	}{{"retry", v.RetryAfter}, {"reset", v.ResetAfter}, {"delay", v.Delay}} {
		if f.r.Sign() != 0 {
			fmt.Fprintf(&b, " %s=%s", f.name, f.r.RatString())
		}
	}
	return b.String()
}

// key is a model under test; each call states what every limit must answer. The numbers
// are worked out by hand, and pin the model to docs/algorithms.md. The properties of
// suite/conformance compare the library with the model.
type key struct {
	t *testing.T
	*model.Model
}

func newKey(t *testing.T, limits ...model.Limit) key { return key{t, model.New(limits...)} }

func (k key) take(now, n int64, want ...string) model.Outcome {
	k.t.Helper()
	o := k.Decide(now, n)
	k.check(fmt.Sprintf("Decide(%d, %d)", now, n), o, want)
	return o
}

func (k key) peek(now int64, want ...string) {
	k.t.Helper()
	k.check(fmt.Sprintf("Peek(%d)", now), k.Peek(now), want)
}

func (k key) check(call string, o model.Outcome, want []string) {
	k.t.Helper()
	if len(o.Each) != len(want) {
		k.t.Fatalf("%s: %d verdicts, want %d", call, len(o.Each), len(want))
	}
	all := true
	for i, v := range o.Each {
		all = all && v.Admits
		if got := show(v); got != want[i] {
			k.t.Errorf("%s, limit %d:\n got %s\nwant %s", call, i, got, want[i])
		}
	}
	if o.Allowed != all {
		k.t.Errorf("%s: Allowed is %v, the limits say %v", call, o.Allowed, all)
	}
}

func (k key) reserve(now, n int64, want ...string) model.Outcome {
	k.t.Helper()
	o := k.Reserve(now, n)
	k.check(fmt.Sprintf("Reserve(%d, %d)", now, n), o, want)
	return o
}

func fixed(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.FixedWindow, Count: count, Period: period}
}

func log(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.SlidingWindowLog, Count: count, Period: period}
}

func counter(count, period int64) model.Limit {
	return model.Limit{Algorithm: model.SlidingWindowCounter, Count: count, Period: period}
}

func bucketOf(a model.Algorithm, count, period, burst int64) model.Limit {
	return model.Limit{Algorithm: a, Count: count, Period: period, Burst: burst}
}

// held returns l with a hold of 60 µs: expiries are multiples of 10.
func held(l model.Limit) model.Limit {
	l.Hold = 60
	return l
}

func TestFixedWindow(t *testing.T) {
	k := newKey(t, fixed(3, 100))
	k.take(1000, 4, "never t=1000 left=3/3")
	k.take(1005, 0, "ok t=1005 left=3/3")
	a := k.take(1010, 2, "ok t=1010 left=1/3 reset=100") // opens the window
	k.take(1050, 2, "no t=1050 left=1/3 retry=60 reset=60")
	k.take(950, 1, "ok t=1010 left=0/3 reset=100") // the clock is held
	k.Refund(1060, a)
	k.peek(1060, "ok t=1060 left=2/3 reset=50") // the window stays where it is
	k.peek(1110, "ok t=1110 left=3/3")          // the end instant is outside
	k.take(1110, 3, "ok t=1110 left=0/3 reset=100")
	k.Change(fixed(5, 30)) // the open end stays, the units stay, the count is new
	k.take(1150, 1, "ok t=1150 left=1/5 reset=60")

	aligned := fixed(3, 100)
	aligned.Aligned = true
	k = newKey(t, aligned)
	k.take(1090, 2, "ok t=1090 left=1/3 reset=10")
	k.take(1100, 3, "ok t=1100 left=0/3 reset=100")
	k.take(1050, 1, "no t=1100 left=0/3 retry=100 reset=100")
	k.peek(1200, "ok t=1200 left=3/3")
}

func TestSlidingWindowLog(t *testing.T) {
	k := newKey(t, log(5, 100))
	a := k.take(1000, 2, "ok t=1000 left=3/5 reset=100")
	k.take(1030, 1, "ok t=1030 left=2/5 reset=100")
	k.take(1060, 2, "ok t=1060 left=0/5 reset=100")
	k.take(1070, 2, "no t=1070 left=0/5 retry=30 reset=90") // the two of 1000
	k.take(1070, 3, "no t=1070 left=0/5 retry=60 reset=90") // and the one of 1030
	k.take(1070, 6, "never t=1070 left=0/5 reset=90")
	k.take(900, 1, "no t=1060 left=0/5 retry=40 reset=100") // the clock is held
	k.peek(1100, "ok t=1100 left=2/5 reset=60")             // (t-T, t] excludes 1000
	k.Refund(1070, a)
	k.peek(1070, "ok t=1070 left=2/5 reset=90")
	k.peek(1160, "ok t=1160 left=5/5")
}

func TestSlidingWindowCounter(t *testing.T) {
	k := newKey(t, counter(10, 100))
	k.take(1090, 8, "ok t=1090 left=2/10 reset=110")
	// 3 fit when 8*(1-e/100) <= 7 in the next window, e >= 12.5.
	k.take(1090, 3, "no t=1090 left=2/10 retry=23 reset=110")
	a := k.take(1113, 3, "ok t=1113 left=0/10 reset=187")  // 6.96 + 3
	k.peek(1050, "no t=1100 left=0/10 retry=25 reset=200") // not before the window: 8 + 3
	k.take(1125, 1, "ok t=1125 left=0/10 reset=175")       // 6 + 4
	k.take(1126, 7, "no t=1126 left=0/10 retry=99 reset=174")
	k.peek(1199, "ok t=1199 left=5/10 reset=101") // 10 - 0.08 - 4
	k.Refund(1199, a)
	k.peek(1199, "ok t=1199 left=8/10 reset=101")
	k.peek(1300, "ok t=1300 left=10/10")
}

func TestBuckets(t *testing.T) {
	for _, a := range []model.Algorithm{model.TokenBucket, model.LeakyBucket, model.GCRA} {
		t.Run(string(a), func(t *testing.T) {
			delay := func(d string) string {
				if a == model.LeakyBucket { // its units wait for those before them
					return " delay=" + d
				}
				return ""
			}
			k := newKey(t, bucketOf(a, 3, 10, 4)) // a unit every 10/3 µs
			k.take(1000, 5, "never t=1000 left=4/4")
			k.take(1000, 3, "ok t=1000 left=1/4 reset=10")
			k.take(1002, 2, "no t=1002 left=1/4 retry=4/3 reset=8") // used 3 - 0.6 = 2.4
			k.peek(1004, "ok t=1004 left=2/4 reset=6"+delay("6")+"")
			last := k.take(1004, 2, "ok t=1004 left=0/4 reset=38/3"+delay("6")+"") // 1.8 + 2
			k.peek(1005, "no t=1005 left=0/4 retry=5/3 reset=35/3")
			k.peek(1000, "no t=1000 left=0/4 retry=20/3 reset=50/3") // a step back
			k.Refund(1005, last)
			k.peek(1005, "ok t=1005 left=2/4 reset=5"+delay("5")+"")
			k.peek(1010, "ok t=1010 left=4/4")

			k = newKey(t, bucketOf(a, 1, 10, 4))
			first := k.take(1000, 1, "ok t=1000 left=3/4 reset=10")
			k.take(1000, 3, "ok t=1000 left=0/4 reset=40"+delay("10")+"")
			k.Refund(1005, first) // three were charged on top of it
			k.peek(1005, "no t=1005 left=0/4 retry=5 reset=35")
			k.Change(bucketOf(a, 1, 100, 4)) // what is used drains at the old rate
			k.peek(1010, "ok t=1010 left=1/4 reset=300"+delay("300")+"")
			k.Change(bucketOf(a, 1, 100, 2)) // and is at most the capacity
			k.peek(1010, "no t=1010 left=0/2 retry=100 reset=200")
		})
	}
}

// What is taken back of a queue is a free place, unless it has begun or the queue is another.
func TestQueue(t *testing.T) {
	limit := bucketOf(model.LeakyBucket, 1, 10, 8)
	k := newKey(t, limit)
	var at []model.Outcome // at 1000, 1010 to 1060
	for i := range 7 {
		delay := ""
		if i > 0 {
			delay = fmt.Sprintf(" delay=%d", 10*i)
		}
		at = append(at, k.take(1000, 1, fmt.Sprintf("ok t=1000 left=%d/8 reset=%d%s", 7-i, 10*i+10, delay)))
	}
	k.Refund(1000, at[0]) // it has begun
	k.Refund(1000, at[2])
	k.Refund(1000, at[4])
	k.peek(1000, "ok t=1000 left=1/8 reset=70 delay=20")
	k.Refund(1000, at[3]) // the three are one place
	k.peek(1000, "ok t=1000 left=3/8 reset=70 delay=20")
	k.take(1000, 4, "no t=1000 left=3/8 retry=30 reset=70")
	taken := k.take(1000, 2, "ok t=1000 left=1/8 reset=70 delay=20")
	k.take(1000, 1, "ok t=1000 left=1/8 reset=70 delay=40")
	k.Refund(1001, taken)
	k.Refund(1001, at[6]) // the last: the queue is shorter
	k.peek(1001, "ok t=1001 left=2/8 reset=59 delay=19")
	k.take(1021, 2, "ok t=1021 left=2/8 reset=59 delay=39") // one of the free two has begun
	k.peek(1021, "ok t=1021 left=2/8 reset=59 delay=9")
	k.peek(1031, "ok t=1031 left=3/8 reset=49 delay=49")

	k = newKey(t, limit)
	k.take(1000, 1, "ok t=1000 left=7/8 reset=10")
	old := k.take(1000, 1, "ok t=1000 left=6/8 reset=20 delay=10")
	k.Reset(1000)
	k.take(1000, 3, "ok t=1000 left=5/8 reset=30")
	k.Refund(1000, old)
	k.peek(1000, "ok t=1000 left=5/8 reset=30 delay=30")

	k = newKey(t, limit) // another rate is another queue
	k.take(1000, 1, "ok t=1000 left=7/8 reset=10")
	old = k.take(1000, 1, "ok t=1000 left=6/8 reset=20 delay=10")
	last := k.take(1000, 1, "ok t=1000 left=5/8 reset=30 delay=20")
	k.Refund(1000, old)
	k.Change(bucketOf(model.LeakyBucket, 1, 20, 8))
	k.take(1000, 1, "ok t=1000 left=4/8 reset=80 delay=60") // not in the free place
	k.Refund(1000, last)
	k.peek(1000, "ok t=1000 left=4/8 reset=80 delay=80")
}

// At most 128 free places are kept: the latest are dropped.
func TestQueueKeeps(t *testing.T) {
	k := model.New(bucketOf(model.LeakyBucket, 1, 10, 1000))
	var all []model.Outcome
	for range 300 {
		all = append(all, k.Decide(1000, 1))
	}
	for i := 299 - 2; i > 0; i -= 2 { // 149 places of one unit
		k.Refund(1000, all[i])
	}
	free := 0
	for range 149 {
		if d := k.Decide(1000, 1).Each[0].Delay; d.Cmp(big.NewRat(2990, 1)) < 0 {
			free++
			if want := big.NewRat(int64(20*free-10), 1); d.Cmp(want) != 0 {
				t.Errorf("free place %d begins in %v, want %v", free, d, want)
			}
		}
	}
	if free != 128 {
		t.Errorf("%d free places, want 128", free)
	}
}

func TestExpiry(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		limit     model.Limit
		now, want int64
	}{
		{held(fixed(1, 1)), 1000, 1060},
		{held(fixed(1, 1)), 1001, 1070},
		{fixed(1, 3600*second), 0, 60 * second},
		{fixed(1, 1), 0, 166_666 * 7},                             // a second, rounded up
		{bucketOf(model.GCRA, 3, 10*second, 2), 0, 1_111_111 * 7}, // 6,666,667 µs
	} {
		if got := c.limit.Expiry(c.now); got != c.want {
			t.Errorf("%+v at %d: expires at %d, want %d", c.limit, c.now, got, c.want)
		}
	}
}

// What is held counts as if it were charged now. It is charged when it is settled, or expires.
func TestHolds(t *testing.T) {
	k := newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a := k.reserve(1000, 3, "ok t=1000 left=1/4 reset=30") // nothing is charged
	k.peek(1030, "ok t=1030 left=1/4 reset=30")            // and nothing drains
	k.reserve(1030, 2, "no t=1030 left=1/4 retry=10 reset=30")
	k.take(1030, 1, "ok t=1030 left=0/4 reset=40")
	k.Settle(1035, a, 2) // 0.5 + 2
	k.Settle(1035, a, 2)
	k.Refund(1035, a)
	k.peek(1035, "ok t=1035 left=1/4 reset=25")
	k.Settle(1060, k.reserve(1060, 1, "ok t=1060 left=3/4 reset=10"), 7) // a debt
	k.take(1099, 1, "no t=1099 left=0/4 retry=1 reset=31")

	k = newKey(t, held(bucketOf(model.TokenBucket, 1, 10, 4)))
	a = k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10")
	b := k.reserve(1001, 2, "ok t=1001 left=1/4 reset=30")
	k.peek(1060, "ok t=1060 left=1/4 reset=30")
	k.peek(1075, "ok t=1075 left=2/4 reset=15") // charged at 1070, when the first was gone
	k.Settle(1075, a, 1)
	k.Settle(1075, b, 0)
	k.peek(1075, "ok t=1075 left=2/4 reset=15")

	k = newKey(t, held(fixed(4, 100)))
	old := k.take(1000, 2, "ok t=1000 left=2/4 reset=100")
	a = k.reserve(1000, 1, "ok t=1000 left=1/4 reset=100")
	k.Reset(1010) // keeps what is held
	k.peek(1010, "ok t=1010 left=3/4 reset=100")
	k.Refund(1010, old)  // forgotten
	k.Settle(1200, a, 3) // one was charged at 1060, to a window that is over
	k.peek(1200, "ok t=1200 left=2/4 reset=100")

	// At the newest instant stored, where the clock had stepped back.
	k = newKey(t, held(log(4, 100)))
	k.take(1100, 1, "ok t=1100 left=3/4 reset=100")
	k.reserve(1000, 2, "ok t=1100 left=1/4 reset=100")
	k.peek(1199, "ok t=1199 left=1/4 reset=1")
	k.peek(1200, "ok t=1200 left=4/4")

	// What is lost is charged in full, and what others hold since is not taken for it.
	k = newKey(t, held(log(4, 100)))
	a = k.reserve(1000, 2, "ok t=1000 left=2/4 reset=100")
	k.Lose(0)
	k.reserve(1000, 2, "ok t=1000 left=2/4 reset=100")
	k.Settle(1010, a, 1)
	k.peek(1010, "ok t=1010 left=1/4 reset=100")

	// Places in a queue are charged, and taken back by a cost of nothing.
	k = newKey(t, held(bucketOf(model.LeakyBucket, 1, 10, 4)))
	k.Settle(1000, k.reserve(1000, 1, "ok t=1000 left=3/4 reset=10"), 3)
	b = k.reserve(1000, 2, "ok t=1000 left=1/4 reset=30 delay=10")
	k.Settle(1000, b, 0)
	k.peek(1000, "ok t=1000 left=3/4 reset=10 delay=10")
}

func TestSeveralLimitsChargeTogether(t *testing.T) {
	k := newKey(t,
		model.Limit{Algorithm: model.LeakyBucket, Count: 1, Period: 10, Burst: 3},
		model.Limit{Algorithm: model.FixedWindow, Count: 2, Period: 100})
	k.take(1000, 1, "ok t=1000 left=2/3 reset=10", "ok t=1000 left=1/2 reset=100")
	last := k.take(1000, 1, "ok t=1000 left=1/3 reset=20 delay=10", "ok t=1000 left=0/2 reset=100")
	// The window denies: the Verdict of the bucket is that it admits, but it is not
	// charged, and there is no Delay.
	for range 2 {
		k.take(1000, 1, "ok t=1000 left=1/3 reset=20", "no t=1000 left=0/2 retry=100 reset=100")
	}
	// Above one capacity and not the other.
	k.take(1000, 3, "no t=1000 left=1/3 retry=20 reset=20", "never t=1000 left=0/2 reset=100")
	k.take(1000, 4, "never t=1000 left=1/3 reset=20", "never t=1000 left=0/2 reset=100")

	denied := k.Decide(1000, 1)
	k.Refund(1000, denied)
	k.peek(1000, "ok t=1000 left=1/3 reset=20", "no t=1000 left=0/2 retry=100 reset=100")

	// All limits get their units back, once, whichever copy is used.
	again := last
	k.Refund(1000, last)
	k.Refund(1000, again)
	k.peek(1000, "ok t=1000 left=2/3 reset=10 delay=10", "ok t=1000 left=1/2 reset=100")
}

// TestBans has levels rise, repeat and be forgotten, by a limit of one unit in 100 µs.
func TestBans(t *testing.T) {
	window := model.Limit{Algorithm: model.FixedWindow, Count: 1, Period: 100, Hold: 600}
	k := newKey(t, window)
	k.Ban(50, 300)
	k.take(1000, 1, "ok t=1000 left=0/1 reset=100")
	k.take(1000, 2, "never t=1000 left=0/1 reset=100")      // it fits never, and bans nobody
	k.take(1030, 1, "no t=1030 left=0/1 retry=70 reset=70") // until the limit admits it, which is later than 50
	k.take(1090, 1, "no t=1090 left=0/1 retry=10 reset=10") // longer it does not get
	k.take(1099, 0, "no t=1099 left=0/1 retry=1 reset=1")
	k.Reset(1099)
	k.peek(1099, "no t=1099 left=0/1 retry=1 reset=1")
	k.take(1100, 1, "ok t=1100 left=0/1 reset=100")
	k.take(1169, 1, "no t=1169 left=0/1 retry=300 reset=300") // before 1170, when all would have been forgotten
	k.take(1469, 1, "ok t=1469 left=0/1 reset=100")
	k.take(1470, 1, "no t=1470 left=0/1 retry=300 reset=300") // the last one repeats
	k.take(2069, 1, "ok t=2069 left=0/1 reset=100")
	k.take(2070, 1, "no t=2070 left=0/1 retry=99 reset=99") // 1770 + 300: the first again, and the limit's own time is later
	k.Block(2080, 1000)
	k.take(3079, 1, "no t=3079 left=0/1 retry=1 reset=1")
	k.take(3080, 1, "ok t=3080 left=0/1 reset=100")
	k.take(3081, 1, "no t=3081 left=0/1 retry=300 reset=300") // a Block leaves the levels
	k.Unblock()
	k.take(3082, 1, "no t=3082 left=0/1 retry=98 reset=98")

	k = newKey(t, window)
	k.Ban(50)
	held := k.reserve(1000, 1, "ok t=1000 left=0/1 reset=100")
	k.take(1000, 1, "no t=1000 left=0/1 retry=100 reset=100")
	k.Settle(1000, held, 0)
	k.take(1000, 1, "ok t=1000 left=0/1 reset=100") // what was only held has banned nobody
}
