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

// onRedis is a real server with its own clock.
func onRedis(t testing.TB, config ...string) *backend {
	t.Helper()
	return newBackend(redistest.Server(t, config...).Client(t), 1)
}

// oneNode is a server of a Cluster that has all slots and no other node.
func oneNode(t testing.TB) *backend {
	t.Helper()
	s := onRedis(t, "--cluster-enabled", "yes")
	// Each slot by its number: Redis 6 knows no ADDSLOTSRANGE.
	check.Need(t, s.client.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	check.Eventually(t, "the slots are served", func() bool { return s.client.Set(t.Context(), "try", 1, 0).Err() == nil })
	return s
}

// do runs a command behind the Limiter's back.
func (s *backend) do(t testing.TB, args ...any) {
	t.Helper()
	if err := s.client.Do(context.WithoutCancel(t.Context()), args...).Err(); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

// doAll is do on every node.
func (s *backend) doAll(t testing.TB, args ...any) {
	t.Helper()
	if err := conformance.OnEach(context.WithoutCancel(t.Context()), s.client, func(ctx context.Context, node redis.UniversalClient) error {
		return node.Do(ctx, args...).Err()
	}); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

var tenPerHour = core.FixedWindow(core.PerHour(10))

// Sixty-four callers at once cause a few commands, not sixty-four; with
// MaxBatch(1) each has its own. The client's hooks see them all.
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
		t.Errorf("%d scripts were sent with their source, want none", evals)
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
			t.Errorf("%+v, %v", o.Result, o.err)
		}
	}
	if sent, _ := s.gate.Sent(); len(sent) != len(requests) || slices.Max(sent) != 1 {
		t.Errorf("with MaxBatch(1) scripts of %v keys, want %d of one", sent, len(requests))
	}
}

// A script takes a bounded time: of decisions that take Redis longer fewer are in one.
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
			t.Errorf("decision %d: %+v, %v", i, o.Result, o.err)
		}
	}
	sent, _ := s.gate.Sent()
	sent = sent[maxInFlight:]
	if len(sent) != 10 || slices.Max(sent) != 4*len(logs) {
		t.Errorf("scripts of %v keys, want 10 for the 40 decisions", sent)
	}
	if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 6000 {
		t.Errorf("%+v, %v; want 6000 remaining", res, err)
	}
}

// A script ends where its decisions have taken long, however few they are: a log
// that has charges of many sizes is searched for the instant at which it admits. The
// other decisions are sent alone, and have the same answers.
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
			t.Errorf("decision %d: admits at %v, the first at %v", i, at, room)
		}
	}
	if sent, _ := s.gate.Sent(); len(sent) < maxInFlight+10 {
		t.Errorf("scripts of %v keys, want many for so long searches", sent)
	}
}

// A value that is not a state of the limit does not affect other decisions of its batch. Its own key starts
// afresh.
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
						continue // that is its own
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

// With its memory full Redis refuses to charge, whatever the algorithm and whatever else is in the batch. Each decision
// that would charge is ErrUnavailable with Redis's reason, reported as an outage, and nothing stays charged; those that
// need no memory have an answer, also beside it in one batch.
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
	s.do(t, "zadd", "rl:"+name+":{new}:limit", 9e18, "a") // to replace a foreign value needs memory, too
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
			t.Errorf("decision %d: %v; want what Redis said", i, err)
		}
	}
	all[0].want(t, "too large a cost over a foreign value", false, 10)
	all[2].want(t, "Peek", true, 7)
	all[3].want(t, "a denied call", false, 0)
	all[4].want(t, "a cost of 0", true, 10)
	all[6].want(t, "too large a cost", false, 7)
	if outages.Load() != 2 {
		t.Errorf("%d outages were reported, want one for each decision without an answer", outages.Load())
	}
	s.doAll(t, "config", "set", "maxmemory", "0")
	s.awaitRedis(t, lim) // a server without memory is down
	after := s.batch(t, lim, []request{{"a", 1, false}, {"new", 1, false}, {"hash", 1, false}})
	for i, left := range []int64{6, 9, 9} {
		after[i].want(t, "what was refused, later", true, left)
	}
}

