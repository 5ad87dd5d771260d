package conformance

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// Properties compares every field of every Result with the exact model, over random
// sequences of steps of the clock, costs, peeks, refunds and changed limits, for each
// algorithm and for several limits together. Each sequence is a subtest that is named
// by its seed, and so can be repeated. REDISLIMIT_PROPERTY_RUNS sets how many there
// are for each algorithm.
func Properties(t *testing.T, open Opener) {
	t.Helper()
	runs := 60
	if s := os.Getenv("REDISLIMIT_PROPERTY_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		runs = n
	}
	families := map[string][]string{}
	for _, v := range limits.All() {
		families[v.Name] = []string{v.Name}
	}
	families["several"] = nil
	for family, algorithms := range families {
		t.Run(family, func(t *testing.T) {
			for seed := range uint64(runs) {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					open(t, func(t *testing.T, s Store) { sequence(t, s, seed, algorithms) })
				})
			}
		})
	}
}

// A trial is one random sequence.
type trial struct {
	*rand.Rand
	store   Store
	specs   []spec
	lim     *core.Limiter
	model   *model.Model
	now     int64
	last    core.Result
	charged []charge
	changed bool // a bucket's rate was changed, so its debt may have been rounded
	trace   []string
}

// A charge is what can be refunded.
type charge struct {
	got  core.Result
	want model.Outcome
}

// A spec is one limit, in a form that can be changed.
type spec struct {
	kind                 string
	count, period, burst int64
	unnamed              bool // its key contains the period, which then cannot change
}

func sequence(t *testing.T, s Store, seed uint64, algorithms []string) {
	tr := &trial{Rand: rand.New(rand.NewPCG(seed, 1)), store: s}
	if algorithms == nil {
		all := limits.All()
		for range 2 + tr.IntN(2) {
			algorithms = append(algorithms, all[tr.IntN(len(all))].Name)
		}
	}
	for _, kind := range algorithms {
		tr.specs = append(tr.specs, tr.spec(kind))
	}
	tr.specs[0].unnamed = len(tr.specs) == 1 && seed%2 == 1
	tr.remake(t)
	tr.now = peek(t, tr.lim, "k").At.UnixMicro()
	end := tr.now + (50 * 365 * 24 * time.Hour).Microseconds()
	for range 60 {
		if tr.now > end || !tr.step(t) || t.Failed() {
			break
		}
	}
	if t.Failed() {
		t.Logf("seed %d:", seed)
		for _, line := range tr.trace {
			t.Log(line)
		}
	}
}

// step does one random thing. It reports whether the sequence goes on.
func (tr *trial) step(t *testing.T) bool {
	tr.advance()
	switch p := tr.IntN(20); {
	case p < 12:
		return tr.allow(t)
	case p < 15:
		tr.notef("peek")
		return tr.compare(t, peek(t, tr.lim, "k"), tr.model.Peek(tr.now))
	case p < 18 && len(tr.charged) > 0:
		i := tr.IntN(len(tr.charged))
		c := tr.charged[i]
		tr.charged = slices.Delete(tr.charged, i, i+1)
		tr.notef("refund of %s", c.got.At.UTC())
		refund(t, tr.lim, c.got)
		tr.model.Refund(tr.now, c.want)
	case p < 19 && tr.store.Redis != nil:
		tr.change(t)
	}
	return true
}

func (tr *trial) allow(t *testing.T) bool {
	n := tr.cost()
	tr.notef("allow %d", n)
	got, want := allowN(t, tr.lim, "k", n), tr.model.Decide(tr.now, n)
	tr.last = got
	if got.Allowed && n > 0 {
		tr.charged = append(tr.charged, charge{got, want})
	}
	return tr.compare(t, got, want)
}

// advance moves the clock: not at all, a little, far, back, or to an instant at which a
// decision changes.
func (tr *trial) advance() {
	s := tr.specs[tr.IntN(len(tr.specs))]
	unit := max(1, s.period/s.count)
	var d int64
	switch tr.IntN(10) {
	case 0, 1:
	case 2:
		d = 1
	case 3:
		d = unit
	case 4, 5:
		if !tr.last.Allowed && tr.last.RetryAfter != core.Never {
			d = max(0, tr.last.RetryAfter.Microseconds()-tr.Int64N(2))
		}
	case 6:
		d = max(0, tr.last.ResetAfter.Microseconds()-tr.Int64N(2))
	case 7:
		d = tr.Int64N(unit*4 + 1)
	case 8:
		d = tr.Int64N(2*s.period + 1)
	case 9:
		if tr.store.Redis != nil && !tr.store.ForgetsByClock {
			d = -tr.Int64N(s.period + 1)
		}
	}
	tr.now += d
	tr.store.Advance(micros(d))
	if d != 0 {
		tr.notef("clock %+d", d)
	}
}

// cost returns a random cost: mostly one that can be admitted, often what remains.
func (tr *trial) cost() int64 {
	capacity := int64(math.MaxInt64)
	for _, s := range tr.specs {
		capacity = min(capacity, s.capacity())
	}
	switch tr.IntN(10) {
	case 0:
		return 0
	case 1:
		return capacity + 1
	case 2:
		return capacity
	case 3:
		return tr.last.Remaining
	case 4:
		return tr.last.Remaining + 1
	case 5:
		return 1 + tr.Int64N(capacity)
	}
	return 1 + tr.Int64N(min(capacity, max(1, capacity/8)))
}

