package coalesce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// aYear is a period of which no window ends during a test.
const aYear = 365 * 24 * time.Hour

// enqueueCall makes a call in a goroutine, and returns once it waits for a batch. The gate must be held and full.
func enqueueCall(ctx context.Context, t *testing.T, what string, call func(ctx context.Context) (core.Result, error)) *answer {
	t.Helper()
	c := &waitContext{Context: ctx, waiting: make(chan struct{})}
	a := &answer{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.Result, a.err = call(c)
	}()
	check.Receive(t, what+" waits", c.waiting)
	return a
}

// A caller makes calls that wait for one batch.
type caller struct {
	*backend

	t    *testing.T
	lim  *core.Limiter
	busy []*answer
	all  []*answer
}

func (s *backend) caller(t *testing.T, lim *core.Limiter) *caller {
	t.Helper()
	return &caller{backend: s, t: t, lim: lim, busy: s.occupy(t, lim)}
}

func (c *caller) enqueue(what string, call func(ctx context.Context) (core.Result, error)) *answer {
	c.t.Helper()
	a := enqueueCall(c.t.Context(), c.t, what, call)
	c.all = append(c.all, a)
	return a
}

func (c *caller) allow(key string, n int64) *answer {
	c.t.Helper()
	return c.enqueue("AllowN "+key, func(ctx context.Context) (core.Result, error) { return c.lim.AllowN(ctx, key, n) })
}

func (c *caller) reserve(key string, n int64) *answer {
	c.t.Helper()
	return c.enqueue("Reserve "+key, func(ctx context.Context) (core.Result, error) { return c.lim.Reserve(ctx, key, n) })
}

func (c *caller) settle(r core.Result, actual int64) *answer {
	c.t.Helper()
	return c.enqueue("Settle", func(ctx context.Context) (core.Result, error) { return core.Result{}, c.lim.Settle(ctx, r, actual) })
}

func (c *caller) refund(r core.Result) *answer {
	c.t.Helper()
	return c.enqueue("Refund", func(ctx context.Context) (core.Result, error) { return core.Result{}, c.lim.Refund(ctx, r) })
}

func (c *caller) reset(key string) *answer {
	c.t.Helper()
	return c.enqueue("Reset", func(ctx context.Context) (core.Result, error) { return core.Result{}, c.lim.Reset(ctx, key) })
}

// send has all calls go, and waits for their answers.
func (c *caller) send() {
	c.t.Helper()
	c.gate.Open()
	for _, a := range append(slices.Clone(c.busy), c.all...) {
		a.await(c.t)
	}
}

// wantAll checks that every call succeeded, and was admitted where it decides.
func (c *caller) wantAll() {
	c.t.Helper()
	for i, a := range c.all {
		if a.err != nil || a.Limiter != "" && (!a.Allowed || a.Source != core.SourceRedis) {
			c.t.Errorf("call %d: %+v, %v", i, a.Result, a.err)
		}
	}
}

// must returns the Result of a call that is admitted.
func must(t *testing.T) func(res core.Result, err error) core.Result {
	return func(res core.Result, err error) core.Result {
		t.Helper()
		if err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		return res
	}
}

// left checks how much of every limit remains of some keys.
func left(t *testing.T, lim *core.Limiter, want map[string]int64) {
	t.Helper()
	for key, n := range want {
		res, err := lim.Peek(t.Context(), key)
		if err != nil {
			t.Errorf("%s: %v", key, err)
		}
		for each := range res.All() {
			if got := n - 1000 + each.Limit; each.Remaining != got { // the limits are 1000, 1001, ...
				t.Errorf("%s: %d of %s remain, want %d", key, each.Remaining, each.Name, got)
			}
		}
	}
}

// holding are limits of 1000 and a few units in a period, which can be held: each alone and all together.
func holding(period time.Duration) map[string][]core.Option {
	all := map[string][]core.Option{}
	var several []core.Option
	for _, v := range limits.All() {
		if v.Kind.Delays {
			continue
		}
		all[v.Name] = []core.Option{v.Limit(core.Per(1000, period))}
		rate := core.Per(1000+int64(len(several)), period)
		several = append(several, v.With(rate, limits.Settings{Burst: rate.Count(), Name: v.Name}))
	}
	all["several"] = several
	return all
}

// All that can be asked for, of many keys and of one, in one batch: each call has its own answer, and is carried out once. It
// would notice replies that are read at the places of others, and a plain decision that is lost beside a script of holds.
func TestHoldsInBatch(t *testing.T) {
	t.Parallel()
	for on, open := range backends() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			for name, options := range holding(aYear) {
				t.Run(name, func(t *testing.T) { holdsInBatch(t, s, s.limiter(t, "holds-"+name, options...)) })
			}
		})
	}
}

