package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/admin"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// A shown is the part of data.json that describes one limiter.
type shown struct {
	Name       string         `json:"name"`
	Outage     string         `json:"outage"`
	Limits     []string       `json:"limits"`
	Bans       bool           `json:"bans"`
	Decisions  []int          `json:"decisions"`
	Denied     []int          `json:"denied"`
	Sources    map[string]int `json:"sources"`
	P50        float64        `json:"p50"`
	P99        float64        `json:"p99"`
	MostAsked  []shownKey     `json:"mostAsked"`
	MostDenied []shownKey     `json:"mostDenied"`
	Servers    []struct {
		Addr  string `json:"addr"`
		State string `json:"state"`
		Error string `json:"error"`
	} `json:"servers"`
}

type shownKey struct {
	Key   string `json:"key"`
	ID    []byte `json:"id"`
	Count int64  `json:"count"`
	Over  int64  `json:"over"`
}

func (s shown) sums() (decisions, denied int) {
	for i, n := range s.Decisions {
		decisions, denied = decisions+n, denied+s.Denied[i]
	}
	return decisions, denied
}

// see returns the data that the page shows about its limiters.
func see(t *testing.T, h http.Handler) []shown {
	t.Helper()
	var data struct {
		Limiters []shown `json:"limiters"`
	}
	w := send(h, http.MethodGet, "data.json", "")
	if err := json.Unmarshal(w.Body.Bytes(), &data); err != nil || w.Code != http.StatusOK {
		t.Fatalf("data.json: got error %v, status %d and the body %s", err, w.Code, w.Body)
	}
	return data.Limiters
}

// TestCounts decides with a limiter for some minutes, and checks the counts that the page shows of each second and of each key.
func TestCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		watch := admin.NewWatch()
		h := admin.Handler(everybody, watch)
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(100)), core.Ban(time.Hour), core.ObserveKeys(watch.Observe))
		defer func() { _ = lim.Close() }()
		if all := see(t, h); len(all) != 0 {
			t.Errorf("before Add: got %+v, want no limiters", all)
		}
		_, _ = lim.Allow(t.Context(), "early") // not counted, because the limiter has not been added
		watch.Add(core.MustNewMemory("other", core.FixedWindow(core.PerDay(1))), lim)
		for range 12 { // each time, a second passes
			for range 10 {
				_, _ = lim.Allow(t.Context(), "heavy")
			}
			_, _ = lim.Allow(t.Context(), "light")
			_, _ = lim.Peek(t.Context(), "looked at")
			time.Sleep(time.Second)
		}
		s := see(t, h)[0]
		if decisions, denied := s.sums(); s.Name != "api" || decisions != 132 || denied != 20 {
			t.Errorf("%s: %d decisions and %d denials, want 132 and 20", s.Name, decisions, denied)
		}
		if n := len(s.Decisions); n != 300 || s.Decisions[n-1] != 11 || s.Decisions[n-12] != 11 || s.Decisions[n-13] != 0 || s.Denied[n-3] != 0 || s.Denied[n-1] != 10 {
			t.Errorf("in the last seconds: got %v decisions and %v denials", s.Decisions[n-14:], s.Denied[n-14:])
		}
		if fmt.Sprint(s.Sources) != "map[memory:132]" || s.Limits[0] != "fixed_window 100/1d" || !s.Bans || s.Outage != "" || len(s.Servers) != 0 {
			t.Errorf("got %+v, want 132 decisions in memory by fixed_window 100/1d with bans, and no servers", s)
		}
		for name, got := range map[string][]shownKey{"heavy 120, light 12": s.MostAsked, "heavy 20": s.MostDenied} {
			var words []string
			for _, k := range got {
				words = append(words, fmt.Sprint(k.Key, " ", k.Count-k.Over))
			}
			if strings.Join(words, ", ") != name {
				t.Errorf("got the keys %q, want %q", words, name)
			}
		}
		time.Sleep(4*time.Minute + 50*time.Second) // then 2 of the 12 seconds are too old to be shown
		if decisions, _ := see(t, h)[0].sums(); decisions != 110 {
			t.Errorf("when 2 seconds are too old: %d decisions, want 110", decisions)
		}
		time.Sleep(10 * time.Minute)
		if s := see(t, h)[0]; len(s.MostAsked) != 0 || s.P50 != 0 || len(s.Sources) != 0 {
			t.Errorf("when everything is too old: got %+v, want no keys, latencies and sources", s)
		}
		for range 320 {
			_, _ = lim.Allow(t.Context(), "late")
			time.Sleep(time.Second)
		}
		if decisions, _ := see(t, h)[0].sums(); decisions != 300 {
			t.Errorf("%d decisions in 300 s, want 300: one in each second", decisions)
		}
	})
}

