package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPipelining runs 64 callers at once through each contender whose client pipelines automatically, and checks
// that they share round trips. A limiter must admit exactly the units of its limit, and INCR must count each call.
func TestPipelining(t *testing.T) {
	srv := testServer(t)
	m := newMeter([]*server{srv})
	defer m.close()
	const callers, requests, most = 64, 200, 1000
	in := cell{callers: callers, keys: 1, scenario: admitted}
	ways := map[string]bool{
		"rueidislimiter, rewritten": true, "redis_rate, AutoPipeline": true, "raw INCR, rueidis": true, "raw INCR, AutoPipeline": true,
	}
	tried := 0
	for _, c := range contenders() {
		if !ways[c.name] {
			continue
		}
		tried++
		t.Run(c.name, func(t *testing.T) {
			both := connect(in, srv.addr)
			defer both.close()
			lim, err := c.make(&setup{in, both, limit{most, time.Hour}, c.id})
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("user:%d", c.id)
			before, err := m.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var allowed atomic.Int64
			var running sync.WaitGroup
			for range callers {
				running.Go(func() {
					for attempt, n := lim(), 0; n < requests; n++ {
						ok, err := attempt(t.Context(), key)
						if err != nil {
							t.Error(err)
							return
						}
						if ok {
							allowed.Add(1)
						}
					}
				})
			}
			running.Wait()
			after, err := m.readBack(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := int64(callers * requests)
			if c.limits {
				want = most
			} else if n, err := both.rdb.Get(t.Context(), key).Int64(); err != nil || n != want {
				t.Errorf("got count %d, %v from INCR, want %d", n, err, want)
			}
			if allowed.Load() != want {
				t.Errorf("got %d admitted, want %d", allowed.Load(), want)
			}
			if reads := after.since(before).reads / (callers * requests); reads > 0.9 {
				t.Errorf("got %.2f reads per decision, want at most 0.9, because callers share round trips", reads)
			}
		})
	}
	if tried != len(ways) {
		t.Errorf("got %d contenders, want %d", tried, len(ways))
	}
}

// TestWindow checks that a window of rueidisWindow ends and the next begins, and that all its keys expire.
func TestWindow(t *testing.T) {
	srv := testServer(t)
	in := cell{callers: 1, keys: 1, scenario: admitted}
	both := connect(in, srv.addr)
	defer both.close()
	lim, err := rueidisWindow(&setup{in, both, limit{1, 2 * time.Second}, 0})
	if err != nil {
		t.Fatal(err)
	}
	attempt := lim()
	for i, want := range []bool{true, false, true, false} {
		if i == 2 {
			time.Sleep(2010 * time.Millisecond)
		}
		if allowed, err := attempt(t.Context(), "user:alice"); err != nil || allowed != want {
			t.Errorf("request %d: got allowed %v, %v, want %v", i, allowed, err, want)
		}
	}
	for _, key := range both.rdb.Keys(t.Context(), "*").Val() {
		if left := both.rdb.PTTL(t.Context(), key).Val(); left <= 0 || left > 3*time.Second {
			t.Errorf("%s: got a TTL of %v, want more than 0 and at most 3s", key, left)
		}
	}
}
