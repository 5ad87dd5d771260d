package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// someClient is a client for tests that send nothing.
var someClient = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})

// TestNewRefuses makes every mistake in the options, and checks that the error names the mistake.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	minute, fine := PerMinute(10), TokenBucket(PerMinute(100))
	for want, opts := range map[string][]Option{
		`Prefix(""): allowed are 1 to 64 letters, digits`: {fine, Prefix("")},
		`Prefix("a}")`:  {fine, Prefix("a}")},
		`Prefix("ppppp`: {fine, Prefix(strings.Repeat("p", 65))},
		`Prefix("a") and Prefix("b"): give it once`:                         {fine, Options(Prefix("a")), Prefix("b")},
		"no limit given: pass at least one":                                 nil,
		"13 limits given: allowed are 12: give the others":                  limitsOf(13),
		"option 2 is nil":                                                   {fine, nil},
		"option 3 is nil":                                                   {fine, Options(MaxBatch(1), Timeout(time.Second), nil)},
		"limit Limit{}: make it with FixedWindow":                           {Limit{}, Hold(time.Second), Ban(time.Hour)},
		"token_bucket 1/1m: a nil option":                                   {TokenBucket(PerMinute(1), nil)},
		"the count is 0, allowed is 1 to 1000000000":                        {TokenBucket(PerMinute(0))},
		"the count is -5":                                                   {FixedWindow(PerMinute(-5))},
		"the count is 1000000001":                                           {FixedWindow(PerMinute(1e9 + 1))},
		"the period is 999µs, allowed is 1ms to 400 days":                   {TokenBucket(Per(1, 999*time.Microsecond))},
		"the period is 9624h0m0s":                                           {TokenBucket(Per(1, 401*24*time.Hour))},
		"is 1.000000001s, allowed are whole microseconds":                   {TokenBucket(Per(1, time.Second+1))},
		"is 15ns, allowed is 1ms to 400 days: did you mean 15*time.Second?": {FixedWindow(Per(5, 15))},
		"Burst(0): allowed is 1 to 1000000000":                              {TokenBucket(minute, Burst(0))},
		"Burst(2000000000)":                                                 {TokenBucket(minute, Burst(2e9))},
		"Burst(5) and Burst(6): give it once":                               {TokenBucket(minute, Burst(5), Burst(6))},
		"token_bucket 1/1d burst=36501: a burst of 36501 takes longer to drain than the 100 years":  {TokenBucket(PerDay(1), Burst(36501))},
		"leaky_bucket 1/1d burst=36501: a burst of 36501 takes longer to drain than the 100 years":  {LeakyBucket(PerDay(1), Burst(36501))},
		"the count is 100001, a sliding window log allows at most 100000: use SlidingWindowCounter": {SlidingWindowLog(PerMinute(100_001))},
		"Aligned() and Aligned(): give it once":                                                     {FixedWindow(minute, Aligned(), Aligned())},
		`In("Local"): want the IANA name`:                                                           {FixedWindow(PerMonth(1), In("Local"))},
		`In("UTC") and In("UTC"): give it once`:                                                     {FixedWindow(PerMonth(1), In("UTC"), In("UTC"))},
		`In("UTC"): allowed with PerDay, PerWeek and PerMonth`:                                      {FixedWindow(PerHour(1), In("UTC"))},
		"token_bucket 1/month: only FixedWindow takes PerWeek and PerMonth":                         {TokenBucket(PerMonth(1))},
		"InFlight(0): allowed is 1 to 1000000000":                                                   {InFlight(0)},
		"InFlight(1000000001)":                                       {InFlight(1e9 + 1)},
		"in_flight 1: a nil option":                                  {InFlight(1, nil)},
		"SlotTTL(0s): allowed is 10ms to 1h0m0s":                     {InFlight(1, SlotTTL(0))},
		"SlotTTL(2h0m0s)":                                            {InFlight(1, SlotTTL(2*time.Hour))},
		"SlotTTL(1s) and SlotTTL(2s): give it once":                  {InFlight(1, SlotTTL(time.Second), SlotTTL(2*time.Second))},
		`LimitName("a b"): allowed are 1 to 64 letters, digits`:      {TokenBucket(minute, LimitName("a b"))},
		`LimitName("a") and LimitName("b"): give it once`:            {TokenBucket(minute, LimitName("a"), LimitName("b"))},
		`10/1m and token_bucket 2/1m are both called "token-1m"`:     {TokenBucket(minute), TokenBucket(PerMinute(2))},
		`are both called "month", and Results could`:                 {FixedWindow(PerMonth(1)), FixedWindow(PerMonth(2), In("UTC"))},
		`are both called "x", and Results could`:                     {TokenBucket(minute, LimitName("x")), FixedWindow(PerDay(2), LimitName("x"))},
		`fixed_window 2/1d name=token-1m are both called "token-1m"`: {TokenBucket(minute), FixedWindow(PerDay(2), LimitName("token-1m"))},
		"MaxKeys(0): allowed is 1 to 100000000":                      {fine, MaxKeys(0)},
		"MaxKeys(100000001)":                                         {fine, MaxKeys(1e8 + 1)},
		"MaxKeys(5): an option of NewMemory and FailLocal":           {fine, MaxKeys(5), FailOpen()},
		"Clock: an option of NewMemory":                              {fine, Clock(time.Now)},
		"Clock(nil): want a function":                                {fine, Clock(nil)},
		"Timeout(999µs): allowed is 1ms to 1m0s":                     {fine, Timeout(999 * time.Microsecond)},
		"Timeout(1h0m0s)":                                            {fine, Timeout(time.Hour)},
		"Timeout(1s) and Timeout(2s): give it once":                  {fine, Timeout(time.Second), Timeout(2 * time.Second)},
		"MaxBatch(1) and MaxBatch(2): give it once":                  {fine, MaxBatch(1), MaxBatch(2)},
		"FailOpen and FailClosed: choose one":                        {fine, FailOpen(), FailClosed()},
		"FailLocal and FailLocal: choose one":                        {fine, FailLocal(), FailLocal()},
		"Processes(0): allowed is 1 to 1000000":                      {fine, Processes(0)},
		"Processes(2): an option of FailLocal, not of FailClosed":    {fine, FailClosed(), Processes(2)},
		"DenyCache(-1): allowed is 0 to 10000000":                    {fine, DenyCache(-1)},
		"Observe(nil): want a function":                              {fine, Observe(nil)},
		"ObserveKeys(nil): want a function":                          {fine, ObserveKeys(nil)},
		"Logger(nil): want a *slog.Logger":                           {fine, Logger(nil)},
		"Hold(1s) and Hold(2s): give it once":                        {fine, Hold(time.Second), Hold(2 * time.Second)},
		"Hold(1s): no limit holds units: slots of InFlight have":     {LeakyBucket(minute), InFlight(1), Hold(time.Second)},
		"Lease(20ms): limit in_flight 1 cannot be leased":            {fine, InFlight(1), Lease(20 * time.Millisecond)},
		"cannot be leased: its units are places in a queue":          {LeakyBucket(minute), Lease(20 * time.Millisecond)},
		"Lease(1m0s): allowed is 10ms to 1s":                         {fine, Lease(time.Minute)},
		"Lease(1ms): allowed":                                        {fine, Lease(time.Millisecond)},
		"Lease(1s) and Lease(1s): give it once":                      {fine, Lease(time.Second), Lease(time.Second)},
		"Ban([1h0m0s]): a denial by InFlight bans nobody":            {InFlight(1), Ban(time.Hour)},
		"Ban([1h0m0s]) and Ban([]): give it once":                    {fine, Ban(time.Hour), Ban()},
		"Ban([1m0s 1s]): allowed is 1ms to 8760h0m0s, and":           {fine, Ban(time.Minute, time.Second)},
		"Ban([0s]): allowed is 1ms":                                  {fine, Ban(0)},
		"Ban([1h0m0s 8760h0m0.000000001s]): allowed is 1ms":          {fine, Ban(time.Hour, 365*24*time.Hour+1)},
		"m0s]): allowed are 100 levels":                              {fine, Ban(slices.Repeat([]time.Duration{time.Minute}, 101)...)},
	} {
		lim, err := New(someClient, "api", opts...)
		if err == nil || lim != nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `limiter "api"`) {
			t.Errorf("got error %v, want one that contains %q", err, want)
		}
	}
	for _, name := range []string{"", "a{b", "a:b", strings.Repeat("n", 65)} {
		_, err := New(someClient, name, fine)
		if want := fmt.Sprintf("limiter name %q: allowed are 1 to 64 letters, digits", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one that contains %q", err, want)
		}
	}
}

