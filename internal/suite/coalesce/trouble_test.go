package coalesce

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// onRedis returns a backend of a real server with its own clock.
func onRedis(t testing.TB, config ...string) *backend {
	t.Helper()
	return newBackend(redistest.Server(t, config...).Client(t), 1)
}

// oneNode returns a server of a Cluster that has all slots, and no other node.
func oneNode(t testing.TB) *backend {
	t.Helper()
	s := onRedis(t, "--cluster-enabled", "yes")
	// This client method adds each slot by its number, as Redis 6 does not have ADDSLOTSRANGE.
	check.Need(t, s.client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	check.Eventually(t, "the slots are served", func() bool { return s.client.Set(t.Context(), "try", 1, 0).Err() == nil })
	return s
}

// do runs a command that does not go through a Limiter.
func (s *backend) do(t testing.TB, args ...any) {
	t.Helper()
	if err := s.client.Do(context.WithoutCancel(t.Context()), args...).Err(); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

// doAll does the same on every node.
func (s *backend) doAll(t testing.TB, args ...any) {
	t.Helper()
	if err := conformance.OnEach(context.WithoutCancel(t.Context()), s.client, func(ctx context.Context, node redis.UniversalClient) error {
		return node.Do(ctx, args...).Err()
	}); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

var tenPerHour = core.FixedWindow(core.PerHour(10))

// TestCommands checks that 64 callers at once cause only a few commands, and that with MaxBatch(1) each call has its own.
// The client's hooks see all commands.
func TestCommands(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	requests := make([]request, 64-maxInFlight)
	for i := range requests {
		requests[i] = request{key: fmt.Sprint("key", i%7), n: 1}
	}
	for i, o := range s.batch(t, s.limiter(t, "many", core.FixedWindow(core.PerHour(100))), requests) {
		o.want(t, fmt.Sprint("caller ", i), true, int64(99-i/7))
	}
	s.sent(t, len(requests))
	if _, evals := s.gate.Sent(); evals != 0 {
		t.Errorf("%d scripts were sent with their source, want 0", evals)
	}

	halves := s.limiter(t, "halves", core.FixedWindow(core.PerHour(100)), core.MaxBatch(30))
	s.batch(t, halves, requests)
	s.sent(t, 30, 30)

	alone := s.limiter(t, "alone", core.FixedWindow(core.PerHour(100)), core.MaxBatch(1))
	s.gate.Hold(t)
	var all []*answer
	for _, q := range requests {
		all = append(all, start(t.Context(), q.of(alone)))
	}
	s.gate.Open()
	for _, o := range all {
		if o.await(t); o.err != nil || !o.Allowed {
			t.Errorf("got %+v, %v; want it allowed", o.Result, o.err)
		}
	}
	if sent, _ := s.gate.Sent(); len(sent) != len(requests) || slices.Max(sent) != 1 {
		t.Errorf("with MaxBatch(1) scripts with %v keys were sent, want %d with one key", sent, len(requests))
	}
}

// TestWorkOfBatch checks that a script takes a bounded time: it has fewer decisions if each takes Redis longer.
func TestWorkOfBatch(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	logs := make([]core.Option, 12)
	for i := range logs {
		logs[i] = core.SlidingWindowLog(core.PerHour(10_000), core.LimitName(fmt.Sprint("limit", i)))
	}
	lim := s.limiter(t, "work", logs...)
	for i, o := range s.batch(t, lim, slices.Repeat([]request{{key: "k", n: 100}}, 40)) {
		if o.err != nil || !o.Allowed { // scripts that are in flight at the same time have no order
			t.Errorf("decision %d: got %+v, %v; want it allowed", i, o.Result, o.err)
		}
	}
	sent, _ := s.gate.Sent()
	sent = sent[maxInFlight:]
	if len(sent) != 10 || slices.Max(sent) != 4*len(logs) {
		t.Errorf("scripts with %v keys were sent, want 10 for the 40 decisions", sent)
	}
	if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 6000 {
		t.Errorf("Peek: got %+v, %v; want 6000 remaining", res, err)
	}
}

// TestLongSearch checks that a script ends once its decisions have taken long, however few they are. Here a script searches
// a log with charges of many sizes for the instant at which the log admits. The remaining decisions are sent alone and have
// the same answers.
func TestLongSearch(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	const charges, left = 500, 10
	used := int64(0)
	for i := range int64(charges) {
		used += 1 + i%31
	}
	lim := s.limiter(t, "long", core.GCRA(core.PerHour(1e6)), core.SlidingWindowLog(core.PerHour(used+left)))
	for i := range int64(charges) {
		if _, err := lim.AllowN(t.Context(), "k", 1+i%31); err != nil {
			t.Fatal(err)
		}
	}
	var first *answer
	for i, o := range s.batch(t, lim, slices.Repeat([]request{{key: "k", n: 100}}, 64)) {
		o.want(t, fmt.Sprint("decision ", i), false, left)
		if i == 0 {
			first = o
		}
		if at, room := o.At.Add(o.RetryAfter), first.At.Add(first.RetryAfter); !at.Equal(room) {
			t.Errorf("decision %d says that a retry is admitted at %v, want %v as in the first decision", i, at, room)
		}
	}
	if sent, _ := s.gate.Sent(); len(sent) < maxInFlight+10 {
		t.Errorf("scripts with %v keys were sent, want at least 10 for such long searches", sent)
	}
}

// TestForeignValueInBatch checks that a foreign value, which is no state of the limit, does not affect the other decisions
// of its batch. Its own key starts afresh.
func TestForeignValueInBatch(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	for _, v := range limits.All() {
		one := []core.Option{v.With(core.PerHour(10), limits.Settings{Burst: 10, Name: "limit"})}
		for name, limits := range map[string][]core.Option{
			v.Name: one, v.Name + " and another": append(one, core.FixedWindow(core.PerHour(1000))),
		} {
			t.Run(name, func(t *testing.T) {
				lim := s.limiter(t, "foreign", limits...)
				for _, value := range conformance.ForeignValues(time.Now().UnixMicro()) {
					if v.Kind == algorithm.LeakyBucket && strings.HasPrefix(fmt.Sprint(value[1]), "B1 10 8000000000000000 1") {
						continue // for a leaky bucket this value is valid
					}
					s.do(t, "flushdb")
					s.do(t, slices.Insert(value, 1, any("rl:foreign:{bad}:limit"))...)
					all := s.batch(t, lim, []request{{"a", 3, false}, {"bad", 0, true}, {"bad", 4, false}, {"b", 3, false}, {"bad", 4, false}, {"a", 3, false}})
					for i, left := range []int64{7, 10, 6, 7, 2, 4} {
						all[i].want(t, fmt.Sprint(value, ", decision ", i), true, left)
					}
				}
			})
		}
	}
}

// TestOutOfMemory fills Redis's memory. Redis then refuses to charge, whatever the algorithm is and whatever else is in the
// batch. Each decision that would charge returns ErrUnavailable with Redis's reason, and is reported as a failed call, and
// nothing stays charged. Decisions that need no memory have an answer, even in the same batch.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	all := map[string][]core.Option{
		"several":   {core.FixedWindow(core.PerHour(10), core.LimitName("limit")), core.TokenBucket(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1000))},
		"log_first": {core.SlidingWindowLog(core.PerHour(10), core.LimitName("limit")), core.FixedWindow(core.PerHour(1000))},
	}
	for _, v := range limits.All() {
		all[v.Name] = []core.Option{v.With(core.PerHour(10), limits.Settings{Burst: 10, Name: "limit"})}
	}
	onBoth(t, newBackend, func(t *testing.T, s *backend) {
		for name, limits := range all {
			t.Run(name, func(t *testing.T) { outOfMemory(t, s, name, limits) })
		}
	})
}

