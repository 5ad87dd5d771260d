// Package conformance is the suite that every store of limits must pass. [Exercise] runs the same cases, and [Properties]
// random histories, on miniredis, on a real Redis, on a Cluster and in memory.
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

// A Store is a store of limits under test. It is empty at the start of each case.
type Store struct {
	// New makes a Limiter on the store.
	New func(name string, opts ...core.Option) (*core.Limiter, error)
	// Advance moves the store's clock by d. On Redis, d can be negative.
	Advance func(d time.Duration)
	// ForgetsByClock says that keys expire by the clock that Advance moves, so that a key that has expired stays gone after
	// the clock steps back. Where only the clock of the scripts is driven, keys do not expire.
	ForgetsByClock bool
	// Clock returns the time of the store's clock. It is nil if the store uses the server's clock.
	Clock func() time.Time
	// Redis is a client that reads and writes the keys directly. It is nil for a store in memory, where each Limiter has
	// keys of its own.
	Redis redis.UniversalClient
	// Commands returns how many commands and pipelines the Limiters have sent. Only [Together] needs it.
	Commands func() int64
}

// An Opener makes a Store, runs one case on it, and closes it.
type Opener func(t *testing.T, run func(t *testing.T, s Store))

type testCase struct {
	name string
	run  func(t *testing.T, s Store)
}

// Exercise runs every case, each on a new store that open makes.
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

// needsRedis skips a case that makes no sense for a store in memory, and says why.
func (s Store) needsRedis(t *testing.T, why string) {
	t.Helper()
	if s.Redis == nil {
		t.Skip(why)
	}
}

// needsStepsBack skips a case on stores whose clock cannot step back.
func (s Store) needsStepsBack(t *testing.T) {
	t.Helper()
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("the clock does not step back")
	}
}

// entries returns the option that limits a store in memory to n keys. On Redis it does nothing.
func (s Store) entries(n int) core.Option {
	if s.Redis != nil {
		return core.Options()
	}
	return core.MaxKeys(n)
}

// limiter returns a new Limiter on the store, which is closed after the test.
func (s Store) limiter(t *testing.T, name string, opts ...core.Option) *core.Limiter {
	t.Helper()
	if s.Redis != nil { // Redis's clock is driven, so the process's clock for holds stands: no hold expires because the machine is slow
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

// want compares those fields of a Result that are the same on every store.
func want(t *testing.T, got core.Result, allowed bool, remaining int64, retry, reset time.Duration) {
	t.Helper()
	if got.Allowed != allowed || got.Remaining != remaining || got.RetryAfter != retry || got.ResetAfter != reset {
		t.Errorf("got Allowed %v, Remaining %d, RetryAfter %v, ResetAfter %v; want %v, %d, %v, %v",
			got.Allowed, got.Remaining, got.RetryAfter, got.ResetAfter, allowed, remaining, retry, reset)
	}
}

var tenPerTen = core.Per(10, 10*time.Second)

// A maker makes a limit of one algorithm. The capacity of the limit is the count of the rate.
type maker = func(r core.Rate) core.Limit

// remains checks how many units of a key's limit remain.
func remains(t *testing.T, lim *core.Limiter, key string, want int64) {
	t.Helper()
	if res := peek(t, lim, key); res.Remaining != want {
		t.Errorf("%d of %d units of key %s remain, want %d", res.Remaining, res.Limit, key, want)
	}
}

// unstored fails the test if any key is stored.
func (s Store) unstored(t *testing.T) {
	t.Helper()
	if s.Redis != nil && len(s.keys(t)) != 0 {
		t.Errorf("%v is stored at %v, want nothing stored", s.dump(t), s.keys(t))
	}
}

// others returns another Limiter over the keys of lim. In memory, where each Limiter has keys of its own, it returns lim
// itself.
func (s Store) others(t *testing.T, lim *core.Limiter, opts ...core.Option) *core.Limiter {
	t.Helper()
	if s.Redis == nil {
		return lim
	}
	return s.limiter(t, lim.Name(), opts...)
}

// each makes a case for each registered algorithm that has a rate: all except those that limit slots.
func each(name string, run func(t *testing.T, s Store, limit maker)) []testCase {
	return cases(name, limits.All(), run)
}

// eachWithSlots makes a case for each registered algorithm, also for slots.
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