func holdsInBatch(t *testing.T, s *backend, lim *core.Limiter) {
	ctx, ok := t.Context(), must(t)
	charged := ok(lim.AllowN(ctx, "refund", 4))
	ok(lim.AllowN(ctx, "reset", 7))
	kept := ok(lim.Reserve(ctx, "reset", 2))
	held := ok(lim.Reserve(ctx, "settle", 5))
	c := s.caller(t, lim)
	c.allow("plain", 1)
	c.allow("settle", 1)
	more := c.reserve("settle", 3)
	c.allow("plain", 2)
	c.settle(held, 2)
	c.refund(charged)
	c.reset("reset")
	fresh := c.reserve("fresh", 6)
	c.allow("fresh", 1)
	nothing := c.reserve("nothing", 0)
	c.allow("other", 3)
	denied := c.reserve("other", 1001)
	c.all = slices.DeleteFunc(c.all, func(a *answer) bool { return a == denied })
	c.send()
	c.wantAll()
	if denied.await(t); denied.err != nil || denied.Allowed || denied.RetryAfter <= 0 {
		t.Errorf("above the limit: %+v, %v", denied.Result, denied.err)
	}
	if keys, _ := s.gate.Sent(); s.nodes == 1 && len(keys) > maxInFlight+2 { // "fresh" may have been decided after its Reserve
		t.Errorf("scripts of %v keys, want one round trip for the batch", keys)
	}
	left(t, lim, map[string]int64{"plain": 997, "settle": 994, "refund": 1000, "reset": 998, "fresh": 993, "nothing": 1000, "other": 997})
	c = s.caller(t, lim)
	c.settle(more.Result, 0)
	c.settle(fresh.Result, 10)
	c.settle(nothing.Result, 4)
	c.settle(kept, 2)
	c.send()
	c.wantAll()
	if err := lim.Settle(ctx, held, 5); err != nil { // it is settled
		t.Error(err)
	}
	left(t, lim, map[string]int64{"plain": 997, "settle": 997, "refund": 1000, "reset": 998, "fresh": 989, "nothing": 996, "other": 997})
}

// A key on which another process has reserved is first decided by the plain script, which only says so, and then by the other:
// each decision charges once. It would notice one that charges twice, or that does not count what others hold.
func TestHoldsOfOthers(t *testing.T) {
	t.Parallel()
	for on, open := range backends() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			for name, options := range holding(aYear) {
				t.Run(name, func(t *testing.T) {
					lim, ok := s.limiter(t, "others-"+name, options...), must(t)
					other := core.MustNew(s.client, "others-"+name, append(slices.Clone(exactly), options...)...)
					var held []core.Result
					for i := range 6 {
						held = append(held, ok(other.Reserve(t.Context(), fmt.Sprint("key", i), 100)))
					}
					c := s.caller(t, lim)
					for i := range 18 {
						c.allow(fmt.Sprint("key", i%9), 2)
					}
					c.send()
					c.wantAll()
					want := map[string]int64{}
					for i := range 9 {
						want[fmt.Sprint("key", i)] = 996
						if i < len(held) {
							want[fmt.Sprint("key", i)] = 896
						}
					}
					left(t, lim, want)
					alone := s.limiter(t, "others-"+name, append(slices.Clone(options), core.Coalesce(1))...)
					if res := ok(alone.AllowN(t.Context(), "key0", 3)); res.Remaining != 893 {
						t.Errorf("alone: %+v", res)
					}
					want["key0"] -= 3
					for i, r := range held {
						if err := other.Settle(t.Context(), r, 1); err != nil {
							t.Error(err)
						}
						want[fmt.Sprint("key", i)] += 99
					}
					left(t, lim, want)
				})
			}
		})
	}
}

