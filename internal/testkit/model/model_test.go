package model_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
)

// show writes every field of a verdict, so that an expectation states all of them.
// The zero fields are left out; "left" is Remaining/Limit, "until" is Expires.
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
	if v.Expires != nil {
		b.WriteString(" until=" + v.Expires.RatString())
	}
	return b.String()
}

// key is a model under test; each call states what every limit must answer.
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

func TestSeveralLimitsChargeTogether(t *testing.T) {
	k := newKey(t,
		model.Limit{Algorithm: model.LeakyBucket, Count: 1, Period: 10, Burst: 3},
		model.Limit{Algorithm: model.FixedWindow, Count: 2, Period: 100})
	k.take(1000, 1, "ok t=1000 left=2/3 reset=10 until=1010", "ok t=1000 left=1/2 reset=100 until=1100")
	last := k.take(1000, 1, "ok t=1000 left=1/3 reset=20 delay=10 until=1020", "ok t=1000 left=0/2 reset=100 until=1100")
	// The window denies: the Verdict of the bucket is that it admits, but it is not
	// charged, and there is no Delay.
	for range 2 {
		k.take(1000, 1, "ok t=1000 left=1/3 reset=20 until=1020", "no t=1000 left=0/2 retry=100 reset=100 until=1100")
	}
	// Above one capacity and not the other.
	k.take(1000, 3, "no t=1000 left=1/3 retry=20 reset=20 until=1020", "never t=1000 left=0/2 reset=100 until=1100")
	k.take(1000, 4, "never t=1000 left=1/3 reset=20 until=1020", "never t=1000 left=0/2 reset=100 until=1100")

	denied := k.Decide(1000, 1)
	k.Refund(1000, denied)
	k.peek(1000, "ok t=1000 left=1/3 reset=20 until=1020", "no t=1000 left=0/2 retry=100 reset=100 until=1100")

	// All limits get their units back, once, whichever copy is used.
	again := last
	k.Refund(1000, last)
	k.Refund(1000, again)
	k.peek(1000, "ok t=1000 left=2/3 reset=10 delay=10 until=1010", "ok t=1000 left=1/2 reset=100 until=1100")
}

func TestNothingButAChargeChangesAnything(t *testing.T) {
	for _, l := range model.EveryLimit() {
		m := model.New(l)
		unused := show(m.Peek(1000).Each[0])
		if unused != "ok t=1000 left=5/5" {
			t.Errorf("%+v: unused key: %s", l, unused)
		}
		for _, n := range []int64{0, 6, 1 << 62} {
			m.Decide(1000, n)
		}
		if got := show(m.Peek(1000).Each[0]); got != unused {
			t.Errorf("%+v: after calls that charge nothing: %s", l, got)
		}

		// Denials, peeks and n = 0, also from later and earlier instants, leave a
		// twin that never saw them in agreement at every instant.
		twin := model.New(l)
		m.Decide(1050, 4)
		twin.Decide(1050, 4)
		for _, now := range []int64{1051, 1149, 900, 5000, 1050} {
			m.Peek(now)
			m.Decide(now, 0)
			m.Decide(now, 6)
			if now < 1060 {
				m.Decide(now, 5) // denied: 4 are still there
			}
		}
		for now := int64(890); now < 1400; now++ {
			if got, want := show(m.Peek(now).Each[0]), show(twin.Peek(now).Each[0]); got != want {
				t.Fatalf("%+v at %d:\n got %s\nwant %s", l, now, got, want)
			}
		}
	}
}

func TestZeroIsAllowedWhereNothingFits(t *testing.T) {
	for _, l := range model.EveryLimit() {
		m := model.New(l)
		m.Decide(1000, 5)
		if l.Count = 2; l.Burst != 0 {
			l.Burst = 2
		}
		m.Change(l)
		o := m.Decide(1000, 0)
		v := o.Each[0]
		if !o.Allowed || !v.Admits || v.Remaining != 0 || v.Limit != 2 || v.RetryAfter.Sign() != 0 || v.Delay.Sign() != 0 || v.ResetAfter.Sign() == 0 {
			t.Errorf("%+v: %s", l, show(v))
		}
	}
}

