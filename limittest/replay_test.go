package limittest_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/limittest"
)

// TestReplayExact replays random logs, and compares every number of the reports with an exact model.
func TestReplayExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		log := randomLog(rand.New(rand.NewPCG(seed, 1)), 600, 4)
		var alone []core.Option
		var want []limittest.Report
		for _, v := range limits.Aligned() {
			l := v.Limit(core.Per(7, 10*time.Second))
			alone, want = append(alone, l), append(want, byModel(log, l))
		}
		both := []core.Limit{
			core.TokenBucket(core.Per(9, 10*time.Second)), core.LeakyBucket(core.Per(20, 10*time.Second), core.Burst(6)),
		}
		alone, want = append(alone, core.Options(both[0], both[1])), append(want, byModel(log, both...))
		got, err := limittest.Replay(slices.Values(log), alone...)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if got, want := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]); got != want {
				t.Errorf("seed %d: got\n%s\nwant\n%s", seed, got, want)
			}
		}
	}
}

// randomLog returns n arrivals of some keys. The times of a few of them are earlier than the arrival before.
func randomLog(r *rand.Rand, n, keys int) []limittest.Arrival {
	now, log := y2k, make([]limittest.Arrival, n)
	for i := range log {
		now = now.Add(time.Duration(r.IntN(1_500_000)) * time.Microsecond)
		at := now
		if r.IntN(10) == 0 {
			at = at.Add(-time.Duration(r.IntN(5000)) * time.Millisecond)
		}
		log[i] = limittest.Arrival{Time: at, Key: fmt.Sprint("key", r.IntN(keys)), Cost: 1 + r.Int64N(4)*r.Int64N(3)}
	}
	return log
}

// byModel returns the report that is expected for a log, according to one model for each key.
func byModel(log []limittest.Arrival, together ...core.Limit) limittest.Report {
	report := limittest.Report{Limits: together, Arrivals: int64(len(log))}
	var numbers []model.Limit
	for _, l := range together {
		n := model.Limit{Algorithm: model.Algorithm(l.Algorithm()), Count: l.Rate().Count(), Period: l.Rate().Period().Microseconds()}
		if limits.Named(l.Algorithm()).Kind.Debt {
			n.Burst = l.Capacity()
		}
		n.Aligned = strings.HasPrefix(l.Name(), "aligned")
		numbers = append(numbers, n)
	}
	models, keys := map[string]*model.Model{}, map[string]*limittest.KeyReport{}
	now := log[0].Time
	for _, a := range log {
		if a.Time.Before(now) {
			report.Late++
			report.LateBy = max(report.LateBy, now.Sub(a.Time))
		} else {
			now = a.Time
		}
		if models[a.Key] == nil {
			models[a.Key], keys[a.Key] = model.New(numbers...), &limittest.KeyReport{Key: a.Key}
		}
		count(&report, keys[a.Key], models[a.Key].Decide(now.UnixMicro(), a.Cost))
	}
	for _, k := range keys {
		report.Keys = append(report.Keys, *k)
	}
	slices.SortFunc(report.Keys, func(a, b limittest.KeyReport) int {
		switch {
		case a.Denied != b.Denied:
			return int(b.Denied - a.Denied)
		case a.Peak > b.Peak:
			return -1
		case a.Peak < b.Peak:
			return 1
		}
		return strings.Compare(a.Key, b.Key)
	})
	return report
}

// count adds a decision of the model to the report, and to the report of its key.
func count(report *limittest.Report, k *limittest.KeyReport, o model.Outcome) {
	k.Arrivals++
	if !o.Allowed {
		report.Denied++
		k.Denied++
	}
	var retry time.Duration
	for _, v := range o.Each {
		k.Peak = max(k.Peak, float64(v.Limit-v.Remaining)/float64(v.Limit))
		if o.Allowed {
			report.LongestDelay = max(report.LongestDelay, rounded(v.Delay))
		} else if v.Never {
			return
		}
		retry = max(retry, rounded(v.RetryAfter))
	}
	report.LongestRetry = max(report.LongestRetry, retry)
}

