package core

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var someClient = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})

// TestNewRefuses makes every mistake in a configuration: the error must name it.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	fine := TokenBucket(PerMinute(100))
	const url = "redis://me:secret@localhost"
	ofURL := redis.NewClient(&redis.Options{Addr: url})
	clusterOfURL := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1", url}})
	ringOfURL := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": url}})
	defer func() { _, _, _ = ofURL.Close(), clusterOfURL.Close(), ringOfURL.Close() }()
	for _, c := range []struct {
		name   string
		client Client
		lim    string
		opts   []Option
		want   []string
	}{
		{"no name", someClient, "", []Option{fine}, []string{"name", `""`, "1 to 64"}},
		{"name with brace", someClient, "a{b", []Option{fine}, []string{"name", `"a{b"`, "letters"}},
		{"name with colon", someClient, "a:b", []Option{fine}, []string{"name", `"a:b"`}},
		{"name with space", someClient, "a b", []Option{fine}, []string{"name", `"a b"`}},
		{"long name", someClient, strings.Repeat("n", 65), []Option{fine}, []string{"name", "nnn", "64"}},
		{"empty prefix", someClient, "api", []Option{fine, Prefix("")}, []string{"api", "Prefix", `""`, "1 to 64"}},
		{"prefix with brace", someClient, "api", []Option{fine, Prefix("a}")}, []string{"Prefix", `"a}"`, "letters"}},
		{"long prefix", someClient, "api", []Option{fine, Prefix(strings.Repeat("p", 65))}, []string{"Prefix", "ppp"}},
		{"nil client", nil, "api", []Option{fine}, []string{"client", "nil", "*redis.Client"}},
		{"typed nil client", (*redis.Client)(nil), "api", []Option{fine}, []string{"client", "nil"}},
		{"a pipeline", someClient.Pipeline(), "api", []Option{fine}, []string{"*redis.Pipeline", "Exec"}},
		{"a transaction", someClient.TxPipeline(), "api", []Option{fine}, []string{"*redis.Pipeline", "Exec"}},
		{"a URL", ofURL, "api", []Option{fine}, []string{"host:port", "redis.ParseURL", "!secret"}},
		{"a URL of a Cluster", clusterOfURL, "api", []Option{fine}, []string{"redis.ParseURL", "!secret"}},
		{"a URL of a Ring", ringOfURL, "api", []Option{fine}, []string{"redis.ParseURL", "!secret"}},
		{"no limit", someClient, "api", nil, []string{"no limit", "at least one"}},
		{"too many limits", someClient, "api", limitsOf(13), []string{"13 limits", "allowed are 12", "another Limiter"}},
		{"nil option", someClient, "api", []Option{fine, nil}, []string{"option 2", "nil"}},
		{"empty Limit", someClient, "api", []Option{Limit{}}, []string{"Limit{}", "TokenBucket"}},
		{"zero rate", someClient, "api", []Option{TokenBucket(PerMinute(0))}, []string{"count is 0", "1 to 1000000000"}},
		{"negative rate", someClient, "api", []Option{FixedWindow(PerMinute(-5))}, []string{"count is -5"}},
		{"rate too high", someClient, "api", []Option{FixedWindow(PerMinute(1e9 + 1))}, []string{"count is 1000000001"}},
		{"empty Rate", someClient, "api", []Option{FixedWindow(Rate{})}, []string{"count is 0"}},
		{"zero period", someClient, "api", []Option{FixedWindow(Per(1, 0))}, []string{"period is 0s", "1ms"}},
		{"sub-millisecond", someClient, "api", []Option{TokenBucket(Per(1, 999*time.Microsecond))}, []string{"period is 999µs", "1ms"}},
		{"negative period", someClient, "api", []Option{TokenBucket(Per(1, -time.Second))}, []string{"period is -1s"}},
		{"long period", someClient, "api", []Option{TokenBucket(Per(1, 401*24*time.Hour))}, []string{"9624h", "400 days"}},
		{"broken microsecond", someClient, "api", []Option{TokenBucket(Per(1, time.Second+1))}, []string{"1.000000001s", "whole microseconds"}},
		{"zero burst", someClient, "api", []Option{TokenBucket(PerMinute(1), Burst(0))}, []string{"Burst(0)", "1 to"}},
		{"huge burst", someClient, "api", []Option{TokenBucket(PerMinute(1), Burst(2e9))}, []string{"Burst(2000000000)"}},
		{"slow burst", someClient, "api", []Option{TokenBucket(PerDay(1), Burst(36501))}, []string{"36501", "100 years"}},
		{"long log", someClient, "api", []Option{SlidingWindowLog(PerMinute(100_001))}, []string{"count is 100001", "at most 100000", "SlidingWindowCounter"}},
		{"slow queue", someClient, "api", []Option{LeakyBucket(PerDay(1), Burst(36501))}, []string{"36501", "100 years"}},
		{"no rate of a queue", someClient, "api", []Option{LeakyBucket(Rate{})}, []string{"count is 0"}},
		{"entries", someClient, "api", []Option{fine, Entries(0)}, []string{"Entries(0)", "1 to 100000000"}},
		{"timeout", someClient, "api", []Option{fine, Timeout(999 * time.Microsecond)}, []string{"Timeout(999µs)", "1ms to 1m"}},
		{"long timeout", someClient, "api", []Option{fine, Timeout(time.Hour)}, []string{"Timeout(1h0m0s)"}},
		{"two policies", someClient, "api", []Option{fine, FailOpen(), FailClosed()}, []string{"FailOpen and FailClosed", "choose one"}},
		{"policy twice", someClient, "api", []Option{fine, FailLocal(), FailLocal()}, []string{"choose one"}},
		{"timeout twice", someClient, "api", []Option{fine, Timeout(time.Second), Timeout(2 * time.Second)}, []string{"Timeout(1s) and Timeout(2s)", "once"}},
		{"twice in Options", someClient, "api", []Option{fine, Options(Prefix("a")), Prefix("b")}, []string{`Prefix("a") and Prefix("b")`, "once"}},
		{"nil in Options", someClient, "api", []Option{fine, Options(Prefix("a"), nil)}, []string{"option 2", "nil"}},
		{"forgotten unit", someClient, "api", []Option{FixedWindow(Per(5, 15))}, []string{"15ns", "15*time.Second"}},
		{"no processes", someClient, "api", []Option{fine, Processes(0)}, []string{"Processes(0)", "1 to 1000000"}},
		{"processes of nothing", someClient, "api", []Option{fine, FailClosed(), Processes(2)}, []string{"Processes(2)", "FailLocal", "FailClosed"}},
		{"deny cache", someClient, "api", []Option{fine, DenyCache(-1)}, []string{"DenyCache(-1)", "0 to 10000000"}},
		{"observer", someClient, "api", []Option{fine, Observe(nil)}, []string{"Observe(nil)"}},
		{"logger", someClient, "api", []Option{fine, Logger(nil)}, []string{"Logger(nil)"}},
		{"the machine's zone", someClient, "api", []Option{FixedWindow(PerMonth(1), In("Local"))}, []string{`In("Local")`, "IANA", "time/tzdata"}},
		{"a zone twice", someClient, "api", []Option{FixedWindow(PerMonth(1), In("UTC"), In("UTC"))}, []string{`In("UTC") and In("UTC")`, "once"}},
		{"a zone of hours", someClient, "api", []Option{FixedWindow(PerHour(1), In("UTC"))}, []string{`In("UTC")`, "PerDay, PerWeek and PerMonth"}},
		{"a month of a bucket", someClient, "api", []Option{TokenBucket(PerMonth(1))}, []string{"token_bucket 1/month", "FixedWindow", "fixed length"}},
		{"two of a calendar", someClient, "api", []Option{FixedWindow(PerMonth(1)), FixedWindow(PerMonth(2), In("UTC"))}, []string{`"month"`, "Name"}},
		{"limit name", someClient, "api", []Option{TokenBucket(PerMinute(1), Name("a b"))}, []string{`Name("a b")`, "letters"}},
		{"nil limit option", someClient, "api", []Option{TokenBucket(PerMinute(1), nil)}, []string{"nil option"}},
		{"one identity", someClient, "api", []Option{TokenBucket(PerMinute(1)), TokenBucket(PerMinute(2))}, []string{"token-1m", "1/1m", "2/1m", "Name"}},
		{"one name", someClient, "api", []Option{TokenBucket(PerMinute(1), Name("x")), FixedWindow(PerDay(2), Name("x"))}, []string{`"x"`, "Name"}},
		{"a derived name", someClient, "api", []Option{TokenBucket(PerMinute(1)), FixedWindow(PerDay(2), Name("token-1m"))}, []string{`"token-1m"`}},
	} {
		lim, err := New(c.client, c.lim, c.opts...)
		if err == nil || lim != nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		for _, part := range c.want {
			if word, not := strings.CutPrefix(part, "!"); strings.Contains(err.Error(), word) == not {
				t.Errorf("%s: the error must (with ! it must not) say %q: %v", c.name, part, err)
			}
		}
	}
}

