package coalesce

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

// aYear is a period so long that no window ends during a test.
const aYear = 365 * 24 * time.Hour

// must returns a function that returns the handle of a call, which must have been admitted.
func must(t testing.TB) func(r *permits.Any, err error) *permits.Any {
	return func(r *permits.Any, err error) *permits.Any {
		t.Helper()
		if err != nil || !r.Allowed {
			t.Fatalf("got %+v, %v; want it admitted", r, err)
		}
		return r
	}
}

// left checks how many units of every limit remain of some keys. The limits are 1000, 1001 and so on, and want has the
// number for the limit of 1000.
func left(t testing.TB, lim *core.Limiter, want map[string]int64) {
	t.Helper()
	for key, n := range want {
		res, err := lim.Peek(t.Context(), key)
		if err != nil {
			t.Errorf("Peek of key %s: got error %v, want nil", key, err)
		}
		for each := range res.All() {
			if got := n - 1000 + each.Limit; each.Remaining != got { // the other limits are larger by 1, 2, ...
				t.Errorf("key %s: %d units of %s remain, want %d", key, each.Remaining, each.LimitName, got)
			}
		}
	}
}

// holding returns limits of 1000 and a few units in a period that can be held: each algorithm alone, and all together. On a
// Cluster, where the algorithms work the same, it returns only one that stores a text and one that stores a log: limits of
// a calendar would use the process's clock there, and a probe of a node does not.
func (s *backend) holding(period time.Duration) map[string][]core.Option {
	all := map[string][]core.Option{}
	var several []core.Option
	for _, v := range limits.All() {
		if v.Kind.Delays || s.nodes > 1 && v.Kind != algorithm.TokenBucket && v.Kind != algorithm.SlidingWindowLog {
			continue
		}
		all[v.Name] = []core.Option{v.Limit(core.Per(1000, period))}
		rate := core.Per(1000+int64(len(several)), period)
		several = append(several, v.With(rate, limits.Settings{Burst: rate.Count(), Name: v.Name}))
	}
	all["several"] = several
	return all
}

// TestHoldsInBatch makes every kind of call, on many keys and on the same key, in one batch: each call has its own answer
// and is carried out once. The test would notice replies that are mixed up, and an ordinary decision that is lost beside a
// script of holds.
func TestHoldsInBatch(t *testing.T) {
	t.Parallel()
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		for name, options := range s.holding(aYear) {
			t.Run(name, func(t *testing.T) { holdsInBatch(t, s, s.limiter(t, "holds-"+name, options...)) })
		}
	})
}

func holdsInBatch(t *testing.T, s *backend, lim *core.Limiter) {
	ctx, ok := t.Context(), must(t)
	charged := ok(permits.Acquire(lim, ctx, "cancel", 4))
	ok(permits.Acquire(lim, ctx, "reset", 7))
	kept := ok(permits.Reserve(lim, ctx, "reset", 2))
	before := ok(permits.Reserve(lim, ctx, "settle", 5))
	c := s.caller(t, lim)
	c.allow("plain", 1)
	c.allow("settle", 1)
	more := c.reserve("settle", 3)
	c.allow("plain", 2)
	c.settle(before, 2)
	c.settle(charged, 0)
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
		t.Errorf("a reservation above the limit: got %+v, %v; want a denial with a RetryAfter", denied.Result, denied.err)
	}
	if keys, _ := s.gate.Sent(); s.nodes == 1 && len(keys) > maxInFlight+2 { // the ordinary decision on "fresh" may take another script, because the key has a hold
		t.Errorf("scripts with %v keys were sent, want one round trip for the batch", keys)
	}
	left(t, lim, map[string]int64{"plain": 997, "settle": 994, "cancel": 1000, "reset": 998, "fresh": 993, "nothing": 1000, "other": 997})
	c = s.caller(t, lim)
	c.settle(more.held, 0)
	c.settle(fresh.held, 10)
	c.settle(nothing.held, 4)
	c.settle(kept, 2)
	c.send()
	c.wantAll()
	if err := before.Settle(ctx, 5); err != nil {
		t.Errorf("a second Settle: got error %v, want nil", err)
	}
	left(t, lim, map[string]int64{"plain": 997, "settle": 997, "cancel": 1000, "reset": 998, "fresh": 989, "nothing": 996, "other": 997})
}

