package coalesce

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// onRedis is a real server with its own clock.
func onRedis(t *testing.T, config ...string) *site {
	t.Helper()
	client := redistest.Server(t, config...).Client(t)
	s := &site{client: client, gate: &gate{}, nodes: 1}
	client.AddHook(s.gate)
	return s
}

// do runs a command behind the Limiter's back.
func (s *site) do(t *testing.T, args ...any) {
	t.Helper()
	if err := s.client.Do(t.Context(), args...).Err(); err != nil {
		t.Errorf("%v: %v", args, err)
	}
}

var tenPerHour = core.FixedWindow(core.PerHour(10))

// Sixty-four callers at once cause a few commands, not sixty-four; with
// Coalesce(1) each has its own. The client's hooks see them all.
func TestCommands(t *testing.T) {
	s := onRedis(t)
	asks := make([]ask, 64-width)
	for i := range asks {
		asks[i] = ask{key: fmt.Sprint("key", i%7), n: 1}
	}
	for i, o := range s.together(t, s.limiter(t, "many", core.FixedWindow(core.PerHour(100))), asks) {
		o.want(t, fmt.Sprint("caller ", i), true, int64(99-i/7))
	}
	if sent, evals := s.gate.counted(); !slices.Equal(sent, []int{1, 1, 1, 1, 60}) || evals != 0 {
		t.Errorf("scripts of %v keys, %d with their source; want four and one for all the others", sent, evals)
	}

	halves := s.limiter(t, "halves", core.FixedWindow(core.PerHour(100)), core.Coalesce(30))
	s.together(t, halves, asks)
	if sent, _ := s.gate.counted(); !slices.Equal(sent, []int{1, 1, 1, 1, 30, 30}) {
		t.Errorf("with Coalesce(30) scripts of %v keys", sent)
	}

	alone := s.limiter(t, "alone", core.FixedWindow(core.PerHour(100)), core.Coalesce(1))
	s.gate.shut()
	var all []*told
	for _, a := range asks {
		all = append(all, start(t.Context(), alone, a))
	}
	s.gate.open()
	for _, o := range all {
		if o.await(t); o.err != nil || !o.Allowed {
			t.Errorf("%+v, %v", o.Result, o.err)
		}
	}
	if sent, _ := s.gate.counted(); len(sent) != len(asks) || slices.Max(sent) != 1 {
		t.Errorf("with Coalesce(1) scripts of %v keys, want %d of one", sent, len(asks))
	}
}

