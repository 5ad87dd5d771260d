package lease_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestLeaseOnCluster leases units of keys on several nodes, of which some are used up. What is
// not spent is back after Close.
func TestLeaseOnCluster(t *testing.T) {
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	lim := core.MustNew(client, "cluster", core.SlidingWindowCounter(core.PerDay(300)), core.FixedWindow(core.PerDay(500)),
		core.Lease(time.Second), core.FailClosed(), core.Timeout(time.Minute))
	ctx := context.Background()
	const keys, each = 5, 250
	var admitted [keys]atomic.Int64
	var leased atomic.Int64
	var callers sync.WaitGroup
	for i := range 20 {
		callers.Go(func() {
			for range each * keys / 20 {
				res, err := lim.Allow(ctx, fmt.Sprint("key", i%keys))
				if err != nil {
					t.Error(err)
					return
				}
				if res.Allowed {
					admitted[i%keys].Add(1)
				}
				if res.Source == core.SourceLease {
					leased.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if err := lim.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		res, err := lim.Peek(ctx, fmt.Sprint("key", i))
		if n := admitted[i].Load(); err != nil || n > 300 || n+res.Remaining > 300 {
			t.Errorf("key %d: %d admitted, %d remain, of 300; %v", i, n, res.Remaining, err)
		}
	}
	if leased.Load() == 0 {
		t.Error("nothing was decided from a lease")
	}
	t.Logf("%d of %d decided from leases", leased.Load(), keys*each)
}