// Callers of all kinds at once while the scripts are forgotten again and again: exact.
func TestHoldsUnderScriptFlush(t *testing.T) {
	t.Parallel()
	for on, open := range backends() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			lim := s.limiter(t, "flushed", holding(aYear)["several"]...)
			done := make(chan struct{})
			var flushing, callers sync.WaitGroup
			flushing.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Millisecond):
						s.doAll(t, "script", "flush")
					}
				}
			})
			var used [5]atomic.Int64
			for i := range 40 {
				callers.Go(func() {
					for j := range 5 {
						key, n := fmt.Sprint("key", j), int64(1+i%4)
						switch i % 3 {
						case 0:
							if res, err := lim.AllowN(t.Context(), key, n); err != nil || !res.Allowed {
								t.Errorf("%+v, %v", res, err)
							}
						default:
							res, err := lim.Reserve(t.Context(), key, 5)
							if err != nil || !res.Allowed {
								t.Errorf("%+v, %v", res, err)
							}
							n *= int64(i%3 - 1) // 0 for a third
							if err := lim.Settle(t.Context(), res, n); err != nil {
								t.Error(err)
							}
						}
						used[j].Add(n)
					}
				})
			}
			callers.Wait()
			close(done)
			flushing.Wait()
			for j := range used {
				left(t, lim, map[string]int64{fmt.Sprint("key", j): 1000 - used[j].Load()})
			}
		})
	}
}

// Of a Reserve and a Settle of several limits Redis carries out only a part, because the user may not run one of the commands.
// Neither is made again, alone or in a batch, and its error says so; other callers, and other limiters over the client, have their
// answers from Redis all along.
func TestHeldInPart(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	options := []core.Option{core.FixedWindow(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1001))}
	lim, other := s.limiter(t, "part", options...), s.limiter(t, "other", core.FixedWindow(core.PerHour(1000)))
	ok := must(t)
	batched, alone := ok(lim.Reserve(t.Context(), "batched", 5)), ok(lim.Reserve(t.Context(), "alone", 5))
	c := s.caller(t, lim)
	for range 5 {
		c.reserve("reserved", 2)
	}
	c.settle(batched, 7)
	s.do(t, "acl", "setuser", "default", "-zadd")
	c.send()
	for i, a := range c.all {
		a.wantUnavailable(t, fmt.Sprint("call ", i))
		if a.err == nil || !strings.Contains(a.err.Error(), "changed") {
			t.Errorf("call %d: %v; want that it was carried out in part", i, a.err)
		}
	}
	if err := lim.Settle(t.Context(), alone, 7); !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "changed") {
		t.Errorf("alone: %v", err)
	}
	for i := range 20 {
		if res, err := other.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || res.Remaining != int64(999-i) {
			t.Errorf("another limiter: %+v, %v", res, err)
		}
	}
	s.do(t, "acl", "setuser", "default", "+zadd")
	want := map[string]map[string]int64{ // once, or not at all
		"fixed-1h": {"reserved": 990, "batched": 993, "alone": 993},
		"log-1h":   {"reserved": 1001, "batched": 996, "alone": 996},
	}
	for _, key := range []string{"reserved", "batched", "alone"} {
		res, err := lim.Peek(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for each := range res.All() {
			if each.Remaining != want[each.Name][key] {
				t.Errorf("%s: %d of %s remain, want %d", key, each.Remaining, each.Name, want[each.Name][key])
			}
		}
	}
}

// A script that Redis stops after its first writes, because the user may not run a command that comes then, is not taken for one
// of which nothing was run: no call of the batch is made again.
func TestStoppedScriptIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	lim := s.limiter(t, "stopped", core.SlidingWindowLog(core.PerHour(1000)))
	for _, without := range []string{"pexpireat", "zrem"} {
		held := must(t)(lim.Reserve(t.Context(), "held"+without, 5))
		c := s.caller(t, lim)
		for range 4 {
			c.reserve(without, 2)
		}
		c.settle(held, 3)
		s.do(t, "acl", "setuser", "default", "-"+without)
		c.send()
		for i, a := range c.all {
			a.wantUnavailable(t, fmt.Sprint("call ", i, " without ", without))
		}
		s.do(t, "acl", "setuser", "default", "+"+without)
		check.Eventually(t, "Redis decides again", func() bool {
			_, err := lim.Peek(t.Context(), "k")
			return err == nil
		})
		if res, err := lim.Peek(t.Context(), without); err != nil || res.Remaining < 992 {
			t.Errorf("without %s: %d remain, %v; want 992 at least", without, res.Remaining, err)
		}
	}
}

// The user may use the keys of one limiter only: a batch with calls of both kinds is refused as a whole, and each call then made
// alone.
func TestHoldsWithoutPermission(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	lim := s.limiter(t, "permitted", core.FixedWindow(core.PerHour(1000)))
	c := s.caller(t, lim)
	c.allow("a", 1)
	c.reserve("a", 2)
	c.reserve("b", 3)
	c.allow("b", 4)
	c.reserve("a", 5)
	s.do(t, "acl", "setuser", "default", "resetkeys", "~rl:permitted:{a}*", "~rl:permitted:{busy*")
	c.send()
	for i, a := range c.all {
		if i == 2 || i == 3 {
			a.wantUnavailable(t, fmt.Sprint("call ", i))
		} else if a.err != nil || !a.Allowed {
			t.Errorf("call %d: %+v, %v", i, a.Result, a.err)
		}
	}
	left(t, lim, map[string]int64{"a": 992})
}