// compare compares every field with the model. It reports whether the sequence can go
// on: after a changed limit, rounding may deny for one microsecond more than the model
// does, which is allowed, and the states then differ.
func (tr *trial) compare(t *testing.T, got core.Result, want model.Outcome) bool {
	t.Helper()
	if tr.changed && want.Allowed && !got.Allowed && got.RetryAfter == time.Microsecond {
		return false
	}
	if got.Allowed != want.Allowed {
		t.Errorf("Allowed %v, want %v", got.Allowed, want.Allowed)
	}
	i := 0
	for each := range got.All() {
		tr.verdict(t, i, each, want.Each[i], len(want.Each) == 1)
		i++
	}
	if i != len(want.Each) {
		t.Errorf("%d results, want %d", i, len(want.Each))
	}
	return true
}

func (tr *trial) verdict(t *testing.T, i int, got core.Result, want model.Verdict, only bool) {
	t.Helper()
	if !only && tr.changed && want.Admits && !got.Allowed && got.RetryAfter == time.Microsecond {
		return
	}
	slack, units := time.Duration(0), int64(0)
	if tr.changed {
		slack, units = time.Microsecond, 1
	}
	retry := ceil(want.RetryAfter)
	if want.Never {
		retry, slack = core.Never, 0
	}
	off := func(got, want time.Duration) bool { return got < want || got > want+slack }
	if got.Allowed != want.Admits || got.At.UnixMicro() != want.At || got.Limit != want.Limit ||
		got.Remaining > want.Remaining || got.Remaining < want.Remaining-units ||
		got.RetryAfter < retry || got.RetryAfter-retry > slack ||
		off(got.ResetAfter, ceil(want.ResetAfter)) || off(got.Delay, ceil(want.Delay)) {
		t.Errorf("limit %d: got %+v, want admits %v, t %d, limit %d, remaining %d, retry %v, reset %v, delay %v", i, got,
			want.Admits, want.At, want.Limit, want.Remaining, retry, ceil(want.ResetAfter), ceil(want.Delay))
	}
}

// change gives one limit another count, period or burst.
func (tr *trial) change(t *testing.T) {
	i := tr.IntN(len(tr.specs))
	old := tr.specs[i]
	next := tr.spec(old.kind)
	next.unnamed = old.unnamed
	if old.unnamed || tr.store.ForgetsByClock && old.kind == "sliding_window_log" || tr.IntN(3) == 0 {
		next.period = old.period // a log of a longer period may need entries that have expired
	} else if tr.IntN(2) == 0 {
		next.count, next.burst = old.count, old.burst
	}
	tr.specs[i] = next
	if tr.specs[i].limit(i) == nil {
		tr.specs[i] = old
		return
	}
	tr.changed = tr.changed || old.burst > 0
	tr.notef("change of limit %d", i)
	tr.remake(t)
}

// remake makes the Limiter of the present specs, and changes the model's limits to
// them.
func (tr *trial) remake(t *testing.T) {
	t.Helper()
	var opts []core.Option
	var limits []model.Limit
	for i, s := range tr.specs {
		opts = append(opts, s.limit(i))
		limits = append(limits, s.model())
		tr.notef("limit %d: %+v", i, s)
	}
	old := tr.lim
	tr.lim = tr.store.limiter(t, "property", opts...)
	if tr.model == nil {
		tr.model = model.New(limits...)
		return
	}
	tr.model.Change(limits...)
	if old != nil {
		tr.charged = nil // only the Limiter that charged a Result can refund it
	}
}

// spec makes a limit anywhere within the bounds.
func (tr *trial) spec(kind string) spec {
	for {
		s := spec{kind: kind, count: tr.upTo(1e9), period: 1000 * tr.upTo((400 * 24 * time.Hour).Milliseconds())}
		if tr.IntN(2) == 0 {
			s.period += tr.Int64N(1000)
		}
		switch {
		case kind == "sliding_window_log":
			s.count = tr.upTo(100_000)
		case limits.Named(kind).Kind.Bucket:
			s.burst = tr.upTo(1e9)
			if tr.IntN(3) == 0 {
				s.burst = s.count
			}
		}
		if s.limit(0) != nil {
			return s
		}
	}
}

// upTo returns a number from 1 to most, of any magnitude as likely as any other.
func (tr *trial) upTo(most int64) int64 {
	return max(1, min(most, int64(math.Exp(tr.Float64()*math.Log(float64(most)+1)))))
}

// limit returns the limit, with i in its name, or nil if it is not within the bounds.
func (s spec) limit(i int) core.Option {
	settings := limits.Settings{Burst: s.burst}
	if !s.unnamed {
		settings.Name = "limit" + strconv.Itoa(i)
	}
	limit := limits.Named(s.kind).With(core.Per(s.count, micros(s.period)), settings)
	if !limits.Accepts(limit) {
		return nil
	}
	return limit
}

func (s spec) model() model.Limit {
	v := limits.Named(s.kind)
	return model.Limit{Algorithm: model.Algorithm(v.Kind.Name), Count: s.count, Period: s.period, Burst: s.burst, Aligned: v.Aligned}
}

func (s spec) capacity() int64 {
	if s.burst > 0 {
		return s.burst
	}
	return s.count
}

func (tr *trial) notef(format string, args ...any) {
	tr.trace = append(tr.trace, fmt.Sprintf(format, args...))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ceil rounds a time of the model up to the microsecond.
func ceil(r *big.Rat) time.Duration {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return micros(n.Div(n, r.Denom()).Int64())
}
