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
	"github.com/redislimit/redislimit/internal/testkit/limits"
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
	// Clock returns the time of the store, if it is not the server's.
	Clock func() time.Time
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
	for _, more := range [][]testCase{algorithmCases(), exampleCases(), inputCases(), stateCases(), changeCases(), refundCases(), severalCases(), logCases()} {
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

var tenPerTen = core.Per(10, 10*time.Second)

// A maker makes a limit of one algorithm, with as much capacity as its rate's count.
type maker = func(r core.Rate) core.Limit

// each makes a case for each algorithm that there is.
func each(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
	var cases []testCase
	for _, v := range limits.All() {
		cases = append(cases, testCase{name + "/" + v.Name, func(t *testing.T, s Store) { run(t, s, v.Limit) }})
	}
	return cases
}