// limitsOf returns so many.
func limitsOf(n int) (all []Option) {
	for i := range n {
		all = append(all, TokenBucket(Per(1, time.Duration(i+1)*time.Second)))
	}
	return all
}

// TestNewAccepts has configurations that are just within the bounds.
func TestNewAccepts(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]Option{
		{TokenBucket(Per(1, time.Millisecond))},
		{TokenBucket(Per(1e9, 400*24*time.Hour), Burst(1))},
		{TokenBucket(PerDay(1), Burst(36500))},
		{FixedWindow(Per(1e9, time.Millisecond))},
		{FixedWindow(PerDay(5000), Aligned()), FixedWindow(PerDay(5000)), SlidingWindowCounter(PerDay(5000)), SlidingWindowLog(PerDay(5000))},
		{GCRA(PerDay(1), Burst(36500)), LeakyBucket(PerDay(1)), TokenBucket(PerDay(1))},
		{TokenBucket(PerDay(1)), FailLocal(), Processes(3), Timeout(time.Millisecond), DenyCache(1)},
		{TokenBucket(PerDay(1)), FailOpen(), DenyCache(0)},
		{TokenBucket(PerDay(1)), Options(FailLocal(), Options(Prefix("a"), Entries(5))), Timeout(time.Minute)},
		append(limitsOf(12), Ban(time.Hour)),
		{SlidingWindowLog(PerMinute(100_000))}, {LeakyBucket(Per(1e9, time.Millisecond))},
		{TokenBucket(PerSecond(10), Burst(30)), FixedWindow(PerDay(5000), Aligned()), Prefix("my.app:v1")},
	} {
		if _, err := New(someClient, strings.Repeat("n", 64), opts...); err != nil {
			t.Error(err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustNew did not panic")
		}
	}()
	MustNew(nil, "api", TokenBucket(PerMinute(1)))
}