// A server that refuses keys of several slots has holds, too.
func TestHoldsCrossSlot(t *testing.T) {
	t.Parallel()
	s := oneNode(t)
	lim := core.MustNew(s.client, "slots", append(slices.Clone(exactly), core.FixedWindow(core.PerHour(1000)))...)
	c := s.caller(t, lim)
	for i := range 6 {
		c.allow(fmt.Sprint("key", i%3), 1)
		c.reserve(fmt.Sprint("key", i%3), 2)
	}
	c.send()
	c.wantAll()
	left(t, lim, map[string]int64{"key0": 994, "key1": 994, "key2": 994})
}

// Behind a proxy that shards, each hold is on the server of its key.
func TestHoldsBehindShardingProxy(t *testing.T) {
	t.Parallel()
	for proxy, open := range proxies {
		t.Run(proxy, func(t *testing.T) {
			t.Parallel()
			s := open(t, [2]*redistest.Instance{redistest.Server(t), redistest.Server(t)})
			lim := core.MustNew(s.client, "sharded", append(slices.Clone(exactly), core.FixedWindow(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1001)))...)
			var callers sync.WaitGroup
			for i := range 60 {
				callers.Go(func() {
					key := fmt.Sprint("key", i%10)
					res, err := lim.Reserve(t.Context(), key, 5)
					if err == nil {
						err = lim.Settle(t.Context(), res, int64(i/10))
					}
					if err != nil {
						t.Errorf("%s: %+v, %v", key, res, err)
					}
				})
			}
			callers.Wait()
			for i := range 10 {
				left(t, lim, map[string]int64{fmt.Sprint("key", i): 1000 - 0 - 1 - 2 - 3 - 4 - 5})
			}
		})
	}
}

// A slot moves between a Reserve and its Settle, which is sent to where the slot was: to where the node says that it is, and is
// carried out once.
func TestHoldsOfSlotThatMoves(t *testing.T) {
	t.Parallel()
	client := redistest.ClusterClient(t, redistest.Cluster(t))
	s := onCluster(client)
	lim := s.limiter(t, "moves", core.FixedWindow(core.PerHour(1000)))
	key := s.keys(t, 1)[0]
	from, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var to *redis.Client
	for _, k := range s.keys(t, 1) {
		if node, err := client.MasterForKey(t.Context(), k); err == nil && node != from {
			to = node
		}
	}
	ok := must(t)
	var held []core.Result
	for range 4 {
		held = append(held, ok(lim.Reserve(t.Context(), key, 10)))
	}
	slot := client.ClusterKeySlot(t.Context(), key).Val()
	source, target := id(t, from), id(t, to)
	do := func(node *redis.Client, args ...any) {
		t.Helper()
		if err := node.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	step := func(r core.Result, remain int64) {
		t.Helper()
		c := s.caller(t, lim)
		c.settle(r, 3)
		c.reserve("other", 1)
		c.allow(key, 1)
		c.send()
		c.wantAll()
		left(t, lim, map[string]int64{key: remain})
	}
	step(held[0], 966)
	do(to, "cluster", "setslot", slot, "importing", source)
	do(from, "cluster", "setslot", slot, "migrating", target)
	step(held[1], 972)
	migrate := []any{"migrate", redisHost(to), redisPort(to), "rl:moves:{" + key + "}:fixed-1h", 0, 5000}
	do(from, migrate...)
	step(held[2], 978)
	do(to, "cluster", "setslot", slot, "node", target)
	do(from, "cluster", "setslot", slot, "node", target)
	step(held[3], 984)
}

func redisHost(c *redis.Client) string { host, _, _ := strings.Cut(c.Options().Addr, ":"); return host }
func redisPort(c *redis.Client) string { _, port, _ := strings.Cut(c.Options().Addr, ":"); return port }

// With its memory full Redis refuses every Reserve, and every Settle that charges, of every algorithm, on keys of all kinds, alone
// and in a batch, also in one that begins with calls that free memory: after a write that it does not refuse Redis would refuse
// nothing. What is refused has changed nothing. A Settle of 0, a Refund and a Reset are carried out where they only remove.
func TestHoldsOutOfMemory(t *testing.T) {
	t.Parallel()
	for on, open := range map[string]func(*testing.T) redis.UniversalClient{
		"Redis":   func(t *testing.T) redis.UniversalClient { return redistest.Server(t).Client(t) },
		"Cluster": func(t *testing.T) redis.UniversalClient { return redistest.ClusterClient(t, redistest.Cluster(t)) },
	} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			client, nodes := open(t), 1
			if on == "Cluster" {
				nodes = 3
			}
			s := driven(client, nodes)
			for name, options := range holding(time.Hour) {
				t.Run(name, func(t *testing.T) { holdsOutOfMemory(t, s, name, options) })
			}
		})
	}
}