// TestNewRefusesClients passes clients that cannot decide. The error must say what to pass instead, and must not contain the
// password of the URL.
func TestNewRefusesClients(t *testing.T) {
	t.Parallel()
	const url = "redis://me:secret@localhost"
	ofURL := redis.NewClient(&redis.Options{Addr: url})
	clusterOfURL := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"localhost:1", url}})
	ringOfURL := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": url}})
	defer func() { _, _, _ = ofURL.Close(), clusterOfURL.Close(), ringOfURL.Close() }()
	for _, c := range []struct {
		client Client
		want   string
	}{
		{nil, "the client is nil: pass a *redis.Client"},
		{(*redis.Client)(nil), "the client is nil"},
		{someClient.Pipeline(), "a *redis.Pipeline, which sends nothing until Exec"},
		{ofURL, "Options.Addr is host:port, and redis.ParseURL makes"},
		{clusterOfURL, "redis.ParseURL"},
		{ringOfURL, "redis.ParseURL"},
	} {
		lim, err := New(c.client, "api", TokenBucket(PerMinute(100)))
		if err == nil || lim != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got error %v, want one that contains %q and no password", err, c.want)
		}
	}
}

// limitsOf returns n different limits.
func limitsOf(n int) (all []Option) {
	for i := range n {
		all = append(all, TokenBucket(Per(1, time.Duration(i+1)*time.Second)))
	}
	return all
}