func TestLimitAccessors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit           Limit
		name, algorithm string
		burst           int64
	}{
		{TokenBucket(PerMinute(100)), "token-1m", "token_bucket", 100},
		{TokenBucket(PerMinute(100), Burst(7), Name("short")), "short", "token_bucket", 7},
		{FixedWindow(Per(5, 90*time.Second)), "fixed-90s", "fixed_window", 5},
		{FixedWindow(PerDay(5000), Aligned()), "aligned-1d", "fixed_window", 5000},
		{FixedWindow(PerDay(5), In("UTC")), "day", "fixed_window", 5},
		{FixedWindow(PerMonth(5)), "month", "fixed_window", 5},
		{FixedWindow(PerWeek(5), In("America/Port-au-Prince")), "week-America.Port-au-Prince", "fixed_window", 5},
		{FixedWindow(PerMonth(5), In("Etc/GMT+5")), "month-Etc.GMT_5", "fixed_window", 5},
		{SlidingWindowLog(PerMinute(5)), "log-1m", "sliding_window_log", 5},
		{SlidingWindowCounter(PerMinute(5)), "counter-1m", "sliding_window_counter", 5},
		{LeakyBucket(PerMinute(5)), "leaky-1m", "leaky_bucket", 1},
		{LeakyBucket(PerMinute(150)), "leaky-1m", "leaky_bucket", 2},
		{GCRA(Per(5, 1500*time.Microsecond)), "gcra-1500us", "gcra", 5},
		{Limit{}, "", "", 0},
	} {
		if c.limit.Name() != c.name || c.limit.Algorithm() != c.algorithm || c.limit.Capacity() != c.burst {
			t.Errorf("%v: Name %q, Algorithm %q, Burst %d", c.limit, c.limit.Name(), c.limit.Algorithm(), c.limit.Capacity())
		}
	}
	lim := MustNew(someClient, "api", TokenBucket(PerMinute(100)), FixedWindow(PerDay(5)))
	limits := lim.Limits()
	if len(limits) != 2 || limits[0].Rate() != PerMinute(100) || limits[1].Name() != "fixed-1d" || lim.Name() != "api" {
		t.Errorf("Limits: %v of %q", limits, lim.Name())
	}
	limits[0] = Limit{}
	if lim.Limits()[0].Name() != "token-1m" {
		t.Error("Limits returned its own slice")
	}
}

// TestDerivedAreBounded asks for more different limits than are remembered.
func TestDerivedAreBounded(t *testing.T) {
	t.Parallel()
	var d derived
	for hash := range uint64(2*maxDerived + 10) {
		d.put(hash, &Limiter{})
		if len(d.byHash) > maxDerived || len(d.byHash) != d.count {
			t.Fatalf("after %d limits, %d are remembered, and %d counted", hash+1, len(d.byHash), d.count)
		}
	}
}

// TestUnavailable decides without a Redis.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	lim := MustNew(someClient, "api", TokenBucket(PerMinute(100)), FailClosed())
	if res, err := lim.Allow(context.Background(), "k"); !isUnavailable(err) || res.Allowed {
		t.Errorf("Allow: %+v, %v", res, err)
	}
	if err := lim.Reset(context.Background(), "k"); !isUnavailable(err) {
		t.Errorf("Reset: %v", err)
	}
}
