package core_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/redislimit/redislimit/core"
)

// newMemory stands for New: the limits are the same.
func newMemory(limits ...core.Option) *core.Limiter {
	lim, err := core.NewMemory("example", limits...)
	if err != nil {
		log.Fatal(err)
	}
	return lim
}

// Ten a second on average, thirty at once.
func ExampleTokenBucket() {
	lim := newMemory(core.TokenBucket(core.PerSecond(10), core.Burst(30)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 30)
	fmt.Println(res.Allowed)
	// Output: true
}

// GCRA admits as a token bucket does, from a single instant.
func ExampleGCRA() {
	lim := newMemory(core.GCRA(core.PerMinute(60), core.Burst(5)))

	res, _ := lim.Allow(context.Background(), "device:17")
	fmt.Println(res.Remaining, res.ResetAfter)
	// Output: 4 1s
}

// 5000 a calendar day (UTC), whenever the first request came.
func ExampleFixedWindow() {
	lim := newMemory(core.FixedWindow(core.PerDay(5000), core.Aligned(), core.Name("daily")))

	res, _ := lim.Allow(context.Background(), "tenant:acme")
	fmt.Println(res.Name, res.Remaining)
	// Output: daily 4999
}

// A sliding window counter holds large limits in little memory.
func ExampleSlidingWindowCounter() {
	lim := newMemory(core.SlidingWindowCounter(core.PerDay(1_000_000)))

	res, _ := lim.Allow(context.Background(), "tenant:acme")
	fmt.Println(res.Remaining)
	// Output: 999999
}

// A sliding window log is exact: in no minute, wherever it begins, more than five.
func ExampleSlidingWindowLog() {
	lim := newMemory(core.SlidingWindowLog(core.PerMinute(5)))

	res, _ := lim.AllowN(context.Background(), "login:alice", 5)
	fmt.Println(res.Allowed, res.Remaining)
	// Output: true 0
}

// A leaky bucket admits a burst and spreads it: the Delay of each request says how
// long to wait for its turn.
func ExampleLeakyBucket() {
	lim := newMemory(core.LeakyBucket(core.Per(1, time.Hour), core.Burst(3)))

	for range 4 {
		res, _ := lim.Allow(context.Background(), "printer")
		fmt.Println(res.Allowed, res.Delay.Round(time.Hour))
	}
	// Output:
	// true 0s
	// true 1h0m0s
	// true 2h0m0s
	// false 0s
}

func ExampleLimit() {
	limit := core.TokenBucket(core.PerSecond(10), core.Burst(30))

	fmt.Println(limit)
	fmt.Println(limit.Name(), limit.Algorithm(), limit.Rate(), limit.Burst())
	// Output:
	// token_bucket 10/1s
	// token-1s token_bucket 10/1s 30
}

// Metrics go by the algorithm.
func ExampleLimit_Algorithm() {
	for _, limit := range []core.Limit{core.GCRA(core.PerMinute(60)), core.SlidingWindowLog(core.PerMinute(5))} {
		fmt.Println(limit.Algorithm())
	}
	// Output:
	// gcra
	// sliding_window_log
}

// The capacity of a bucket is its Burst, that of a window its count. A leaky
// bucket's default is what drains in a second.
func ExampleLimit_Burst() {
	fmt.Println(core.TokenBucket(core.PerMinute(60), core.Burst(5)).Burst())
	fmt.Println(core.FixedWindow(core.PerMinute(60)).Burst())
	fmt.Println(core.LeakyBucket(core.PerMinute(600)).Burst())
	// Output:
	// 5
	// 60
	// 10
}

// The default name says the algorithm and the period, and not the count, which may
// change while keys are in use.
func ExampleLimit_Name() {
	fmt.Println(core.FixedWindow(core.PerDay(5000)).Name())
	fmt.Println(core.FixedWindow(core.PerDay(5000), core.Name("daily")).Name())
	// Output:
	// fixed-1d
	// daily
}

func ExampleLimit_Rate() {
	limit := core.FixedWindow(core.PerDay(5000))
	fmt.Println(limit.Rate().Count(), "every", limit.Rate().Period())
	// Output: 5000 every 24h0m0s
}

// Options follow the rate. Name is one of every algorithm.
func ExampleLimitOption() {
	limit := core.SlidingWindowLog(core.PerHour(5), core.Name("logins"))
	fmt.Println(limit.Name())
	// Output: logins
}

// Burst and Name are options of the bucket algorithms.
func ExampleBucketOption() {
	limit := core.TokenBucket(core.PerMinute(100), core.Burst(30), core.Name("api"))
	fmt.Println(limit.Name(), limit.Burst())
	// Output: api 30
}

// Aligned and Name are options of FixedWindow.
func ExampleWindowOption() {
	limit := core.FixedWindow(core.PerDay(5000), core.Aligned(), core.Name("daily"))
	fmt.Println(limit.Name())
	// Output: daily
}

// One a second on average, but five at once after a pause.
func ExampleBurst() {
	lim := newMemory(core.TokenBucket(core.PerSecond(1), core.Burst(5)))

	res, _ := lim.AllowN(context.Background(), "user:alice", 5)
	fmt.Println(res.Allowed, res.Remaining, res.ResetAfter)
	// Output: true 0 5s
}

// Burst is what may come at once; the rate is what comes in the long run.
func ExampleBurst_default() {
	for _, limit := range []core.Limit{
		core.TokenBucket(core.PerMinute(60)),                 // 60 at once after a rest, then one a second
		core.TokenBucket(core.PerMinute(60), core.Burst(5)),  // 5 at once after a rest, then one a second
		core.LeakyBucket(core.PerSecond(50)),                 // one every 20 ms; 50 in the queue, the last waits 0.98 s
		core.LeakyBucket(core.PerSecond(50), core.Burst(10)), // one every 20 ms; 10 in the queue, the last waits 0.18 s
	} {
		fmt.Println(limit, "burst", limit.Burst())
	}
	// Output:
	// token_bucket 60/1m burst 60
	// token_bucket 60/1m burst 5
	// leaky_bucket 50/1s burst 50
	// leaky_bucket 50/1s burst 10
}

// The windows of an hour begin at each full hour (UTC), for all keys.
func ExampleAligned() {
	lim := newMemory(core.FixedWindow(core.PerHour(1000), core.Aligned()))

	res, _ := lim.Allow(context.Background(), "user:alice")
	end := res.At.Add(res.ResetAfter).UTC()
	fmt.Println(end.Minute(), end.Second())
	// Output: 0 0
}

// A named limit keeps its state when its period changes. Two limits of one algorithm
// and period need different names.
func ExampleName() {
	lim := newMemory(
		core.GCRA(core.PerMinute(600), core.Burst(20), core.Name("burst")),
		core.GCRA(core.PerMinute(100), core.Name("sustained")))

	res, _ := lim.AllowN(context.Background(), "user:alice", 20)
	fmt.Println(res.Name, res.Remaining)
	// Output: burst 0
}

// Rates are values: they can be compared, and stand in a table.
func ExampleRate() {
	tiers := map[string]core.Rate{"free": core.PerHour(60), "paid": core.PerMinute(1000)}
	fmt.Println(tiers["free"] == core.Per(60, time.Hour))
	fmt.Println(tiers["paid"])
	// Output:
	// true
	// 1000/1m
}

func ExampleRate_Count() {
	fmt.Println(core.PerMinute(100).Count())
	// Output: 100
}

func ExampleRate_Period() {
	fmt.Println(core.PerMinute(100).Period())
	// Output: 1m0s
}

// ParseRate reads what String writes.
func ExampleRate_String() {
	rate, err := core.ParseRate(core.Per(5, 90*time.Second).String())
	fmt.Println(rate, err)
	// Output: 5/90s <nil>
}

func ExampleRate_UnmarshalText() {
	var config struct {
		Limit core.Rate `json:"limit"`
	}
	err := json.Unmarshal([]byte(`{"limit": "100/min"}`), &config)
	fmt.Println(config.Limit, err)
	// Output: 100/1m <nil>
}

func ExampleRate_MarshalText() {
	text, err := json.Marshal(map[string]core.Rate{"limit": core.PerMinute(100)})
	fmt.Println(string(text), err)
	// Output: {"limit":"100/1m"} <nil>
}

func ExampleParseRate() {
	rate, err := core.ParseRate("5/10s")
	fmt.Println(rate.Count(), rate.Period(), err)

	_, err = core.ParseRate("0/m")
	fmt.Println(err)
	// Output:
	// 5 10s <nil>
	// redislimit: rate "0/m": the count is 0, allowed is 1 to 1000000000
}

func ExamplePer() {
	fmt.Println(core.Per(5, 10*time.Second), core.Per(1_000_000, 30*24*time.Hour))
	// Output: 5/10s 1000000/30d
}

func ExamplePerSecond() {
	fmt.Println(core.PerSecond(10).Period())
	// Output: 1s
}

func ExamplePerMinute() {
	fmt.Println(core.PerMinute(10).Period())
	// Output: 1m0s
}

func ExamplePerHour() {
	fmt.Println(core.PerHour(10).Period())
	// Output: 1h0m0s
}

// A day has 24 hours, and begins with the first request; for calendar days (UTC)
// there is Aligned.
func ExamplePerDay() {
	fmt.Println(core.PerDay(10).Period())
	// Output: 24h0m0s
}

// Aligned windows of a day end at midnight (UTC), for every key.
func ExampleAligned_day() {
	limit := core.FixedWindow(core.PerDay(5000), core.Aligned())

	res, _ := newMemory(limit).Allow(context.Background(), "tenant:acme")
	end := res.At.Add(res.ResetAfter)
	fmt.Println(end.UTC().Format("15:04:05"))
	// Output: 00:00:00
}

// A limit with a Name keeps its units when its period changes.
func ExampleName_one() {
	limit := core.TokenBucket(core.PerMinute(100), core.Name("api"))
	fmt.Println(limit.Name())
	// Output: api
}

// At most ten requests at the same time, however long they take.
func ExampleInFlight() {
	lim := newMemory(core.InFlight(10))
	defer func() { _ = lim.Close() }()

	res, _ := lim.Allow(context.Background(), "customer:acme")
	fmt.Println(res.Allowed, res.Remaining)
	_ = lim.Release(context.Background(), res)
	res, _ = lim.Peek(context.Background(), "customer:acme")
	fmt.Println(res.Remaining)
	// Output:
	// true 9
	// 10
}

// A slot of a process that has died is free after a minute, instead of 10 s; Redis may
// be away for so long while the work goes on.
func ExampleHold_inFlight() {
	lim := newMemory(core.InFlight(10, core.Hold(time.Minute)))
	fmt.Println(lim.Limits())
	// Output: [in_flight 10]
}

func ExampleInFlightOption() {
	options := []core.InFlightOption{core.Name("exports"), core.Hold(time.Minute)}
	fmt.Println(core.InFlight(3, options...).Name())
	// Output: exports
}
