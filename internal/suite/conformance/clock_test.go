package conformance_test

import (
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestRedisClock decides by the server's own clock, as in production. Scripts are sent by their digest, also after Redis
// has forgotten them, and keys expire.
func TestRedisClock(t *testing.T) {
	client := redistest.Server(t).Client(t)
	ctx := t.Context()
	patient := core.Options(core.FailClosed(), core.Timeout(time.Minute))
	lim := core.MustNew(client, "flush", core.FixedWindow(core.PerHour(1000)), patient)
	for i := range int64(50) {
		if i%3 == 0 {
			client.ScriptFlush(ctx)
		}
		if res, err := lim.Allow(ctx, "k"); err != nil || res.Remaining != 999-i {
			t.Fatalf("call %d: got %+v, %v; want %d remaining", i+1, res, err, 999-i)
		}
	}
	lim = core.MustNew(client, "expires", core.FixedWindow(core.Per(1, 50*time.Millisecond)), core.TokenBucket(core.Per(1, 50*time.Millisecond)), patient)
	before := client.DBSize(ctx).Val()
	if res, err := lim.Allow(ctx, "k"); err != nil || !res.Allowed {
		t.Fatalf("the first call: got %+v, %v; want it allowed", res, err)
	}
	if n := client.DBSize(ctx).Val() - before; n != 2 {
		t.Errorf("%d keys are stored, want 2: one for each limit", n)
	}
	check.Eventually(t, "the keys expire", func() bool { return client.DBSize(ctx).Val() == before })
}