// Under unchanged limits RetryAfter is exact: the call is denied in the
// microsecond before and admitted at it, whatever came before.
func TestRetryAfterIsTheFirstInstant(t *testing.T) {
	for _, l := range model.EveryLimit() {
		l.Count, l.Period = 7, 30
		if l.Burst != 0 {
			l.Burst = 9
		}
		r := rand.New(rand.NewPCG(1, 2))
		denials, m, now := 0, model.New(l), int64(1000)
		for range 3000 {
			now += r.Int64N(12)
			n := 1 + r.Int64N(7)
			o := m.Decide(now, n)
			if o.Allowed {
				continue
			}
			denials++
			v := o.Each[0]
			wait := roundUp(v.RetryAfter)
			// Denials change nothing, so the model itself can be asked.
			if wait < 1 || m.Decide(now+wait-1, n).Allowed {
				t.Fatalf("%+v at %d, n=%d: admitted before %s is over", l, now, n, show(v))
			}
			if r.IntN(3) == 0 { // not always: other states should arise than those at a limit
				now += wait
				if !m.Decide(now, n).Allowed {
					t.Fatalf("%+v at %d, n=%d: denied after %s", l, now, n, show(v))
				}
			}
		}
		if denials < 100 {
			t.Errorf("%+v: only %d denials", l, denials)
		}
	}
}

func roundUp(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	return q.Int64() + int64(rest.Sign())
}

// The far end of what the contract takes: nothing may overflow or be rounded.
func TestLargeNumbers(t *testing.T) {
	const count, period = 1_000_000_000, 400 * 24 * 3600 * 1_000_000 // a unit every 34,560 µs
	const start = 50 * period
	k := newKey(t,
		model.Limit{Algorithm: model.SlidingWindowCounter, Count: count, Period: period},
		model.Limit{Algorithm: model.GCRA, Count: count, Period: period, Burst: count})
	k.take(start-1, count,
		"ok t=1727999999999999 left=0/1000000000 reset=34560000000001 until=1762560000000000",
		"ok t=1727999999999999 left=0/1000000000 reset=34560000000000 until=1762559999999999")
	k.take(start+1, 1,
		"no t=1728000000000001 left=0/1000000000 retry=34559 reset=34559999999999 until=1762560000000000",
		"no t=1728000000000001 left=0/1000000000 retry=34558 reset=34559999999998 until=1762559999999999")
	k.take(start+34559, 1,
		"no t=1728000000034559 left=0/1000000000 retry=1 reset=34559999965441 until=1762560000000000",
		"ok t=1728000000034559 left=1/1000000000 reset=34559999965440 until=1762559999999999")
	k.take(start+34560, 1,
		"ok t=1728000000034560 left=0/1000000000 reset=69119999965440 until=1797120000000000",
		"ok t=1728000000034560 left=0/1000000000 reset=34559999999999 until=1762560000034559")
}

func TestMistakesPanic(t *testing.T) {
	ok := model.Limit{Algorithm: model.FixedWindow, Count: 1, Period: 1}
	charged := model.New(ok).Decide(1, 1)
	for name, f := range map[string]func(){
		"none":        func() { model.New() },
		"unknown":     func() { model.New(model.Limit{Algorithm: "x", Count: 1, Period: 1}) },
		"count":       func() { model.New(model.Limit{Algorithm: model.FixedWindow, Period: 1}) },
		"period":      func() { model.New(model.Limit{Algorithm: model.FixedWindow, Count: 1}) },
		"no burst":    func() { model.New(model.Limit{Algorithm: model.GCRA, Count: 1, Period: 1}) },
		"burst":       func() { model.New(model.Limit{Algorithm: model.FixedWindow, Count: 1, Period: 1, Burst: 1}) },
		"aligned":     func() { model.New(model.Limit{Algorithm: model.SlidingWindowLog, Count: 1, Period: 1, Aligned: true}) },
		"negative":    func() { model.New(ok).Decide(1, -1) },
		"fewer":       func() { model.New(ok, ok).Change(ok) },
		"other":       func() { model.New(ok).Change(model.Limit{Algorithm: model.SlidingWindowLog, Count: 1, Period: 1}) },
		"not its own": func() { model.New(ok).Refund(1, charged) },
		"less than 0": func() { m := model.New(ok); m.Settle(1, m.Reserve(1, 1), -1) },
		"no hold":     func() { m := model.New(ok); m.Settle(1, m.Decide(1, 1), 1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
