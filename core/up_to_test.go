package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestAllowUpTo checks that observers receive one decision for each call, with the number of units that were granted.
func TestAllowUpTo(t *testing.T) {
	t.Parallel()
	type seen struct {
		allowed bool
		cost    int64
	}
	var observed []seen
	lim := MustNew(redistest.Server(t).Client(t), "upto", FixedWindow(PerDay(10)), FailClosed(), Ban(time.Minute),
		Observe(func(_ context.Context, e Event) {
			if e.Kind == EventDecision {
				observed = append(observed, seen{e.Result.Allowed, e.Cost})
			}
		}))
	defer func() { _ = lim.Close() }()
	for _, c := range []struct{ n, granted int64 }{{8, 8}, {8, 2}, {8, 0}, {8, 0}} {
		granted, res, err := lim.AllowUpTo(t.Context(), "k", c.n)
		if err != nil || granted != c.granted || res.Banned {
			t.Errorf("%d of %d units granted, want %d: %+v, %v", granted, c.n, c.granted, res, err)
		}
	}
	if want := []seen{{true, 8}, {true, 2}, {false, 8}, {false, 8}}; len(observed) != len(want) || observed[0] != want[0] || observed[1] != want[1] || observed[2] != want[2] {
		t.Errorf("observed %v, want %v", observed, want)
	}
}

// TestAllowUpToOfSeveralLimits has several limits: as many units are granted as remain in the limit that has the fewest left.
func TestAllowUpToOfSeveralLimits(t *testing.T) {
	t.Parallel()
	for name, large := range map[string]int64{"a large one": 1000, "one of nearly the same size": 12} {
		lim := MustNewMemory("upto", FixedWindow(Per(large, 7*24*time.Hour)), FixedWindow(PerDay(10)))
		if _, err := lim.AllowN(t.Context(), "k", 2); err != nil {
			t.Fatal(err)
		}
		if granted, res, err := lim.AllowUpTo(t.Context(), "k", 9); err != nil || granted != 8 {
			t.Errorf("%s: %d of 9 units granted, want 8: %+v, %v", name, granted, res, err)
		}
	}
}

// TestAllowUpToIgnoresDenyCache frees all units in another process while this process remembers a denial. All units are granted,
// not only those that remained when the denial was made.
func TestAllowUpToIgnoresDenyCache(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	lim, other := MustNew(client, "upto", FixedWindow(PerDay(10)), FailClosed()), MustNew(client, "upto", FixedWindow(PerDay(10)), FailClosed())
	defer func() { _, _ = lim.Close(), other.Close() }()
	if res, err := lim.AllowN(t.Context(), "k", 4); err != nil || !res.Allowed {
		t.Fatalf("AllowN of 4: got %+v, %v; want it admitted", res, err)
	}
	if res, err := lim.AllowN(t.Context(), "k", 10); err != nil || res.Allowed {
		t.Fatalf("AllowN of 10: got %+v, %v; want a denial", res, err)
	}
	if err := other.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if granted, res, err := lim.AllowUpTo(t.Context(), "k", 10); err != nil || granted != 10 {
		t.Errorf("%d of 10 units granted, want 10: %+v, %v", granted, res, err)
	}
}

// TestAllowUpToOfMoreThanCapacity requests more units than the capacity. RetryAfter is then the wait for a whole capacity.
func TestAllowUpToOfMoreThanCapacity(t *testing.T) {
	t.Parallel()
	lim := MustNewMemory("upto", FixedWindow(PerDay(10)))
	for _, want := range []int64{10, 0} {
		granted, res, err := lim.AllowUpTo(t.Context(), "k", 25)
		if err != nil || granted != want || granted > 0 && (res.RetryAfter <= 0 || res.RetryAfter > day) {
			t.Errorf("%d of 25 units granted, want %d, and a RetryAfter of up to a day: %+v, %v", granted, want, res, err)
		}
	}
}

// TestAllowUpToWithoutRedis checks AllowUpTo with each outage policy while Redis is down, and calls that AllowUpTo must refuse.
func TestAllowUpToWithoutRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	for _, c := range []struct {
		policy  Option
		granted int64
	}{{FailOpen(), 10}, {FailLocal(), 10}, {FailClosed(), 0}} {
		lim := MustNew(client, "upto", FixedWindow(PerDay(10)), c.policy)
		granted, _, err := lim.AllowUpTo(t.Context(), "k", 12)
		if granted != c.granted || (c.granted == 0) != errors.Is(err, ErrUnavailable) {
			t.Errorf("%d of 12 units granted, want %d; error %v", granted, c.granted, err)
		}
		_ = lim.Close()
	}
	lim := MustNewMemory("upto", FixedWindow(PerDay(10)))
	if _, _, err := lim.AllowUpTo(t.Context(), "k", -1); !errors.Is(err, ErrInvalidCost) {
		t.Errorf("a cost of -1: got error %v, want ErrInvalidCost", err)
	}
	if _, _, err := lim.AllowUpTo(t.Context(), "", 1); !errors.Is(err, ErrInvalidKey) {
		t.Errorf("no key: got error %v, want ErrInvalidKey", err)
	}
	if _, _, err := MustNewMemory("upto", InFlight(3)).AllowUpTo(t.Context(), "k", 1); err == nil || !strings.Contains(err.Error(), "use AllowN or Acquire") {
		t.Errorf("InFlight: got error %v, want one that names AllowN and Acquire", err)
	}
}

// TestAllowUpToGivesUp takes a unit in another process before each decision, so that the units that remained at one decision are
// too many at the next one. AllowUpTo gives up after maxParts attempts, and grants nothing.
func TestAllowUpToGivesUp(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	limit := Options(FixedWindow(PerDay(100)), FailClosed(), Timeout(time.Minute))
	other := MustNew(server.Client(t), "upto", limit)
	client, counts, calls := server.Client(t), false, 0
	client.AddHook(gate.Around(func(_ []redis.Cmder, next func() error) error {
		if counts {
			calls++
			if _, err := other.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}
		return next()
	}))
	lim := MustNew(client, "upto", limit)
	defer func() { _, _ = lim.Close(), other.Close() }()
	if res, err := lim.AllowN(t.Context(), "k", 50); err != nil || !res.Allowed {
		t.Fatalf("AllowN of 50: got %+v, %v; want it admitted", res, err)
	}
	counts = true
	granted, res, err := lim.AllowUpTo(t.Context(), "k", 100)
	if counts = false; err != nil || granted != 0 || res.Allowed {
		t.Errorf("%d units granted, want 0 and a denial: %+v, %v", granted, res, err)
	}
	if want := 1 + maxParts + 1; calls != want { // the first decision, the attempts, and the wait for the rest
		t.Errorf("%d calls to Redis, want %d", calls, want)
	}
}