// TestHoldsOfOthers decides on keys on which another process has reserved units. The ordinary script only replies that
// there are holds, and then the script of holds decides: each decision charges once. The test would notice a decision that
// charges twice, or that does not count units held by other processes.
func TestHoldsOfOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		for name, options := range s.holding(aYear) {
			t.Run(name, func(t *testing.T) {
				lim, ok := s.limiter(t, "others-"+name, options...), must(t)
				other := core.MustNew(s.client, "others-"+name, append(slices.Clone(exactly), options...)...)
				var all []*permits.Any
				for i := range 6 {
					all = append(all, ok(permits.Reserve(other, t.Context(), fmt.Sprint("key", i), 100)))
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
					if i < len(all) {
						want[fmt.Sprint("key", i)] = 896
					}
				}
				left(t, lim, want)
				alone := s.limiter(t, "others-"+name, append(slices.Clone(options), core.MaxBatch(1))...)
				if res := ok(permits.Acquire(alone, t.Context(), "key0", 3)); res.Remaining != 893 {
					t.Errorf("a call made alone: got %+v, want 893 remaining", res)
				}
				want["key0"] -= 3
				for i, r := range all {
					check.OK(t, r.Settle(t.Context(), 1))
					want[fmt.Sprint("key", i)] += 99
				}
				left(t, lim, want)
			})
		}
	})
}

// TestHoldsUnderScriptFlush makes all kinds of calls at once while Redis forgets its scripts again and again: the charges
// remain exact.
func TestHoldsUnderScriptFlush(t *testing.T) {
	t.Parallel()
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		lim := s.limiter(t, "flushed", s.holding(aYear)["several"]...)
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
							t.Errorf("got %+v, %v; want it admitted", res, err)
						}
					default:
						res, err := lim.Reserve(t.Context(), key, 5)
						if err != nil || !res.Allowed {
							t.Errorf("got %+v, %v; want it admitted", res, err)
						}
						n *= int64(i%3 - 1) // 0 for a third of the callers
						check.OK(t, res.Settle(t.Context(), n))
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

// TestHeldInPart makes Redis carry out only a part of a Reserve and of a Settle of several limits, because the user may not
// run one of the commands. The calls are not repeated, alone or in a batch, and their error says that a part was carried
// out. Other callers, and other limiters over the same client, have answers from Redis all the time.
func TestHeldInPart(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	options := []core.Option{core.FixedWindow(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1001))}
	lim, other := s.limiter(t, "part", options...), s.limiter(t, "other", core.FixedWindow(core.PerHour(1000)))
	ok := must(t)
	batched, alone := ok(permits.Reserve(lim, t.Context(), "batched", 5)), ok(permits.Reserve(lim, t.Context(), "alone", 5))
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
			t.Errorf("call %d: got error %v, want one that says that a part was carried out", i, a.err)
		}
	}
	if err := alone.Settle(t.Context(), 7); !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "changed") {
		t.Errorf("a Settle made alone: got error %v, want ErrUnavailable that says that a part was carried out", err)
	}
	for i := range 20 {
		if res, err := other.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || res.Remaining != int64(999-i) {
			t.Errorf("another limiter: got %+v, %v; want %d remaining, by Redis", res, err, 999-i)
		}
	}
	s.do(t, "acl", "setuser", "default", "+zadd")
	want := map[string]map[string]int64{ // each limit was charged once, or not at all
		"fixed-1h": {"reserved": 990, "batched": 993, "alone": 993},
		"log-1h":   {"reserved": 1001, "batched": 996, "alone": 996},
	}
	for _, key := range []string{"reserved", "batched", "alone"} {
		res, err := lim.Peek(t.Context(), key)
		check.Need(t, err)
		for each := range res.All() {
			if each.Remaining != want[each.LimitName][key] {
				t.Errorf("key %s: %d units of %s remain, want %d", key, each.Remaining, each.LimitName, want[each.LimitName][key])
			}
		}
	}
}

