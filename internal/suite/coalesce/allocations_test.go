package coalesce

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestAllowAllocates bounds the allocations of an Allow that has a round trip of its own, including the allocations of
// go-redis. TestBatchAllocates (internal/redisstore) bounds the allocations of a decision in a batch.
func TestAllowAllocates(t *testing.T) {
	client := redisclient.New(t, &redis.Options{Addr: redistest.Server(t).Addr, ContextTimeoutEnabled: true})
	lim := core.MustNew(client, "allocations", core.TokenBucket(core.PerMinute(1_000_000)), core.Timeout(10*time.Second))
	t.Cleanup(func() { _ = lim.Close() })
	got := testing.AllocsPerRun(1000, func() {
		if _, err := lim.Allow(t.Context(), "user:alice"); err != nil {
			t.Error(err)
		}
	})
	if got > 10 {
		t.Errorf("an Allow made %v allocations, want at most 10", got)
	}
}