// TestSources passes an event of each source of decisions to a Watch, and checks the counts and the latencies that are shown. Events of
// other kinds and of other limiters must not count.
func TestSources(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, watch := page(core.MustNewMemory("api", core.FixedWindow(core.PerDay(1))))
		for i := range 100 {
			e := core.Event{Kind: core.EventDecision, Limiter: "api", Took: time.Millisecond, Result: core.Result{Allowed: true, Source: core.Source(i % 7)}}
			switch {
			case i >= 97:
				e.Took = time.Second
			case i >= 90:
				e.Err, e.Result = errors.New("away"), core.Result{}
			}
			watch.Observe(t.Context(), "", e)
			watch.Observe(t.Context(), "k", core.Event{Kind: core.EventOutage, Limiter: "api"})
			watch.Observe(t.Context(), "k", core.Event{Kind: core.EventDecision, Limiter: "another"})
		}
		time.Sleep(time.Second)
		s := see(t, h)[0]
		if want := "map[deny_cache:13 error:7 fallback:13 lease:13 memory:13 none:14 redis:14 uncounted:13]"; fmt.Sprint(s.Sources) != want {
			t.Errorf("got the sources %v, want %s", s.Sources, want)
		}
		if s.P50 < 0.001 || s.P50 > 0.00125 || s.P99 < 1 || s.P99 > 1.25 || len(s.MostAsked) != 0 {
			t.Errorf("got the median %v, the 99th percentile %v and the keys %v; want about 0.001, about 1 and none", s.P50, s.P99, s.MostAsked)
		}
	})
}

// TestHeavyHitters counts a few frequent keys among very many others: the frequent keys must be found, with bounds on their counts. Keys
// may be long, or substrings of longer strings, which would stay in memory with them: the memory must be bounded.
func TestHeavyHitters(t *testing.T) { // not parallel, because other tests take memory, too
	h, watch := page(core.MustNewMemory("api", core.FixedWindow(core.PerDay(1))))
	decided := func(key string, allowed bool) {
		watch.Observe(t.Context(), key, core.Event{Kind: core.EventDecision, Limiter: "api", Result: core.Result{Allowed: allowed}})
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 200_000
	random := rand.New(rand.NewPCG(1, 2))
	long := strings.Repeat("x", 4000)
	before, want := heap(), map[string]int64{}
	for i := range n {
		key := fmt.Sprintf("%d %s", random.Uint64(), long) // a new key each time
		if i%20 < 4 {
			key = fmt.Sprint("heavy", i%20) // each has 5% of the requests
			want[key]++
		}
		decided(key, i%20 != 3)
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d keys of 4 kB take %d bytes, want at most 1 MiB", n, grown)
	}
	s := see(t, h)[0]
	for _, k := range s.MostAsked[:4] {
		if w := want[k.Key]; w == 0 || k.Count < w || k.Count-k.Over > w || k.Over > n/200 {
			t.Errorf("%.20s: the page shows %d to %d times, want %d", k.Key, k.Count-k.Over, k.Count, w)
		}
	}
	if k := s.MostAsked[5]; len(k.Key) != 512 || k.ID != nil {
		t.Errorf("a long key is shown with %d bytes and the id %q, want 512 bytes and no id", len(k.Key), k.ID)
	}
	if len(s.MostDenied) != 1 || s.MostDenied[0].Key != "heavy3" || s.MostDenied[0].Count != n/20 {
		t.Errorf("got the most denied keys %+v, want heavy3 with %d", s.MostDenied, n/20)
	}
}

// TestObserveAllocatesNothing checks that Observe allocates no memory for a key that is known.
func TestObserveAllocatesNothing(t *testing.T) {
	_, watch := page(core.MustNewMemory("api", core.FixedWindow(core.PerDay(1))))
	e := core.Event{Kind: core.EventDecision, Limiter: "api"}
	watch.Observe(t.Context(), "alice", e)
	if got := testing.AllocsPerRun(1000, func() { watch.Observe(t.Context(), "alice", e) }); got != 0 {
		t.Errorf("Observe makes %v allocations, want none", got)
	}
}

// TestTogether decides, shows the page and adds limiters in many goroutines, for the race detector, and checks that every decision is
// counted.
func TestTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, watch := page()
		lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(1e6)), core.ObserveKeys(watch.Observe))
		defer func() { _ = lim.Close() }()
		watch.Add(lim)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 500 {
					_, _ = lim.Allow(t.Context(), fmt.Sprint("key", (i+j)%100))
					if j%50 == 0 {
						see(t, h)
						watch.Add(core.MustNewMemory(fmt.Sprint("l", i), core.FixedWindow(core.PerDay(1))))
						watch.LookUp("more", func(v string) string { return v })
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		if decisions, _ := see(t, h)[0].sums(); decisions != 8*500 {
			t.Errorf("the page shows %d decisions, want %d", decisions, 8*500)
		}
	})
}