// TestHoldsOutOfMemory fills Redis's memory. Redis then refuses every Reserve, and every Settle that charges, of every
// algorithm and on keys of all kinds, alone and in a batch. This includes a batch that begins with calls that free memory:
// within a script Redis refuses no write after one that it has accepted, so the order matters. A refused call has changed
// nothing. A Settle of 0, a Cancel and a Reset are carried out if they only remove something.
func TestHoldsOutOfMemory(t *testing.T) {
	t.Parallel()
	onBoth(t, driven, func(t *testing.T, s *backend) {
		for name, options := range s.holding(time.Hour) {
			t.Run(name, func(t *testing.T) { holdsOutOfMemory(t, s, name, options) })
		}
	})
}

func holdsOutOfMemory(t *testing.T, s *backend, name string, options []core.Option) {
	ctx, ok := t.Context(), must(t)
	lim := s.limiter(t, "full-"+name, append(slices.Clone(options), core.Hold(time.Minute), core.Logger(slog.New(slog.DiscardHandler)))...)
	ok(permits.Reserve(lim, ctx, "expired", 3))
	s.advance(2 * time.Minute)
	ok(permits.Acquire(lim, ctx, "expired", 1)) // this call charges the three expired units
	s.advance(3 * time.Hour)                    // now the three units do not count any more, but the key still has the record of holds
	refunded := ok(permits.Acquire(lim, ctx, "refunded", 2))
	ok(permits.Acquire(lim, ctx, "reset", 2))
	ok(permits.Acquire(lim, ctx, "charged", 2))
	last := ok(permits.Reserve(lim, ctx, "last", 2))
	one, two := ok(permits.Reserve(lim, ctx, "two", 2)), ok(permits.Reserve(lim, ctx, "two", 3))
	alone := map[string]*permits.Any{}
	for _, key := range []string{"alone-charge", "alone-more", "alone-nothing"} {
		alone[key] = ok(permits.Reserve(lim, ctx, key, 2))
	}

	c := s.caller(t, lim)
	free := []*answer{c.settle(last, 0), c.settle(refunded, 0), c.reset("reset")}
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
			t.Errorf("call %d, which frees memory: got error %v, want nil", i, a.err)
		}
	}
	for i, a := range refused {
		a.wantUnavailable(t, fmt.Sprint("call ", i))
		if a.err == nil || !strings.Contains(a.err.Error(), "OOM") {
			t.Errorf("call %d: got error %v, want Redis's error OOM", i, a.err)
		}
	}
	// Now each call alone, once the limiter knows again that the server is up.
	single := func(what string, refuses bool, call func() error) {
		t.Helper()
		s.doAll(t, "config", "set", "maxmemory", "0")
		s.awaitRedis(t, lim)
		s.doAll(t, "config", "set", "maxmemory", "1")
		if err := call(); refuses != (err != nil) || refuses && !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s, alone: got error %v, want Redis's error OOM: %v", what, err, refuses)
		}
	}
	for _, key := range []string{"new", "charged", "two", "expired"} {
		single("Reserve "+key, true, func() error {
			_, err := lim.Reserve(ctx, key, 1)
			return err
		})
	}
	single("Settle more", true, func() error { return alone["alone-more"].Settle(ctx, 5) })
	single("Settle", true, func() error { return alone["alone-charge"].Settle(ctx, 2) })
	single("Settle nothing", false, func() error { return alone["alone-nothing"].Settle(ctx, 0) })
	single("Settle nothing of two", true, func() error { return two.Settle(ctx, 0) })
	s.doAll(t, "config", "set", "maxmemory", "0")
	s.awaitRedis(t, lim)
	left(t, lim, map[string]int64{
		"new": 1000, "charged": 998, "two": 995, "expired": 1000, "last": 1000, "refunded": 1000, "reset": 1000,
		"alone-more": 998, "alone-charge": 998, "alone-nothing": 1000,
	})
}
