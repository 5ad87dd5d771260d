package core_test

import (
	"context"
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
		lim := core.MustNewMemory("work", core.InFlight(1))
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

// TestDroppedSlotsExpire drops a Reservation without an end: the slots are no longer renewed.
func TestDroppedSlotsExpire(t *testing.T) {
	t.Parallel()
	var held atomic.Int64
	logger, logged := textLogger()
	lim := core.MustNewMemory("work", core.InFlight(9), core.Logger(logger), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventSlots {
			held.Add(e.Cost)
		}
	}))
	defer func() { _ = lim.Close() }()
	kept, _ := lim.Acquire(t.Context(), "k", 3)
	func() {
		for range 2 {
			if res, _ := lim.Acquire(t.Context(), "k", 1); !res.Allowed {
				t.Error(res)
			}
		}
	}()
	check.Eventually(t, "only the slots that are not dropped are held", func() bool {
		runtime.GC()
		return held.Load() == 3
	})
	if err := kept.Release(t.Context()); err != nil || held.Load() != 0 {
		t.Errorf("%v; %d slots are held", err, held.Load())
	}
	if n := strings.Count(logged(), "dropped without Settle"); n != 1 {
		t.Errorf("it is logged %d times: %s", n, logged())
	}
}

// textLogger returns a logger, and what it has logged so far.
func textLogger() (*slog.Logger, func() string) {
	var log check.Log
	return slog.New(slog.NewTextHandler(&log, nil)), log.String
}