func outOfMemory(t *testing.T, s *backend, name string, limits []core.Option) {
	var outages atomic.Int64
	lim := s.limiter(t, name, append(slices.Clone(limits), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventOutage {
			outages.Add(1)
		}
	}))...)
	for key, n := range map[string]int64{"a": 3, "full": 10} {
		if _, err := lim.AllowN(t.Context(), key, n); err != nil {
			t.Fatal(err)
		}
	}
	s.do(t, "hset", "rl:"+name+":{hash}:limit", "a", "b")
	s.do(t, "zadd", "rl:"+name+":{new}:limit", 9e18, "a") // replacing this foreign value needs memory, too
	c := s.caller(t, lim)
	for _, q := range []request{
		{"hash", 11, false}, {"a", 1, false}, {"a", 1, true}, {"full", 1, false}, {"new", 0, false}, {"new", 1, false}, {"a", 8, false},
	} {
		c.request(q)
	}
	s.doAll(t, "config", "set", "maxmemory", "1")
	all := c.send()
	for _, i := range []int{1, 5} {
		all[i].wantUnavailable(t, fmt.Sprint("decision ", i))
		if err := all[i].err; err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("decision %d: got error %v, want Redis's error OOM", i, err)
		}
	}
	all[0].want(t, "too large a cost over a foreign value", false, 10)
	all[2].want(t, "Peek", true, 7)
	all[3].want(t, "a denied call", false, 0)
	all[4].want(t, "a cost of 0", true, 10)
	all[6].want(t, "too large a cost", false, 7)
	if outages.Load() != 2 {
		t.Errorf("%d failed calls were reported, want 2: one for each decision without an answer", outages.Load())
	}
	s.doAll(t, "config", "set", "maxmemory", "0")
	s.awaitRedis(t, lim) // the limiter counts a server without memory as down
	after := s.batch(t, lim, []request{{"a", 1, false}, {"new", 1, false}, {"hash", 1, false}})
	for i, left := range []int64{6, 9, 9} {
		after[i].want(t, "a refused call, repeated later", true, left)
	}
}

