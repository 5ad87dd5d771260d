// Package conformance is the suite of what every store of limits must do. [Exercise]
// runs the same cases, and [Properties] random ones, on miniredis, on a real Redis, on
// a Cluster and in memory.
package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// A Store is a store under test, empty at the start of each case.
type Store struct {
	// New makes a Limiter on the store.
	New func(name string, opts ...core.Option) (*core.Limiter, error)
	// Advance moves the store's clock by d. If there is a Redis, d can be negative.
	Advance func(d time.Duration)
	// ForgetsByClock says that keys expire by the clock of Advance, so that after a step
	// back they are gone. If only the scripts' clock is driven, they are not.
	ForgetsByClock bool
	// Clock returns the time of the store, if it is not the server's.
	Clock func() time.Time
	// Redis reads and writes the keys directly. It is nil for a store in memory, of
	// which each Limiter has its own.
	Redis redis.UniversalClient
	// Commands returns how many commands and pipelines the Limiters have sent; only Together needs it.
	Commands func() int64
}

// An Opener makes a Store, runs one case on it and closes it.
type Opener func(t *testing.T, run func(t *testing.T, s Store))

type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

// Exercise runs every case over the stores that open makes.
func Exercise(t *testing.T, open Opener) {
	t.Helper()
	var cases []testCase
	for _, more := range [][]testCase{
		algorithmCases(), inputCases(), stateCases(), holdCases(), inFlightCases(), withCases(), upToCases(), unlimitedCases(), logCases(),
		queueCases(), calendarCases(), banCases(), storedCases(),
	} {
		cases = append(cases, more...)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { open(t, c.run) })
	}
}

// needsRedis skips a case that makes no sense in memory.
func (s Store) needsRedis(t *testing.T, why string) {
	t.Helper()
	if s.Redis == nil {
		t.Skip(why)
	}
}

// needsStepsBack skips a case where the clock cannot step back.
func (s Store) needsStepsBack(t *testing.T) {
	t.Helper()
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("the clock does not step back")
	}
}

// entries is how many keys a store in memory may have.
func (s Store) entries(n int) core.Option {
	if s.Redis != nil {
		return core.Options()
	}
	return core.MaxKeys(n)
}

func (s Store) limiter(t *testing.T, name string, opts ...core.Option) *core.Limiter {
	t.Helper()
	if s.Redis != nil { // its clock is driven, so that of the process stands: a hold is not over because the machine is slow
		begun := time.Now()
		stands := inside.Core.Simulate(coreaccess.Simulation{Holds: func() time.Time { return begun }})
		opts = append([]core.Option{stands}, opts...)
	}
	lim, err := s.New(name, opts...)
	check.Need(t, err)
	t.Cleanup(func() { _ = lim.Close() })
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

// want compares the fields of a Result that are the same on every store.
func want(t *testing.T, got core.Result, allowed bool, remaining int64, retry, reset time.Duration) {
	t.Helper()
	if got.Allowed != allowed || got.Remaining != remaining || got.RetryAfter != retry || got.ResetAfter != reset {
		t.Errorf("got Allowed %v, Remaining %d, RetryAfter %v, ResetAfter %v; want %v, %d, %v, %v",
			got.Allowed, got.Remaining, got.RetryAfter, got.ResetAfter, allowed, remaining, retry, reset)
	}
}

var tenPerTen = core.Per(10, 10*time.Second)

// A maker makes a limit of one algorithm, whose capacity is the rate's count.
type maker = func(r core.Rate) core.Limit

// remains compares what remains of a key's limit.
func remains(t *testing.T, lim *core.Limiter, key string, want int64) {
	t.Helper()
	if res := peek(t, lim, key); res.Remaining != want {
		t.Errorf("%d of %d units of %s remain, want %d", res.Remaining, res.Limit, key, want)
	}
}

// unstored fails if the key has a state.
func (s Store) unstored(t *testing.T) {
	t.Helper()
	if s.Redis != nil && len(s.keys(t)) != 0 {
		t.Errorf("stored is %v", s.dump(t))
	}
}

// others returns another Limiter over the keys of lim, or lim itself where each has its
// own.
func (s Store) others(t *testing.T, lim *core.Limiter, opts ...core.Option) *core.Limiter {
	t.Helper()
	if s.Redis == nil {
		return lim
	}
	return s.limiter(t, lim.Name(), opts...)
}

// each makes a case for each registered algorithm that has a rate.
func each(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
	return cases(name, limits.All(), run)
}

// eachWithSlots makes a case for each registered algorithm.
func eachWithSlots(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
	return cases(name, append(limits.All(), limits.Slots()...), run)
}

func cases(name string, of []limits.Variant, run func(t *testing.T, s Store, limit maker)) []testCase {
	var cases []testCase
	for _, v := range of {
		cases = append(cases, testCase{name + "/" + v.Name, func(t *testing.T, s Store) { run(t, s, v.Limit) }})
	}
	return cases
}
