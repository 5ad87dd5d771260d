package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestMemoryUsage holds what a key costs in Redis against what the documents say
// (docs/operating.md), with a user's key of 20 bytes and the default prefix.
func TestMemoryUsage(t *testing.T) {
	client := redistest.Server(t).Client(t)
	ctx := context.Background()
	for _, c := range []struct {
		limit core.Limit
		most  int64 // bytes after one unit
	}{
		{core.FixedWindow(core.PerMinute(1000)), 120},
		{core.GCRA(core.PerMinute(1000)), 120},
		{core.LeakyBucket(core.PerMinute(1000), core.Burst(1000)), 120},
		{core.TokenBucket(core.PerMinute(1000)), 152},
		{core.SlidingWindowCounter(core.PerMinute(1000)), 152},
		{core.SlidingWindowLog(core.PerMinute(1000)), 200},
		{core.GCRA(core.Per(999_999_937, 400*24*60*60*1e9), core.Burst(1_000_000)), 152},
		{core.TokenBucket(core.Per(999_999_937, 400*24*60*60*1e9), core.Burst(1_000_000)), 184},
	} {
		lim := core.MustNew(client, "api", c.limit)
		key := "user:0123456789abcde"
		var sizes []int64
		var value string
		for i := range 1000 {
			if _, err := lim.Allow(ctx, key); err != nil {
				t.Fatal(err)
			}
			if i == 0 || i == 99 || i == 999 {
				name := "rl:api:{" + key + "}:" + c.limit.Name()
				n, err := client.MemoryUsage(ctx, name, 0).Result()
				if err != nil {
					t.Fatal(err)
				}
				sizes = append(sizes, n)
				value = client.Get(ctx, name).Val()
			}
		}
		if sizes[0] > c.most || len(key) != 20 {
			t.Errorf("%v: %d bytes, want at most %d: %s", c.limit, sizes[0], c.most, value)
		}
		t.Log(strings.TrimSpace(fmt.Sprintf("%-40v %v bytes after 1, 100 and 1000 units: %s", c.limit, sizes, value)))
		client.FlushAll(ctx)
	}
}