// TestCrossSlot uses a server that refuses keys of several slots, as a node of a Cluster does, over a client for one
// server. The library finds this out by keys that belong to no user, and sends no batch to the server. Nothing is charged
// twice.
func TestCrossSlot(t *testing.T) {
	t.Parallel()
	s := oneNode(t)
	lim := core.MustNew(s.client, "slots", append(exactly, tenPerHour)...)
	must(t)(plain(lim.Peek(t.Context(), "a")))
	must(t)(permits.Reserve(lim, t.Context(), "loaded", 1)) // the server has both scripts
	requests := []request{{"a", 1, false}, {"b", 2, false}, {"c", 3, false}, {"d", 1, true}, {"e", 11, false}}
	all := s.batch(t, lim, requests)
	for i, left := range []int64{9, 8, 7, 10, 10} {
		all[i].want(t, fmt.Sprintf("%+v", requests[i]), i != 4, left)
	}
	s.sent(t, 1, 1, 1, 1, 1) // each decision has a script of its own
	s.gate.Hold(t)
	all = nil
	for i := range 32 {
		q := request{key: fmt.Sprint("later", i), n: 1}
		all = append(all, start(t.Context(), func(ctx context.Context) (*permits.Any, error) {
			if i%2 == 0 {
				return q.of(lim)(ctx)
			}
			return permits.Reserve(lim, ctx, q.key, q.n)
		}))
	}
	s.gate.Await(t, len(all)) // all calls are sent at once, as none waits for a batch
	s.gate.Open()
	for i, o := range all {
		o.want(t, fmt.Sprint("later caller ", i), true, 9)
	}
	if sent, _ := s.gate.Sent(); len(sent) != len(all) || slices.Max(sent) != 1 {
		t.Errorf("later scripts with %v keys were sent, want %d with one key", sent, len(all))
	}
}

// TestHookPanics makes a hook of the client panic, or end its goroutine as t.FailNow does, before a command is sent or
// after its reply. Each caller of the batch gets an error, to which the outage policy does not apply. Nothing is sent
// twice, no slot and no place among the calls in flight is lost, and the process and the Limiter go on. A call that runs
// alone in its caller's own goroutine ends with that goroutine.
func TestHookPanics(t *testing.T) {
	t.Parallel()
	server, cluster := redistest.Server(t).Addr, redistest.Cluster(t)
	for how, end := range map[string]func(){"panic": func() { panic("a hook's own mistake") }, "exit": runtime.Goexit} {
		for _, contextTimeout := range []bool{false, true} {
			for when, name := range map[int32]string{beforeSent: "before", afterReply: "after"} {
				name += fmt.Sprint("-", how, "-", contextTimeout)
				t.Run(name, func(t *testing.T) {
					client := redisclient.New(t, &redis.Options{Addr: server, ContextTimeoutEnabled: contextTimeout})
					defer func() { _ = client.Close() }()
					hookPanics(t, newBackend(client, 1), name, when, end, how == "exit" && contextTimeout)
				})
				t.Run(name+", Cluster", func(t *testing.T) {
					client := redisclient.NewCluster(t, &redis.ClusterOptions{Addrs: cluster, ContextTimeoutEnabled: contextTimeout})
					defer func() { _ = client.Close() }()
					hookPanics(t, onCluster(client), name, when, end, how == "exit" && contextTimeout)
				})
			}
		}
	}
}

