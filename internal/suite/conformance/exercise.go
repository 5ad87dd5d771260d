// Package conformance holds what every store of limits must do, as one suite:
// [Exercise] runs the same cases over miniredis, a real Redis and whatever else
// claims to keep limits.
package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// A Store is one thing under test, fresh and empty for each case.
type Store struct {
	// New makes a Limiter on the store.
	New func(name string, opts ...core.Option) (*core.Limiter, error)
	// Advance moves the store's clock, back where d is negative and there is a Redis.
	Advance func(d time.Duration)
	// ForgetsByClock says that a step back of the clock does not bring back what
	// expired before it, as it does where only the scripts' clock is driven.
	ForgetsByClock bool
	// Redis looks at the keys behind the Limiter's back; nil for a store in memory,
	// of which each Limiter has its own.
	Redis redis.UniversalClient
}

// An Opener makes a Store, runs one case on it and cleans up.
type Opener func(t *testing.T, run func(t *testing.T, s Store))

type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

// Exercise runs every case over the stores that open makes.
func Exercise(t *testing.T, open Opener) {
	t.Helper()
	var cases []testCase
	for _, more := range [][]testCase{algorithmCases(), exampleCases(), inputCases(), stateCases(), changeCases(), refundCases(), severalCases()} {
		cases = append(cases, more...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { open(t, c.run) })
	}
}

func (s Store) limiter(t *testing.T, name string, opts ...core.Option) *core.Limiter {
	t.Helper()
	lim, err := s.New(name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

func allowN(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	res, err := lim.AllowN(context.Background(), key, n)
	if err != nil {
		t.Fatalf("AllowN(%q, %d): %v", key, n, err)
	}
	return res
}

func peek(t *testing.T, lim *core.Limiter, key string) core.Result {
	t.Helper()
	res, err := lim.Peek(context.Background(), key)
	if err != nil {
		t.Fatalf("Peek(%q): %v", key, err)
	}
	return res
}

// want compares what a user reads of a Result. At and Source are the store's own.
func want(t *testing.T, got core.Result, allowed bool, remaining int64, retry, reset time.Duration) {
	t.Helper()
	if got.Allowed != allowed || got.Remaining != remaining || got.RetryAfter != retry || got.ResetAfter != reset {
		t.Errorf("got Allowed %v, Remaining %d, RetryAfter %v, ResetAfter %v; want %v, %d, %v, %v",
			got.Allowed, got.Remaining, got.RetryAfter, got.ResetAfter, allowed, remaining, retry, reset)
	}
}

// kinds are the algorithms, each with as much capacity as its rate's count.
var kinds = []struct {
	name string
	make func(r core.Rate, o ...core.LimitOption) core.Limit
}{
	{"FixedWindow", core.FixedWindow},
	{"FixedWindowAligned", func(r core.Rate, o ...core.LimitOption) core.Limit {
		return core.FixedWindow(r, append(o, core.Aligned())...)
	}},
	{"SlidingWindowLog", core.SlidingWindowLog},
	{"SlidingWindowCounter", core.SlidingWindowCounter},
	{"TokenBucket", core.TokenBucket},
	{"LeakyBucket", func(r core.Rate, o ...core.LimitOption) core.Limit {
		return core.LeakyBucket(r, append(o, core.Burst(r.Count()))...)
	}},
	{"GCRA", core.GCRA},
}

var tenPerTen = core.Per(10, 10*time.Second)

// each makes a case for each of the kinds.
func each(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
	var cases []testCase
	for _, kind := range kinds {
		cases = append(cases, testCase{name + "/" + kind.name, func(t *testing.T, s Store) { run(t, s, kind.make) }})
	}
	return cases
}
