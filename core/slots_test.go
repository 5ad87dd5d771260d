package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestSlotsAreRenewedInTheBackground has work that takes a hundred times the hold, in the
// time of a bubble, and a process that stops renewing.
func TestSlotsAreRenewedInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := core.NewMemory("work", core.InFlight(1))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lim.Close() }()
		res, _ := lim.Acquire(t.Context(), "k", 1)
		ctx, cancel := res.Context(t.Context())
		defer cancel()
		for range 1000 {
			time.Sleep(time.Second)
			if other, _ := lim.Acquire(t.Context(), "k", 1); other.Allowed || ctx.Err() != nil {
				t.Fatalf("the work goes on: %+v, %v", other, ctx.Err())
			}
		}
		if err := lim.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Second/3 - time.Second) // it was renewed 10/3 s ago at most
		if other, _ := lim.Acquire(t.Context(), "k", 1); other.Allowed {
			t.Error("the slot was free before its hold was over")
		}
		time.Sleep(11*time.Second - 20*time.Second/3)
		if other, _ := lim.Acquire(t.Context(), "k", 1); !other.Allowed {
			t.Error("the slot is held although nothing renews it")
		}
	})
}

// TestEvictedSlotIsLost has memory for one key only: the slot of another is lost, which
// its holder learns within a third of the hold.
func TestEvictedSlotIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim, err := core.NewMemory("work", core.InFlight(1, core.SlotTTL(9*time.Second)), core.Entries(1))
		if err != nil {
			t.Fatal(err)
		}
		res, _ := lim.Acquire(t.Context(), "k", 1)
		ctx, cancel := res.Context(t.Context())
		defer cancel()
		other, _ := lim.Acquire(t.Context(), "other", 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(ctx), core.ErrSlotLost) {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		_ = other.Release(t.Context())
		time.Sleep(time.Minute) // and no goroutine is left
	})
}

// TestDroppedSlotsExpire drops a Reservation without an end: the slots are no longer renewed.
func TestDroppedSlotsExpire(t *testing.T) {
	t.Parallel()
	var held atomic.Int64
	logger, logged := textLogger()
	lim, err := core.NewMemory("work", core.InFlight(9), core.Logger(logger), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventSlots {
			held.Add(e.Cost)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	kept, _ := lim.Acquire(t.Context(), "k", 3)
	func() {
		for range 2 {
			if res, _ := lim.Acquire(t.Context(), "k", 1); !res.Allowed {
				t.Error(res)
			}
		}
	}()
	for deadline := time.Now().Add(30 * time.Second); held.Load() != 3; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are held, want 3", held.Load())
		}
	}
	if err := kept.Release(t.Context()); err != nil || held.Load() != 0 {
		t.Errorf("%v; %d slots are held", err, held.Load())
	}
	if n := strings.Count(logged(), "dropped without Settle"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, logged())
	}
}

// TestInFlightIsChecked has every mistake that New reports.
func TestInFlightIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit core.Limit
		want  string
	}{
		{core.InFlight(0), "InFlight(0): allowed is 1 to 1000000000"},
		{core.InFlight(-1), "InFlight(-1): allowed is 1 to 1000000000"},
		{core.InFlight(1_000_000_001), "InFlight(1000000001): allowed is 1 to 1000000000"},
		{core.InFlight(1, core.SlotTTL(0)), "SlotTTL(0s): allowed is 10ms to 1h0m0s"},
		{core.InFlight(1, core.SlotTTL(2*time.Hour)), "SlotTTL(2h0m0s): allowed is 10ms to 1h0m0s"},
		{core.InFlight(1, core.Name("a b")), "Name(\"a b\")"},
		{core.InFlight(1, nil), "a nil option"},
	} {
		if _, err := core.NewMemory("work", c.limit); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	limit := core.InFlight(10, core.SlotTTL(time.Minute), core.Name("slow"))
	if limit.String() != "in_flight 10 slot_ttl=1m name=slow" || limit.Name() != "slow" || limit.Capacity() != 10 || limit.Rate() != (core.Rate{}) || limit.Algorithm() != "in_flight" {
		t.Errorf("%v, %q, %d, %v, %q", limit, limit.Name(), limit.Capacity(), limit.Rate(), limit.Algorithm())
	}
	if limit != core.InFlight(10, core.SlotTTL(time.Minute), core.Name("slow")) || limit == core.InFlight(10, core.Name("slow")) {
		t.Error("limits are compared by all that they are made of")
	}
}

// TestTighterSlots compares Results of slots with others.
func TestTighterSlots(t *testing.T) {
	t.Parallel()
	slots := core.Result{Allowed: true, Source: core.SourceRedis, Limit: 10}
	rate := core.Result{Allowed: true, Source: core.SourceRedis, Limit: 10, Remaining: 10, Window: time.Minute}
	if slots.Tighter(rate) || !rate.Tighter(slots) {
		t.Error("slots that admit are tighter than a rate that does")
	}
	slots.Allowed = false
	if !slots.Tighter(rate) || rate.Tighter(slots) {
		t.Error("slots that deny are not tighter than a rate that admits")
	}
}

// textLogger returns a logger, and what it has logged so far.
func textLogger() (*slog.Logger, func() string) {
	var log check.Log
	return slog.New(slog.NewTextHandler(&log, nil)), log.String
}
