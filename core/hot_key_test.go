package core

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const hotFor = 100 * time.Millisecond

// TestHotKeys has a key become hot when it is asked for eight times within d, and not before.
func TestHotKeys(t *testing.T) {
	limits := &limitSet{}
	for gap, hot := range map[time.Duration]bool{0: true, hotFor / 8: true, hotFor / 6: false, hotFor: false} {
		table := newHotKeys(hotFor, 1)
		var h *hotKey
		asks := 0
		for now := time.Hour; asks < 40 && h == nil; now += gap {
			asks++
			h = table.count(table.set(table.hash("k")), table.hash("k"), "k", limits, now)
		}
		if (h != nil) != hot || hot && asks != hotAsks {
			t.Errorf("asked every %v: hot after %d requests: %v", gap, asks, h != nil)
		}
		if found := table.set(table.hash("k")).find("k", limits); found != h {
			t.Errorf("asked every %v: found %p, want %p", gap, found, h)
		}
		if found := table.set(table.hash("k")).find("k", &limitSet{}); found != nil {
			t.Error("found by other limits")
		}
	}
}

// TestHotKeysBounded has more keys asked for than the table holds: those that are hot stay, and
// idle ones make room.
func TestHotKeysBounded(t *testing.T) {
	table, limits := newHotKeys(hotFor, 1), &limitSet{}
	heat := func(prefix string, keys int, now time.Duration) (hot int) {
		for i := range keys {
			key := fmt.Sprint(prefix, i)
			for range hotAsks {
				if h := table.count(table.set(table.hash(key)), table.hash(key), key, limits, now); h != nil {
					hot++
					break
				}
			}
		}
		return hot
	}
	const most = hotSets * hotWays
	first := heat("first", 4*most, time.Hour)
	if first > most || first < most*3/4 {
		t.Errorf("%d keys are hot, of %d that there is room for", first, most)
	}
	if more := heat("second", 4*most, time.Hour); first+more > most {
		t.Errorf("%d more keys are hot, beside %d", more, first)
	}
	if later := heat("third", 4*most, time.Hour+2*hotFor); later < most*3/4 {
		t.Errorf("%d keys are hot after the others were idle", later)
	}
	long := string(make([]byte, maxHotKey+1))
	for range 2 * hotAsks {
		if table.count(table.set(table.hash(long)), table.hash(long), long, limits, 3*time.Hour) != nil {
			t.Fatal("a long key is kept")
		}
	}
}

// atOnce has a client of Redis admit everything at once, by itself.
type atOnce struct{ redis.Hook }

func (atOnce) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	reply := []int64{1, 1_800_000_000_000_000, 0, 0, 0}
	return func(_ context.Context, cmd redis.Cmder) error { return set(cmd, reply...) }
}

func (atOnce) DialHook(next redis.DialHook) redis.DialHook { return next }

func (atOnce) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// BenchmarkColdKey is what leases add to a decision on a key that is not hot, all in this
// process: Limiters with and without them take turns, and the fastest turn of each counts.
func BenchmarkColdKey(b *testing.B) {
	const turn = 200
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	client.AddHook(atOnce{})
	b.Cleanup(func() { _ = client.Close() })
	for _, count := range []int{1, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("%d keys", count), func(b *testing.B) {
			keys := make([]string, count)
			for i := range keys {
				keys[i] = fmt.Sprint("user:", i)
			}
			opts := Options(TokenBucket(PerSecond(1000)), FailClosed(), Timeout(time.Minute))
			limiters := [2]*Limiter{MustNew(client, "plain", opts), MustNew(client, "lease", opts, Lease(hotFor))}
			limiters[1].leases.hot.asks = math.MaxInt64 // no key is hot
			fastest, ctx := [2]time.Duration{math.MaxInt64, math.MaxInt64}, context.Background()
			for b.Loop() {
				for i, lim := range limiters {
					first := rand.IntN(count)
					begun := time.Now()
					for k := range turn {
						if res, err := lim.Allow(ctx, keys[(first+k*7919)%count]); err != nil || !res.Allowed {
							b.Fatal(res, err)
						}
					}
					fastest[i] = min(fastest[i], time.Since(begun))
				}
			}
			b.ReportMetric(float64(fastest[0])/turn, "ns/plain")
			b.ReportMetric(float64(fastest[1])/turn, "ns/lease")
			b.ReportMetric(float64(fastest[1]-fastest[0])/turn, "ns-added")
		})
	}
}
