package conformance_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestRedisClock runs by the server's own clock, as in production: scripts are sent by
// their digest, and keys expire.
func TestRedisClock(t *testing.T) {
	client := redistest.Server(t).Client(t)
	ctx := context.Background()

	for _, limit := range []core.Limit{
		core.FixedWindow(core.PerHour(100)), core.TokenBucket(core.PerDay(100)),
	} {
		lim := core.MustNew(client, "exact", limit, core.FailClosed(), core.Timeout(time.Minute))
		var admitted, failed atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 5 {
					res, err := lim.Allow(ctx, "k")
					switch {
					case err != nil:
						failed.Add(1)
					case res.Allowed:
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != 100 || failed.Load() != 0 {
			t.Errorf("%v: %d of 320 admitted, %d errors; want exactly 100 and none", limit, admitted.Load(), failed.Load())
		}
	}

	lim := core.MustNew(client, "expires", core.FixedWindow(core.Per(1, 50*time.Millisecond)), core.TokenBucket(core.Per(1, 50*time.Millisecond)), core.FailClosed(), core.Timeout(time.Minute))
	before := client.DBSize(ctx).Val()
	if res, err := lim.Allow(ctx, "k"); err != nil || !res.Allowed {
		t.Fatal(res, err)
	}
	if n := client.DBSize(ctx).Val() - before; n != 2 {
		t.Errorf("%d keys stored, want 2", n)
	}
	deadline := time.Now().Add(10 * time.Second)
	for client.DBSize(ctx).Val() != before {
		if time.Now().After(deadline) {
			t.Fatal("the keys did not expire")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestScriptFlush flushes the script cache while calls are made.
func TestScriptFlush(t *testing.T) {
	client := redistest.Server(t).Client(t)
	ctx := context.Background()
	lim := core.MustNew(client, "flush", core.FixedWindow(core.PerHour(1000)), core.FailClosed(), core.Timeout(time.Minute))
	for i := range int64(50) {
		if i%3 == 0 {
			client.ScriptFlush(ctx)
		}
		if res, err := lim.Allow(ctx, "k"); err != nil || res.Remaining != 999-i {
			t.Fatalf("call %d: %+v, %v", i+1, res, err)
		}
	}
}