// A decision on very many units waits for nobody, and nobody for it.
func TestCostlyGoesAlone(t *testing.T) {
	s := onRedis(t)
	lim := s.limiter(t, "costly", core.SlidingWindowLog(core.PerHour(1000)))
	plugs := s.plug(t, lim)
	costly := start(t.Context(), lim, ask{key: "k", n: 101})
	s.gate.holds(t, 1) // it was sent
	usual := queue(t.Context(), t, lim, ask{key: "k", n: 100})
	s.gate.let(t, 1+width)
	s.gate.open()
	for _, o := range append(plugs, costly, usual) {
		if o.await(t); o.err != nil || !o.Allowed {
			t.Errorf("%+v, %v", o.Result, o.err)
		}
	}
	if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 799 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A script ends where its decisions have taken long, however few they are: a log
// that has charges of many sizes is searched for when there is room. The others are
// sent alone, and have the same answers.
func TestLongSearch(t *testing.T) {
	for name, other := range map[string][]core.Option{"one": nil, "several": {core.GCRA(core.PerHour(1e6))}} {
		t.Run(name, func(t *testing.T) {
			s := onRedis(t)
			const charges, left = 500, 10
			used := int64(0)
			for i := range int64(charges) {
				used += 1 + i%31
			}
			lim := s.limiter(t, "long", append(other, core.SlidingWindowLog(core.PerHour(used+left)))...)
			for i := range int64(charges) {
				if _, err := lim.AllowN(t.Context(), "k", 1+i%31); err != nil {
					t.Fatal(err)
				}
			}
			asks := make([]ask, 64)
			for i := range asks {
				asks[i] = ask{key: "k", n: 100}
			}
			var room time.Time
			s.gate.counted()
			for i, o := range s.together(t, lim, asks) {
				o.want(t, fmt.Sprint("decision ", i), false, left)
				if i == 0 {
					room = o.At.Add(o.RetryAfter)
				}
				if at := o.At.Add(o.RetryAfter); !at.Equal(room) {
					t.Errorf("decision %d: room at %v, that of the first %v", i, at, room)
				}
			}
			if sent, _ := s.gate.counted(); len(sent) < width+10 {
				t.Errorf("scripts of %v keys, want many for so long searches", sent)
			}
		})
	}
}

// What is no state of the limit spoils nobody's decision but starts its own key
// afresh: another type, garbage, numbers beyond all bounds, another algorithm's
// state.
func TestForeignValue(t *testing.T) {
	s := onRedis(t)
	foreign := [][]any{
		{"rpush", "list"}, {"hset", "field", "value"}, {"sadd", "member"}, {"zadd", "1", "member"}, {"zadd", "inf", "5"},
		{"zadd", "9e18", "5"}, {"zadd", "-inf", "-5"}, {"set", ""}, {"set", "hello"}, {"set", "F1 1e99 99999999999999999999 1"},
		{"set", "B1 10 8000000000000000 1"}, {"set", "B1 0 1 2"}, {"set", "B1 10 1 nan"}, {"set", "B1 10 inf"}, {"set", "B1 10 5.5"},
		{"set", "C1 1800000000000000 999999999999 1"}, {"set", "F1 5 1800000000000000"}, {"set", "B1 10 8000000000000000+10"},
	}
	for _, v := range limits.All() {
		one := []core.Option{v.With(core.PerHour(10), limits.Settings{Burst: 10, Name: "limit"})}
		for name, limits := range map[string][]core.Option{
			v.Name: one, v.Name + " and another": append(one, core.FixedWindow(core.PerHour(1000))),
		} {
			t.Run(name, func(t *testing.T) {
				lim := s.limiter(t, "foreign", limits...)
				for _, put := range foreign {
					if strings.HasPrefix(v.Name, "fixed_window") && put[1] == "F1 5 1800000000000000" {
						continue // that is its own
					}
					s.do(t, "flushdb")
					s.do(t, append([]any{put[0], "rl:foreign:{bad}:limit"}, put[1:]...)...)
					all := s.together(t, lim, []ask{{"a", 3, false}, {"bad", 0, true}, {"bad", 4, false}, {"b", 3, false}, {"bad", 4, false}, {"a", 3, false}})
					for i, left := range []int64{7, 10, 6, 7, 2, 4} {
						all[i].want(t, fmt.Sprint(put, ", decision ", i), true, left)
					}
				}
			})
		}
	}
}

// With its memory full Redis refuses to charge, whatever the algorithm and whatever
// else is in the batch. Each who would be charged is told so, and nothing stays
// charged; who asks for what needs no memory has an answer.
func TestOutOfMemory(t *testing.T) {
	all := map[string][]core.Option{
		"several":   {core.FixedWindow(core.PerHour(10), core.Name("limit")), core.TokenBucket(core.PerHour(1000)), core.SlidingWindowLog(core.PerHour(1000))},
		"log first": {core.SlidingWindowLog(core.PerHour(10), core.Name("limit")), core.FixedWindow(core.PerHour(1000))},
	}
	for _, v := range limits.All() {
		all[v.Name] = []core.Option{v.With(core.PerHour(10), limits.Settings{Burst: 10, Name: "limit"})}
	}
	for name, limits := range all {
		t.Run(name, func(t *testing.T) { outOfMemory(t, limits) })
	}
}

func outOfMemory(t *testing.T, limits []core.Option) {
	s := onRedis(t)
	var outages atomic.Int64
	lim := s.limiter(t, "memory", append(limits, core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventOutage {
			outages.Add(1)
		}
	}))...)
	for key, n := range map[string]int64{"a": 3, "full": 10} {
		if _, err := lim.AllowN(t.Context(), key, n); err != nil {
			t.Fatal(err)
		}
	}
	s.do(t, "hset", "rl:memory:{hash}:limit", "a", "b")
	s.do(t, "zadd", "rl:memory:{new}:limit", 9e18, "a") // replacing what is not understood needs memory, too
	plugs := s.plug(t, lim)
	var all []*told
	for _, a := range []ask{
		{"hash", 11, false}, {"a", 1, false}, {"a", 1, true}, {"full", 1, false}, {"new", 0, false}, {"new", 1, false}, {"a", 8, false},
	} {
		all = append(all, queue(t.Context(), t, lim, a))
	}
	s.do(t, "config", "set", "maxmemory", "1")
	s.gate.open()
	for _, o := range append(plugs, all...) {
		o.await(t)
	}
	for _, i := range []int{1, 5} {
		if o := all[i]; !isUnavailable(o.err) || o.Allowed {
			t.Errorf("decision %d: %+v, %v; want ErrUnavailable", i, o.Result, o.err)
		}
	}
	all[0].want(t, "too large a cost over a foreign value", false, 10)
	all[2].want(t, "Peek", true, 7)
	all[3].want(t, "a denied call", false, 0)
	all[4].want(t, "a cost of 0", true, 10)
	all[6].want(t, "too large a cost", false, 7)
	if outages.Load() != 2 {
		t.Errorf("%d outages were told, want one for each who had no answer", outages.Load())
	}
	s.do(t, "config", "set", "maxmemory", "0")
	after := s.together(t, lim, []ask{{"a", 1, false}, {"new", 1, false}, {"hash", 1, false}})
	for i, left := range []int64{6, 9, 9} {
		after[i].want(t, "what was refused, later", true, left)
	}
}