// hookPanics makes a hook end the calls of a batch and calls that go alone. ownGoroutine says that the calls that go alone
// run in the goroutines of their callers, which end.
func hookPanics(t *testing.T, s *backend, name string, when int32, end func(), ownGoroutine bool) {
	const callers, alone = 6, maxInFlight + 1
	var next, passed atomic.Int32 // when the hook panics at the next command; how many commands have passed the gate
	s.client.AddHook(gate.Around(func(_ []redis.Cmder, send func() error) error {
		passed.Add(1)
		if next.CompareAndSwap(beforeSent, never) {
			end()
		}
		err := send()
		if next.CompareAndSwap(afterReply, never) {
			end()
		}
		return err
	}))
	lim := s.limiter(t, name, core.FixedWindow(core.PerHour(100)))
	slots := s.limiter(t, name+"-slots", core.InFlight(alone))
	c := s.caller(t, lim)
	for range callers {
		c.allow("k", 1)
	}
	c.gather()
	next.Store(when)
	s.gate.Open()
	for i, a := range c.all {
		if a.await(t); !a.ofHook() {
			t.Errorf("caller %d: got %+v, %v; want the hook's error", i, a.held, a.err)
		}
	}
	for i := range alone + 1 {
		next.Store(when)
		passed.Store(0)
		lim := lim
		if i == alone {
			lim = slots // its slot is freed in the background
		}
		if a := start(t.Context(), request{key: "k", n: 1}.acquire(lim)).await(t); a.goneWithout() != ownGoroutine || !ownGoroutine && !a.ofHook() {
			t.Errorf("caller %d, alone: got %+v, %v; want the hook's error, or the end of the caller's own goroutine: %v", i, a.held, a.err, ownGoroutine)
		}
	}
	check.Eventually(t, "a command to free the slot is sent, even if none was taken", func() bool { return passed.Load() >= 2 })
	check.Eventually(t, "no slot is lost", func() bool {
		res, err := slots.Peek(t.Context(), "k")
		return err == nil && res.Remaining == alone
	})
	left := int64(100)
	if when == afterReply {
		left -= callers + alone // each call was charged once
	}
	for i, o := range s.batch(t, lim, []request{{"k", 1, false}, {"k", 1, false}}) {
		o.want(t, "after the panics", true, left-1-int64(i))
	}
}

// When a hook ends its command.
const (
	never int32 = iota
	beforeSent
	afterReply
)

// TestLoneCallerCancels checks that a caller whose call goes alone returns at once when it cancels, while the call
// continues and keeps its place among the calls in flight. There is one exception: if the client itself ends calls with
// their context, and the server is not distant, the caller returns when the call does.
func TestLoneCallerCancels(t *testing.T) {
	t.Parallel()
	addr := redistest.Server(t).Addr
	for _, contextTimeout := range []bool{false, true} {
		for _, far := range []bool{false, true} {
			name := fmt.Sprint("contextTimeout-", contextTimeout, "-far-", far)
			t.Run(name, func(t *testing.T) {
				client := redisclient.New(t, &redis.Options{Addr: addr, ContextTimeoutEnabled: contextTimeout})
				defer func() { _ = client.Close() }()
				s := newBackend(client, 1)
				s.known = far // a server that has not answered yet may be distant
				lim := core.MustNew(client, name, append(exactly, tenPerHour)...)
				if !far {
					lim = s.limiter(t, name, tenPerHour)
				}
				s.gate.Hold(t)
				lasts := time.Hour
				if far {
					lasts = time.Second / 2
				}
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				left := start(ctx, request{key: "k", n: 1}.of(lim))
				s.gate.Await(t, 1)
				if far {
					left.wantEnded(t, "a caller whose deadline has passed", context.DeadlineExceeded)
				} else if cancel(); !contextTimeout {
					left.wantEnded(t, "a caller that canceled", context.Canceled)
				}
				atOnce := !contextTimeout || far
				for range maxInFlight - 1 {
					start(t.Context(), request{key: "busy", peek: true}.of(lim))
					s.gate.Await(t, 1)
				}
				all := []*answer{enqueue(t.Context(), t, "the next call", request{key: "k", n: 1}.of(lim)), enqueue(t.Context(), t, "another call", request{key: "k", n: 1}.of(lim))}
				if !atOnce && len(left.done) > 0 {
					t.Errorf("the caller returned %+v, %v before the call did, want it to wait for the call", left.Result, left.err)
				}
				s.gate.Open()
				if !atOnce {
					all = append(all, left)
				}
				for _, o := range all {
					if o.await(t); o.err != nil || !o.Allowed {
						t.Errorf("got %+v, %v; want it allowed", o.Result, o.err)
					}
				}
				s.sent(t, 2) // the next two calls shared a batch, as the canceled call kept its place
				check.Eventually(t, "all three are charged", func() bool {
					res, err := lim.Peek(t.Context(), "k")
					return err == nil && res.Remaining == 7
				})
			})
		}
	}
}