func holdsOutOfMemory(t *testing.T, s *backend, name string, options []core.Option) {
	ctx, ok := t.Context(), must(t)
	lim := s.limiter(t, "full-"+name, append(slices.Clone(options), core.Hold(time.Minute), core.Logger(slog.New(slog.DiscardHandler)))...)
	ok(lim.Reserve(ctx, "expired", 3))
	s.advance(2 * time.Minute)
	ok(lim.AllowN(ctx, "expired", 1)) // which charges the three
	s.advance(3 * time.Hour)          // and then they do not count any more, but the key has the record
	refunded := ok(lim.AllowN(ctx, "refunded", 2))
	ok(lim.AllowN(ctx, "reset", 2))
	ok(lim.AllowN(ctx, "charged", 2))
	last := ok(lim.Reserve(ctx, "last", 2))
	one, two := ok(lim.Reserve(ctx, "two", 2)), ok(lim.Reserve(ctx, "two", 3))
	alone := map[string]core.Result{}
	for _, key := range []string{"alone-charge", "alone-more", "alone-nothing"} {
		alone[key] = ok(lim.Reserve(ctx, key, 2))
	}

	c := s.caller(t, lim)
	free := []*answer{c.settle(last, 0), c.refund(refunded), c.reset("reset")}
	refused := []*answer{
		c.reserve("new", 1), c.reserve("charged", 1), c.reserve("two", 1), c.reserve("expired", 1), c.settle(one, 1), c.allow("two", 1), c.allow("expired", 1),
	}
	if s.nodes == 1 {
		refused = append(refused, c.allow("new", 1))
	}
	s.doAll(t, "config", "set", "maxmemory", "1")
	c.send()
	for i, a := range free {
		if a.err != nil {
			t.Errorf("call %d, which frees memory: %v", i, a.err)
		}
	}
	for i, a := range refused {
		a.wantUnavailable(t, fmt.Sprint("call ", i))
		if a.err == nil || !strings.Contains(a.err.Error(), "OOM") {
			t.Errorf("call %d: %v; want what Redis said", i, a.err)
		}
	}
	// Alone: each over a client of its own, as the server is known to be down to the others.
	single := func(what string, refuses bool, call func(lim *core.Limiter) error) {
		t.Helper()
		s.doAll(t, "config", "set", "maxmemory", "0")
		s.awaitRedis(t, lim)
		s.doAll(t, "config", "set", "maxmemory", "1")
		if err := call(lim); refuses != (err != nil) || refuses && !strings.Contains(err.Error(), "OOM") {
			t.Errorf("alone, %s: %v", what, err)
		}
	}
	for _, key := range []string{"new", "charged", "two", "expired"} {
		single("Reserve "+key, true, func(lim *core.Limiter) error {
			_, err := lim.Reserve(ctx, key, 1)
			return err
		})
	}
	single("Settle more", true, func(lim *core.Limiter) error { return lim.Settle(ctx, alone["alone-more"], 5) })
	single("Settle", true, func(lim *core.Limiter) error { return lim.Settle(ctx, alone["alone-charge"], 2) })
	single("Settle nothing", false, func(lim *core.Limiter) error { return lim.Settle(ctx, alone["alone-nothing"], 0) })
	single("Settle nothing of two", true, func(lim *core.Limiter) error { return lim.Settle(ctx, two, 0) })
	s.doAll(t, "config", "set", "maxmemory", "0")
	s.awaitRedis(t, lim)
	left(t, lim, map[string]int64{
		"new": 1000, "charged": 998, "two": 995, "expired": 1000, "last": 1000, "refunded": 1000, "reset": 1000,
		"alone-more": 998, "alone-charge": 998, "alone-nothing": 1000,
	})
}

// awaitRedis waits until it is found out that Redis is well again.
func (s *backend) awaitRedis(t *testing.T, lim *core.Limiter) {
	t.Helper()
	for _, key := range s.keys(t, 1) {
		check.Eventually(t, "Redis decides again", func() bool {
			_, err := lim.Peek(t.Context(), key)
			return err == nil
		})
	}
}