// Who leaves while they wait is told so at once and not charged; who leaves in
// flight is told so at once. The others have their answers, also where the first
// of them all has left.
func TestCallerLeaves(t *testing.T) {
	s := onRedis(t)
	lim := s.limiter(t, "left", tenPerHour)
	plugs := s.plug(t, lim)
	leaving, leave := context.WithCancel(t.Context())
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	aboard, jump := context.WithCancel(t.Context())
	first := queue(leaving, t, lim, ask{key: "k", n: 1})
	second := queue(t.Context(), t, lim, ask{key: "k", n: 1})
	third := queue(short, t, lim, ask{key: "k", n: 1})
	fourth := queue(aboard, t, lim, ask{key: "other", n: 1})
	fifth := queue(t.Context(), t, lim, ask{key: "k", n: 1})
	leave()
	first.gone(t, "who left first", context.Canceled)
	third.gone(t, "whose deadline came", context.DeadlineExceeded)
	s.gate.let(t, width)
	for _, o := range plugs {
		o.await(t)
	}
	s.gate.holds(t, 1) // the flight
	jump()
	fourth.gone(t, "who left in flight", context.Canceled)
	s.gate.open()
	second.want(t, "who stayed", true, 9)
	fifth.want(t, "who stayed", true, 8)
	if sent, _ := s.gate.counted(); !slices.Equal(sent, []int{1, 1, 1, 1, 3}) {
		t.Errorf("scripts of %v keys, want only who had not left", sent)
	}
	if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 8 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A script that Redis has forgotten is sent again once, for all who are aboard.
func TestScriptFlushed(t *testing.T) {
	s := onRedis(t)
	lim := s.limiter(t, "flushed", tenPerHour)
	plugs := s.plug(t, lim)
	var all []*told
	for range 8 {
		all = append(all, queue(t.Context(), t, lim, ask{key: "k", n: 1}))
	}
	s.gate.let(t, width)
	for _, o := range plugs {
		o.await(t)
	}
	s.gate.holds(t, 1) // the flight
	s.do(t, "script", "flush")
	s.gate.open()
	for i, o := range all {
		o.want(t, fmt.Sprint("caller ", i), true, int64(9-i))
	}
	if sent, evals := s.gate.counted(); !slices.Equal(sent, []int{1, 1, 1, 1, 8, 8}) || evals != 1 {
		t.Errorf("scripts of %v keys, %d with their source; want the last once more with it", sent, evals)
	}
}

// A server that refuses keys of several slots, as one of a Cluster does, is asked
// once; then each goes alone. Nothing is charged twice.
func TestCrossSlot(t *testing.T) {
	s := onRedis(t, "--cluster-enabled", "yes")
	s.do(t, "cluster", "addslotsrange", 0, 16383)
	for end := time.Now().Add(patience); s.client.Set(t.Context(), "try", 1, 0).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the slots are not served")
		}
	}
	lim := s.limiter(t, "slots", tenPerHour)
	asks := []ask{{"a", 1, false}, {"b", 2, false}, {"c", 3, false}, {"d", 1, true}, {"e", 11, false}}
	all := s.together(t, lim, asks)
	for i, left := range []int64{9, 8, 7, 10, 10} {
		all[i].want(t, fmt.Sprintf("%+v", asks[i]), i != 4, left)
	}
	if sent, _ := s.gate.counted(); !slices.Equal(sent, []int{1, 1, 1, 1, 5, 1, 1, 1, 1, 1}) {
		t.Errorf("scripts of %v keys, want one of all, and then one each", sent)
	}
	s.gate.shut()
	all = nil
	for i := range 32 {
		all = append(all, start(t.Context(), lim, ask{key: fmt.Sprint("later", i), n: 1}))
	}
	s.gate.holds(t, len(all)) // all of them at once: nobody waits for anybody
	s.gate.open()
	for i, o := range all {
		o.want(t, fmt.Sprint("later caller ", i), true, 9)
	}
	if sent, _ := s.gate.counted(); len(sent) != len(all) || slices.Max(sent) != 1 {
		t.Errorf("later scripts of %v keys, want %d of one", sent, len(all))
	}
}

