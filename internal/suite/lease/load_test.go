package lease_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestLeaseUnderLoad makes three processes with 64 callers each request a few keys, more often than their limit admits,
// over connections and clocks of their own, on a server and on a Cluster. No key is admitted more than its limit allows,
// and at the end the unspent units have been given back.
func TestLeaseUnderLoad(t *testing.T) {
	server := redistest.Server(t)
	of := map[string][]limits.Variant{"several": {}}
	for _, v := range leasable() {
		of[v.Name] = []limits.Variant{v}
		of["several"] = append(of["several"], v)
	}
	for name, variants := range of {
		t.Run(name, func(t *testing.T) {
			leaseUnderLoad(t, func() core.Client { return server.Client(t) }, 1, 20_000, variants)
		})
	}
	t.Run("several on a Cluster", func(t *testing.T) {
		addrs := redistest.Cluster(t)
		leaseUnderLoad(t, func() core.Client { return redistest.ClusterClient(t, addrs) }, 5, 1500, of["several"])
	})
}

func leaseUnderLoad(t *testing.T, client func() core.Client, keys int, count int64, variants []limits.Variant) {
	const each = 150
	opts := []core.Option{core.Lease(time.Second), core.FailClosed(), core.Timeout(time.Minute), core.DenyCache(0)}
	bucket := false
	for i, v := range variants {
		// With a period of an hour, few units come back while the test runs.
		opts = append(opts, v.With(core.PerHour(count), limits.Settings{Name: fmt.Sprint("load", i), Burst: count}))
		bucket = bucket || v.Kind.Debt
	}
	admitted := make([]atomic.Int64, keys)
	var leased atomic.Int64
	begun := time.Now()
	var callers sync.WaitGroup
	var all []*core.Limiter
	for range 3 {
		lim := core.MustNew(client(), fmt.Sprint("load-", len(variants), variants[0].Name), opts...)
		all = append(all, lim)
		for i := range 64 {
			callers.Go(func() {
				for range each {
					res, err := lim.Allow(t.Context(), fmt.Sprint("k", i%keys))
					if err != nil {
						t.Error(err)
						return
					}
					if res.Source == core.SourceLease {
						leased.Add(1)
					}
					if res.Allowed {
						admitted[i%keys].Add(1)
					}
					runtime.Gosched() // without this, callers that never block would delay each reply by 10 ms
				}
			})
		}
	}
	callers.Wait()
	for _, lim := range all {
		check.OK(t, lim.Close())
	}
	most := count
	if bucket {
		most += int64(time.Since(begun)*time.Duration(count)/time.Hour) + 1
	}
	for i := range admitted {
		left, err := all[0].Peek(t.Context(), fmt.Sprint("k", i))
		if n := admitted[i].Load(); err != nil || n > most || n+left.Remaining > most {
			t.Errorf("key k%d: %d units were admitted and %d remain, %[5]v; want at most %[4]d together", i, n, left.Remaining, most, err)
		}
	}
	if leased.Load() == 0 {
		t.Error("no decision was made by a lease, want some")
	}
}