// TestNewAccepts checks configurations that are just within the bounds.
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
		{TokenBucket(PerDay(1)), Options(FailLocal(), Options(Prefix("a"), MaxKeys(5))), Timeout(time.Minute)},
		append(limitsOf(12), Ban(time.Hour)),
		{SlidingWindowLog(PerMinute(100_000))}, {LeakyBucket(Per(1e9, time.Millisecond))},
		{TokenBucket(PerSecond(10), Burst(30)), FixedWindow(PerDay(5000), Aligned()), Prefix("my.app:v1")},
	} {
		if _, err := New(someClient, strings.Repeat("n", 64), opts...); err != nil {
			t.Errorf("New with %v: got error %v, want none", opts, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("MustNew did not panic without a client")
		}
	}()
	MustNew(nil, "api", TokenBucket(PerMinute(1)))
}

// TestLimitNames checks Name, Algorithm and Capacity of limits, and that Limits returns a copy.
func TestLimitNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit           Limit
		name, algorithm string
		burst           int64
	}{
		{TokenBucket(PerMinute(100)), "token-1m", "token_bucket", 100},
		{TokenBucket(PerMinute(100), Burst(7), LimitName("short")), "short", "token_bucket", 7},
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
		{InFlight(10, SlotTTL(time.Minute)), "inflight", "in_flight", 10},
		{Limit{}, "", "", 0},
	} {
		if c.limit.Name() != c.name || c.limit.Algorithm() != c.algorithm || c.limit.Capacity() != c.burst {
			t.Errorf("%v: got Name %q, Algorithm %q, Capacity %d; want %q, %q, %d", c.limit, c.limit.Name(), c.limit.Algorithm(), c.limit.Capacity(),
				c.name, c.algorithm, c.burst)
		}
	}
	if r := InFlight(10).Rate(); r != (Rate{}) {
		t.Errorf("Rate of InFlight: got %v, want none", r)
	}
	lim := MustNew(someClient, "api", TokenBucket(PerMinute(100)), FixedWindow(PerDay(5)))
	limits := lim.Limits()
	if len(limits) != 2 || limits[0].Rate() != PerMinute(100) || limits[1].Name() != "fixed-1d" || lim.Name() != "api" {
		t.Errorf("got the limits %v of %q, want 100 per minute and fixed-1d of \"api\"", limits, lim.Name())
	}
	limits[0] = Limit{}
	if lim.Limits()[0].Name() != "token-1m" {
		t.Error("a change of the slice that Limits returned changed the Limiter")
	}
}

// TestDerivedAreBounded derives more different limits than a Limiter remembers, and checks that the memory stays bounded.
func TestDerivedAreBounded(t *testing.T) {
	t.Parallel()
	var d derived
	for hash := range uint64(2*maxDerived + 10) {
		d.put(hash, &Limiter{})
		if len(d.byHash) > maxDerived || len(d.byHash) != d.count {
			t.Fatalf("after %d limits, %d are remembered and %d counted, want at most %d, and equal numbers", hash+1, len(d.byHash), d.count, maxDerived)
		}
	}
}
