package lease_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestLeaseUnderLoad has three processes of 64 callers each ask for one key, more often than
// its limit admits, over connections and clocks of their own. Never is more admitted than the
// limit allows.
func TestLeaseUnderLoad(t *testing.T) {
	server, ctx := redistest.Server(t), context.Background()
	const count, each = 20_000, 150
	for _, v := range limits.All() {
		if v.Kind.Unleasable != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			rate := core.PerHour(count) // for a bucket few units more come back while the test runs
			limit := v.With(rate, limits.Settings{Name: "load", Burst: count})
			var admitted, leased, failed atomic.Int64
			begun := time.Now()
			var callers sync.WaitGroup
			var all []*core.Limiter
			for range 3 {
				lim := core.MustNew(server.Client(t), "load-"+v.Kind.Tag+limit.Name(), limit, core.Lease(time.Second), core.FailClosed(),
					core.Timeout(time.Minute), core.DenyCache(0))
				all = append(all, lim)
				for range 64 {
					callers.Go(func() {
						for range each {
							res, err := lim.Allow(ctx, v.Name)
							switch {
							case err != nil:
								failed.Add(1)
								return
							case res.Source == core.SourceLease:
								leased.Add(1)
								admitted.Add(1)
							case res.Allowed:
								admitted.Add(1)
							}
							runtime.Gosched() // callers that never wait would keep replies waiting, for 10 ms each
						}
					})
				}
			}
			callers.Wait()
			for _, lim := range all {
				if err := lim.Close(); err != nil {
					t.Error(err)
				}
			}
			most := int64(count)
			if v.Kind.Bucket {
				most += int64(time.Since(begun)*count/time.Hour) + 1
			}
			left, err := all[0].Peek(ctx, v.Name)
			if err != nil || failed.Load() > 0 {
				t.Fatal(err, failed.Load())
			}
			t.Logf("%d admitted, %d from leases, of %d; %d remain", admitted.Load(), leased.Load(), most, left.Remaining)
			if admitted.Load() > most {
				t.Errorf("%d admitted, of %d", admitted.Load(), most)
			}
			if admitted.Load()+left.Remaining > most {
				t.Errorf("%d admitted, and %d remain, of %d", admitted.Load(), left.Remaining, most)
			}
			if leased.Load() == 0 {
				t.Error("nothing was leased")
			}
		})
	}
}