// TestServers uses a Redis that is up and then stopped. The page must show its state without sending a command. A look-up may run
// scripts, and no command may scan the keys.
func TestServers(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	client := server.Client(t)
	var mu sync.Mutex
	var sent []string // the names of commands
	client.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
		mu.Lock()
		for _, cmd := range cmds {
			sent = append(sent, cmd.Name())
		}
		mu.Unlock()
		return send()
	}))
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(sent)
	}
	h, watch := page()
	lim := core.MustNew(client, "api", core.FixedWindow(core.PerHour(10)), core.Timeout(20*time.Second), core.ObserveKeys(watch.Observe))
	t.Cleanup(func() { _ = lim.Close() })
	watch.Add(lim)
	_, err := lim.Allow(t.Context(), "alice")
	must(t, err)
	before := count()
	if s := see(t, h)[0]; len(s.Servers) != 1 || s.Servers[0].Addr != server.Addr || s.Servers[0].State != "up" || s.Outage != "FailLocal" {
		t.Errorf("got %+v, want the server %s up, and FailLocal", s, server.Addr)
	}
	if n := count() - before; n != 0 {
		t.Errorf("showing the page sent %d commands, want none", n)
	}
	if s := do(t, h, "lookup", alice); s.Source != "redis" || s.Limits[0].Remaining != 9 {
		t.Errorf("lookup: got %+v, want 9 left, by redis", s)
	}
	if n := count() - before; n > 2 {
		t.Errorf("a look-up sent %d commands, want at most 2", n)
	}
	mu.Lock()
	for _, name := range sent {
		if !slices.Contains([]string{"eval", "evalsha", "hello", "client"}, name) {
			t.Errorf("the command %q was sent, want only scripts", name)
		}
	}
	mu.Unlock()
	server.Stop()
	_, err = lim.Allow(t.Context(), "alice")
	must(t, err)
	if s := see(t, h)[0]; s.Servers[0].State == "up" || !strings.Contains(s.Servers[0].Error, "refused") {
		t.Errorf("stopped: got the servers %+v, want the first one not up, with a refused connection", s.Servers)
	}
	if s := do(t, h, "lookup", alice); s.Source != "fallback" {
		t.Errorf("stopped: lookup: got %+v, want the source fallback", s)
	}
	if w := send(h, http.MethodPost, "reset", alice); w.Code != http.StatusServiceUnavailable {
		t.Errorf("stopped: reset: got %d %s, want 503", w.Code, w.Body)
	}
}

// TestServersOfCluster uses keys of several nodes: the page must show each node that was called, and no other.
func TestServersOfCluster(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	h, watch := page()
	lim := core.MustNew(redistest.ClusterClient(t, addrs), "api", core.FixedWindow(core.PerHour(10)), core.Timeout(20*time.Second))
	t.Cleanup(func() { _ = lim.Close() })
	watch.Add(lim)
	for i := range 50 {
		_, err := lim.Allow(t.Context(), fmt.Sprint(i))
		must(t, err)
	}
	s := see(t, h)[0]
	if len(s.Servers) != len(addrs) {
		t.Errorf("got the servers %+v, want %v", s.Servers, addrs)
	}
	for _, sv := range s.Servers {
		if sv.State != "up" || !slices.Contains(addrs, sv.Addr) {
			t.Errorf("got the server %+v, want one of %v that is up", sv, addrs)
		}
	}
}

// BenchmarkDecision measures how much time a Watch adds to a decision in memory, with 64 callers.
func BenchmarkDecision(b *testing.B) {
	watch := admin.NewWatch()
	for name, observe := range map[string]core.Option{
		"none": core.Options(), "Observe": core.Observe(func(context.Context, core.Event) {}), "Watch": core.ObserveKeys(watch.Observe),
	} {
		b.Run(name, func(b *testing.B) {
			lim := core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1000)), observe)
			watch.Add(lim)
			var keys [64]string
			for i := range keys {
				keys[i] = fmt.Sprint("ip:192.0.2.", i)
			}
			b.ReportAllocs()
			b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					_, _ = lim.Allow(context.Background(), keys[i%len(keys)])
				}
			})
		})
	}
}
