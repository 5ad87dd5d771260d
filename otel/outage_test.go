package otellimit_test

import (
	"maps"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestOutage stops Redis and starts it again, with a limiter for each outage policy, and checks the series.
func TestOutage(t *testing.T) {
	t.Parallel()
	m := newMeter(t)
	server := redistest.Server(t)
	rdb := server.Client(t)
	observe := m.observe()
	local := core.MustNew(rdb, "local", core.TokenBucket(core.PerHour(100)), core.Timeout(time.Minute), observe)
	failOpen := core.MustNew(rdb, "open", core.TokenBucket(core.PerHour(100)), core.FailOpen(), core.Timeout(time.Minute), observe)
	failClosed := core.MustNew(rdb, "closed", core.TokenBucket(core.PerHour(100)), core.FailClosed(), core.Timeout(time.Minute), observe)
	limiters := []*core.Limiter{local, failOpen, failClosed}

	server.Stop()
	for _, lim := range limiters {
		if _, err := allow(t, lim, 3); (err != nil) != (lim == failClosed) { // the first failure opens the breaker for all limiters
			t.Fatalf("%s: got error %v, want one only with FailClosed", lim.Name(), err)
		}
	}
	want := map[string]int64{
		"decisions{decision.outcome=allowed decision.source=fallback limit.name=token-1h limiter.name=local}": 3,
		"decisions{decision.outcome=allowed decision.source=none limit.name=token-1h limiter.name=open}":      3,
		"decisions{error.type=unavailable decision.outcome=error decision.source=none limiter.name=closed}":   3,
		"redis.failures{error.type=connection limiter.name=local}":                                            1,
	}
	for _, lim := range limiters {
		maps.Copy(want, breakerSeries(lim.Name(), 1, "open"))
	}
	wantSoon := func(of ...string) { // events of Redis arrive in the background
		t.Helper()
		check.Eventually(t, "the events are recorded", func() bool { return maps.Equal(m.values(of...), want) })
		m.want(want, of...)
	}
	wantSoon("decisions", "redis.failures", "fallback.active", "breaker.state")

	server.Start(t)
	want = map[string]int64{}
	for _, lim := range limiters {
		check.Eventually(t, lim.Name()+" calls Redis again", func() bool {
			res, err := allow(t, lim, 1)
			return err == nil && res.Source == core.SourceRedis
		})
		maps.Copy(want, breakerSeries(lim.Name(), 0, "closed"))
	}
	wantSoon("fallback.active", "breaker.state")
}

// TestErrorTypes checks the error.type of a command that Redis refuses, and of a timeout.
func TestErrorTypes(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	rdb := server.Client(t)
	permit := func(rule string) {
		if err := rdb.ACLSetUser(t.Context(), "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	permit("-@scripting")
	refused := newMeter(t)
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerHour(1)), core.Timeout(time.Minute), refused.observe())
	_, _ = allow(t, lim, 1)
	refused.want(map[string]int64{"redis.failures{error.type=NOPERM limiter.name=api}": 1}, "redis.failures")
	permit("+@scripting")

	slow := newMeter(t)
	lim = core.MustNew(rdb, "api", core.TokenBucket(core.PerHour(1)), core.Timeout(50*time.Millisecond), slow.observe())
	server.Pause()
	_, _ = allow(t, lim, 1)
	slow.want(map[string]int64{"redis.failures{error.type=timeout limiter.name=api}": 1}, "redis.failures")
	server.Resume()
}