// A hook that panics does so for its callers, who may recover: the process lives,
// and so does the Limiter, also where it was the call that tries whether Redis is
// back.
func TestHookPanics(t *testing.T) {
	for _, heeds := range []bool{false, true} {
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", heeds), func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: redistest.Server(t).Addr, ContextTimeoutEnabled: heeds})
			defer func() { _ = client.Close() }()
			s := &site{client: client, gate: &gate{}, nodes: 1}
			var faulty atomic.Bool
			client.AddHook(s.gate)
			client.AddHook(panicking{&faulty})
			lim := s.limiter(t, "panics", tenPerHour)
			faulty.Store(true)
			s.gate.shut()
			var panics atomic.Int64
			var callers sync.WaitGroup
			for range 30 {
				callers.Go(func() {
					defer func() {
						if recover() != nil {
							panics.Add(1)
						}
					}()
					res, err := lim.Allow(t.Context(), "k")
					t.Errorf("%+v, %v; want a panic", res, err)
				})
			}
			s.gate.holds(t, width)
			s.gate.open()
			callers.Wait()
			if panics.Load() != 30 {
				t.Errorf("%d panics", panics.Load())
			}
			faulty.Store(false)
			for i, o := range s.together(t, lim, []ask{{"k", 1, false}, {"k", 1, false}}) {
				o.want(t, "after the panics", true, int64(9-i))
			}
		})
	}
}

type panicking struct{ on *atomic.Bool }

func (p panicking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p panicking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.on.Load() {
			panic("a hook's own mistake")
		}
		return next(ctx, cmd)
	}
}

func (p panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