// rounded returns microseconds as the duration that a Result contains, rounded up.
func rounded(us *big.Rat) time.Duration {
	n, rest := new(big.Int).DivMod(us.Num(), us.Denom(), new(big.Int))
	return time.Duration(n.Int64()+int64(rest.Sign())) * time.Microsecond
}

// TestReplayMany replays more keys than a limiter of NewMemory keeps by default: no key may be evicted.
func TestReplayMany(t *testing.T) {
	t.Parallel()
	const keys = 120_000 // 100,000 is the default
	arrivals := func(yield func(limittest.Arrival) bool) {
		for i := range 2 * keys {
			if !yield(limittest.Arrival{Time: y2k, Key: fmt.Sprint(i % keys), Cost: 1}) {
				return
			}
		}
	}
	got, err := limittest.Replay(arrivals, core.FixedWindow(core.PerDay(1)))
	if err != nil || got[0].Denied != keys || len(got[0].Keys) != keys {
		t.Errorf("got error %v, and %d denials of %d keys; want one denial of each of %d keys", err, got[0].Denied, len(got[0].Keys), keys)
	}
}

// TestReplayRefuses checks that the errors of Replay name the mistake and its place.
func TestReplayRefuses(t *testing.T) {
	t.Parallel()
	good := limittest.Arrival{Time: y2k, Key: "a", Cost: 1}
	bucket := core.TokenBucket(core.PerMinute(1))
	for want, c := range map[string]struct {
		arrivals []limittest.Arrival
		limiters []core.Option
	}{
		"no limit given":  {nil, nil},
		"the count is 0":  {nil, []core.Option{core.TokenBucket(core.PerMinute(0))}},
		"option 1 is nil": {nil, []core.Option{nil}},
		"Clock(nil)":      {nil, []core.Option{core.Options(bucket, core.Clock(nil))}},
		"limit in_flight 2: a log does not say how long": {nil, []core.Option{core.Options(bucket, core.InFlight(2))}},
		"arrival 2: ": {[]limittest.Arrival{good, {Time: y2k, Cost: 1}}, []core.Option{bucket}},
		"the cost is not allowed: it is 0: leave out": {[]limittest.Arrival{{Time: y2k, Key: "a"}}, []core.Option{bucket}},
		"the time is 0001":                            {[]limittest.Arrival{{Key: "a", Cost: 1}}, []core.Option{bucket}},
		"the time is 2200":                            {[]limittest.Arrival{{Time: y2k.AddDate(200, 0, 0), Key: "a", Cost: 1}}, []core.Option{bucket}},
	} {
		got, err := limittest.Replay(slices.Values(c.arrivals), c.limiters...)
		if got != nil || err == nil || !strings.HasPrefix(err.Error(), "limittest: Replay: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v; want an error that contains %q", got, err, want)
		}
	}
	_, err := limittest.Replay(slices.Values([]limittest.Arrival{{Time: y2k, Cost: 1}}), bucket)
	if !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("an arrival without a key: got error %v, want ErrInvalidKey", err)
	}
}

// TestReplayEmpty checks a log without arrivals, and one with the earliest and the latest time that is allowed.
func TestReplayEmpty(t *testing.T) {
	t.Parallel()
	bucket := core.TokenBucket(core.PerMinute(1))
	got, err := limittest.Replay(slices.Values([]limittest.Arrival(nil)), bucket)
	if err != nil || len(got) != 1 || got[0].Arrivals != 0 || len(got[0].Keys) != 0 {
		t.Errorf("got %+v, %v; want one empty report", got, err)
	}
	first, last := time.Unix(0, 0), time.Date(2199, 12, 31, 23, 59, 59, 0, time.UTC)
	log := []limittest.Arrival{{first, "a", 1}, {first, "a", 1}, {last, "a", 1}, {last, "a", 1}}
	for _, v := range limits.Aligned() {
		got, err = limittest.Replay(slices.Values(log), v.Limit(core.PerDay(1)))
		if err != nil || got[0].Denied != 2 {
			t.Errorf("%s: got %+v, %v; want 2 denials", v.Name, got, err)
		}
	}
}