// A server that refuses keys of several slots, as one of a Cluster does, is found
// out with keys that are no user's: no batch is sent to it. Nothing is charged twice.
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
	s.sent(t, 1, 1, 1, 1, 1) // one each
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
	s.gate.Await(t, len(all)) // all of them at once: none waits for another
	s.gate.Open()
	for i, o := range all {
		o.want(t, fmt.Sprint("later caller ", i), true, 9)
	}
	if sent, _ := s.gate.Sent(); len(sent) != len(all) || slices.Max(sent) != 1 {
		t.Errorf("later scripts of %v keys, want %d of one", sent, len(all))
	}
}

// A hook panics, or ends its goroutine as t.FailNow does, before a command is sent or after its reply. Each caller of the batch gets
// an error, by which no outage policy decides. Nothing is sent twice, no slot and no place in flight is lost, and the process and the
// Limiter live. A call that goes alone in its caller's own goroutine ends with it.
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

// hookPanics makes a hook end the calls of a batch, and calls that go alone. ownGoroutine says that the
// latter end the goroutines of their callers.
func hookPanics(t *testing.T, s *backend, name string, when int32, end func(), ownGoroutine bool) {
	const callers, alone = 6, maxInFlight + 1
	var next, passed atomic.Int32 // when the next command's hook panics, and how many commands have passed the gate
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
			t.Errorf("caller %d: %+v, %v, want the hook's error", i, a.held, a.err)
		}
	}
	for i := range alone + 1 {
		next.Store(when)
		passed.Store(0)
		lim := lim
		if i == alone {
			lim = slots // which are freed in the background
		}
		if a := start(t.Context(), request{key: "k", n: 1}.acquire(lim)).await(t); a.goneWithout() != ownGoroutine || !ownGoroutine && !a.ofHook() {
			t.Errorf("caller %d, alone: %+v, %v", i, a.held, a.err)
		}
	}
	check.Eventually(t, "the slot is freed, though none may be taken", func() bool { return passed.Load() >= 2 })
	check.Eventually(t, "no slot is lost", func() bool {
		res, err := slots.Peek(t.Context(), "k")
		return err == nil && res.Remaining == alone
	})
	left := int64(100)
	if when == afterReply {
		left -= callers + alone // each once
	}
	for i, o := range s.batch(t, lim, []request{{"k", 1, false}, {"k", 1, false}}) {
		o.want(t, "after the panics", true, left-1-int64(i))
	}
}

// When a panicking hook does so.
const (
	never int32 = iota
	beforeSent
	afterReply
)

// A caller that goes alone and cancels returns at once, and the call continues and keeps its place. Only if
// the client itself ends calls with their context, and the server is not distant, the caller returns when
// the call does.
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
				s.known = far // a server that was not asked yet may be far
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
					left.wantEnded(t, "one whose deadline has passed", context.DeadlineExceeded)
				} else if cancel(); !contextTimeout {
					left.wantEnded(t, "one that left", context.Canceled)
				}
				atOnce := !contextTimeout || far
				for range maxInFlight - 1 {
					start(t.Context(), request{key: "busy", peek: true}.of(lim))
					s.gate.Await(t, 1)
				}
				all := []*answer{enqueue(t.Context(), t, "the next", request{key: "k", n: 1}.of(lim)), enqueue(t.Context(), t, "another", request{key: "k", n: 1}.of(lim))}
				if !atOnce && len(left.done) > 0 {
					t.Errorf("%+v, %v before the call returned", left.Result, left.err)
				}
				s.gate.Open()
				if !atOnce {
					all = append(all, left)
				}
				for _, o := range all {
					if o.await(t); o.err != nil || !o.Allowed {
						t.Errorf("%+v, %v", o.Result, o.err)
					}
				}
				s.sent(t, 2) // the place was taken
				check.Eventually(t, "all three are charged", func() bool {
					res, err := lim.Peek(t.Context(), "k")
					return err == nil && res.Remaining == 7
				})
			})
		}
	}
}
