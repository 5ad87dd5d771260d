package outage

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestSlotsMove moves slots of a Cluster slowly, key by key, while many callers decide. While a slot moves, the keys of one
// decision of several limits are on two nodes, and both nodes refuse it. The limiter repeats the decision until the keys
// are together, so Redis makes at least 99 % of all decisions, each of them once, and no node is mistaken for one that is
// down. Nearly all decisions share scripts with decisions on keys of other slots.
func TestSlotsMove(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	check.IdleRounds(t, tooBusy, func(t *check.Round) { slotsMove(t, addrs, 96, 3*time.Millisecond) })
}

// slotsMove moves slots while callers decide, with a pause between two calls.
func slotsMove(t *check.Round, addrs []string, callers int, pause time.Duration) {
	const lasts, keyEvery, users = 3 * time.Second, 30 * time.Millisecond, 30
	client := redistest.ClusterClient(t, addrs)
	name := fmt.Sprint("moving", time.Now().UnixNano())
	l, watch := watched(client, name, core.FailOpen(), core.DenyCache(0),
		core.FixedWindow(core.PerHour(1e6)), core.TokenBucket(core.PerHour(1e6)), core.SlidingWindowLog(core.PerHour(1e5)))
	keys := make([]string, users)
	for i := range keys {
		keys[i] = fmt.Sprint("user", i)
		if _, err := l.Allow(t.Context(), keys[i]); err != nil {
			t.Fatal(err)
		}
	}
	var calls, byRedis atomic.Int64
	var running sync.WaitGroup
	end := time.Now().Add(lasts)
	for i := range callers {
		running.Go(func() {
			for n := i; time.Now().Before(end); n++ {
				res, err := l.Allow(t.Context(), keys[n*7%users]) // the callers use the keys in another order than the slots move
				check.OK(t, err)
				calls.Add(1)
				if res.Source == core.SourceRedis {
					byRedis.Add(1)
				}
				time.Sleep(pause)
			}
		})
	}
	admin := redistest.ClusterClient(t, addrs)
	moved := 0
	for ; time.Now().Before(end); moved++ {
		moveSlot(t, admin, "{"+keys[moved%users]+"}", keyEvery)
	}
	running.Wait()
	share := float64(byRedis.Load()) / float64(calls.Load())
	t.Logf("%d slots moved; Redis made %.2f %% of %d decisions; %d calls failed", moved, 100*share, calls.Load(), watch.count(core.EventOutage))
	if share < 0.99 {
		t.Errorf("Redis made %.2f %% of %d decisions, want at least 99 %%", 100*share, calls.Load())
	}
	watch.wantOutages(t, 0)
	used := int64(0)
	for _, key := range keys {
		awaitRedis(t, l, key)
		res, err := l.Peek(t.Context(), key)
		check.OK(t, err)
		for r := range res.All() {
			if r.LimitName == "fixed-1h" {
				used += 1e6 - r.Remaining
			}
		}
	}
	if least := byRedis.Load() + users; used < least || used > calls.Load()+users {
		t.Errorf("%d units are charged, want %d to %d", used, least, calls.Load()+users)
	}
}

// moveSlot moves the slot of key to another master, one key at a time.
func moveSlot(t *check.Round, client *redis.ClusterClient, key string, every time.Duration) {
	slot := client.ClusterKeySlot(t.Context(), key).Val()
	from, to := holderOf(t, client, slot)
	redistest.BeginMove(t, slot, from, to)
	stored, err := from.ClusterGetKeysInSlot(t.Context(), int(slot), 100).Result()
	check.Need(t, err)
	for _, k := range stored {
		redistest.MoveKey(t, from, to, k)
		time.Sleep(every)
	}
	redistest.EndMove(t, slot, from, to)
}

// holderOf returns the master that has the keys of the slot, and another master.
func holderOf(t *check.Round, client *redis.ClusterClient, slot int64) (holder, other *redis.Client) {
	var mu sync.Mutex
	if err := client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.ClusterCountKeysInSlot(ctx, int(slot)).Result()
		mu.Lock()
		defer mu.Unlock()
		if keys > 0 {
			holder = node
		} else {
			other = node
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if holder == nil || other == nil {
		t.Fatalf("slot %d: found the master %v with keys and the master %v without, want one of each", slot, holder, other)
	}
	return holder, other
}

// TestSlotOfNoNode removes a slot from its node without giving it to another node. For a moment the slot may be on its way.
// After that each call is reported as failed, and a line says what to do. Check says so, too, and Redis decides on the keys
// of other slots.
func TestSlotOfNoNode(t *testing.T) {
	t.Parallel()
	const hint = "redis-cli --cluster check"
	addrs := redistest.Cluster(t)
	client := redistest.ClusterClient(t, addrs)
	l, watch := limiter(client, "nobody", core.Timeout(time.Minute)) // so long that a busy machine causes no outage
	for _, key := range []string{"k", "other"} {
		awaitRedis(t, l, key)
	}
	slot := client.ClusterKeySlot(t.Context(), "k").Val()
	if err := client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		if err := node.ConfigSet(ctx, "cluster-require-full-coverage", "no").Err(); err != nil {
			return err
		}
		return node.ClusterDelSlots(ctx, int(slot)).Err()
	}); err != nil {
		t.Fatal(err)
	}
	source := func(key string) core.Source {
		res, err := l.Allow(t.Context(), key)
		check.OK(t, err)
		return res.Source
	}
	check.Eventually(t, "the fallback decides, as no node has the slot", func() bool { return source("k") == core.SourceFallback })
	begun := time.Now()
	if n := watch.count(core.EventOutage); n > 0 && time.Since(begun) < time.Second {
		t.Errorf("%d failed calls were reported at once, want none as the slot might be on its way: %v", n, watch.firstCauses())
	}
	check.Eventually(t, "a failed call is reported", func() bool {
		source("k")
		time.Sleep(50 * time.Millisecond)
		return watch.count(core.EventOutage) > 0
	})
	if took := time.Since(begun); took < 2*time.Second {
		t.Errorf("a failed call was reported after %v, want 3s: the slot might be on its way", took)
	}
	if by := source("other"); by != core.SourceRedis {
		t.Errorf("a key of another slot was decided by %v, want Redis", by)
	}
	watch.mu.Lock()
	if lines := strings.Join(watch.texts, "\n"); strings.Count(lines, hint) != 1 || watch.lines[slog.LevelWarn] != 1 {
		t.Errorf("the logged lines are %q, want one warning, with one hint to check the Cluster", lines)
	}
	watch.mu.Unlock()
	if err := l.Check(t.Context()); err == nil || !strings.Contains(err.Error(), hint) {
		t.Errorf("Check: got error %v, want one with the hint %q", err, hint)
	}
}
