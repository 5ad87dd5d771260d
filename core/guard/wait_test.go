package guard_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// A line is a service whose requests wait for their limit. It runs in a bubble of synctest.
type line struct {
	*testing.T

	lim     *core.Limiter
	handler http.Handler
	works   time.Duration // how long the handler runs
	cost    *int64        // the argument of SetCost; if nil, SetCost is not called
	all     sync.WaitGroup

	mu      sync.Mutex
	answers []string     // such as "1 200 after 1s, retry ", in the order in which they were given
	served  []int        // the numbers of the requests, in the order in which they were served
	counted map[bool]int // how many decisions the observer saw, by Result.Allowed
}

// upTo is how long a request may wait.
const upTo = 2100 * time.Millisecond

// newLine returns a line in which requests wait for at most upTo. The key of a request is its header Key.
func newLine(t *testing.T, limits []core.Option, opts ...guard.Option) *line {
	t.Helper()
	l := &line{T: t, counted: make(map[bool]int)}
	l.lim = core.MustNewMemory("api", append(limits, core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.counted[e.Result.Allowed]++
		}
	}))...)
	t.Cleanup(func() { _ = l.lim.Close() })
	l.handler = httplimit.Middleware(l.lim, keyfunc.Header("Key"), append(opts, guard.WaitUpTo(upTo))...)(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			n, _ := strconv.Atoi(r.Header.Get("Number"))
			l.mu.Lock()
			l.served = append(l.served, n)
			l.mu.Unlock()
			time.Sleep(l.works)
			if l.cost != nil {
				httplimit.SetCost(r.Context(), *l.cost)
			}
		}))
	return l
}

// send sends one request for each of numbers. Each request is sent when the previous one has been answered or waits.
func (l *line) send(ctx context.Context, key string, numbers ...int) {
	l.Helper()
	for _, n := range numbers {
		l.all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.Header.Set("Key", key)
			r.Header.Set("Number", strconv.Itoa(n))
			w := httptest.NewRecorder()
			came := time.Now()
			l.handler.ServeHTTP(w, r)
			l.mu.Lock()
			defer l.mu.Unlock()
			took := time.Since(came).Round(100 * time.Millisecond)
			l.answers = append(l.answers, fmt.Sprintf("%d %d after %v, retry %s", n, w.Code, took, w.Header().Get("Retry-After")))
		})
		synctest.Wait()
	}
}

// take returns the answers so far, and forgets them.
func (l *line) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	answers := l.answers
	l.answers = nil
	return answers
}

// want waits until all requests have been answered, and checks the answers.
func (l *line) want(want ...string) {
	l.Helper()
	l.all.Wait()
	got := l.take()
	slices.SortFunc(got, byTime)
	slices.SortFunc(want, byTime)
	if !slices.Equal(got, want) {
		l.Errorf("got the answers\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// byTime orders answers by the time at which they were given. Answers that were given at the same time are ordered by their requests,
// because it is random which goroutine records its answer first.
func byTime(a, b string) int {
	return cmp.Or(cmp.Compare(answeredAfter(a), answeredAfter(b)), strings.Compare(a, b))
}

// answeredAfter returns how long an answer took, according to its text.
func answeredAfter(answer string) time.Duration {
	_, rest, _ := strings.Cut(answer, "after ")
	text, _, _ := strings.Cut(rest, ",")
	took, _ := time.ParseDuration(text)
	return took
}

// TestWaitUpTo sends seven requests at once to a limit of two per second. The requests that can be admitted within 2.1 s wait and are
// served in order. The others are denied at once, with a Retry-After that says when they would be admitted. Observers receive one
// decision for each request.
func TestWaitUpTo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.TokenBucket(core.PerSecond(2), core.Burst(1))})
		l.send(t.Context(), "a", 0, 1, 2, 3, 4, 5, 6)
		l.send(t.Context(), "b", 7)
		l.want("0 200 after 0s, retry ", "5 429 after 0s, retry 3", "6 429 after 0s, retry 3", "7 200 after 0s, retry ",
			"1 200 after 500ms, retry ", "2 200 after 1s, retry ", "3 200 after 1.5s, retry ", "4 200 after 2s, retry ")
		if want := map[bool]int{true: 6, false: 2}; l.counted[true] != want[true] || l.counted[false] != want[false] {
			t.Errorf("observed %v decisions, want %v", l.counted, want)
		}
		if !slices.Equal(l.served, []int{0, 7, 1, 2, 3, 4}) {
			t.Errorf("requests were served in the order %v, want 0, 7, 1, 2, 3, 4", l.served)
		}
	})
}

// TestWaitUpToInOrder sends a request of cost 2 that must wait, and then a request of cost 1 that would fit. The second request must
// wait behind the first, because otherwise cheap requests could delay an expensive one forever.
func TestWaitUpToInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(2))}, guard.Cost(func(r keyfunc.Request) int64 {
			if r.Header("Number") == "2" {
				return 1
			}
			return 2
		}))
		l.send(t.Context(), "a", 0, 1)
		time.Sleep(time.Second)
		l.send(t.Context(), "a", 2)
		l.want("0 200 after 0s, retry ", "1 200 after 2s, retry ", "2 200 after 2s, retry ")
	})
}

// TestWaitUpToForWhatIsHeld checks that requests wait for slots, and for units that other requests have reserved. They must be woken
// when the slots or units are given back. A request for which that takes too long waits until upTo has passed, and is denied.
func TestWaitUpToForWhatIsHeld(t *testing.T) {
	t.Parallel()
	window := core.FixedWindow(core.PerDay(1))
	for name, c := range map[string]struct {
		limits []core.Option
		opts   []guard.Option
	}{
		"InFlight":        {[]core.Option{core.InFlight(1)}, nil},
		"InFlight, rate":  {[]core.Option{core.InFlight(1), core.FixedWindow(core.PerDay(100))}, nil},
		"CountIf":         {[]core.Option{window}, []guard.Option{guard.CountIf(func(int) bool { return false })}},
		"CostAfter":       {[]core.Option{window}, []guard.Option{guard.CostAfter()}},
		"all of them":     {[]core.Option{core.InFlight(1), window}, []guard.Option{guard.CostAfter(), guard.CountIf(func(int) bool { return false })}},
		"InFlight, a ban": {[]core.Option{core.InFlight(1), core.FixedWindow(core.PerDay(100)), core.Ban(time.Hour)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, c.limits, c.opts...)
				l.works = 600 * time.Millisecond // a process leaves its slots to other processes for about 25 ms every half second
				if name == "CostAfter" {
					l.cost = new(int64)
				}
				l.send(t.Context(), "a", 0, 1, 2, 3, 4)
				l.want("0 200 after 600ms, retry ", "1 200 after 1.2s, retry ", "2 200 after 1.8s, retry ",
					"4 429 after 2.1s, retry 1", "3 200 after 2.4s, retry ")
				if !slices.Equal(l.served, []int{0, 1, 2, 3}) {
					t.Errorf("requests were served in the order %v, want 0, 1, 2, 3", l.served)
				}
				if left := limits.Left(t, l.lim, "header:Key:a")[0]; left == 0 {
					t.Error("no units or slots are left, want some: they stay held")
				}
			})
		})
	}
}

// TestWaitUpToLeavers checks that clients may leave, from the front of the queue and from behind it: no other client waits longer
// because of that, and nothing stays charged.
func TestWaitUpToLeavers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(1))})
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		l.send(t.Context(), "a", 0)
		l.send(ctx, "a", 1)
		l.send(t.Context(), "a", 2)
		time.Sleep(600 * time.Millisecond)
		l.send(t.Context(), "a", 3)
		l.want("0 200 after 0s, retry ", "1 499 after 500ms, retry ", "2 200 after 1s, retry ", "3 200 after 1.4s, retry ")
		if left := limits.Left(t, l.lim, "header:Key:a")[0]; left != 0 {
			t.Errorf("%d units are left, want 0", left)
		}

		slots := newLine(t, []core.Option{core.InFlight(1)})
		slots.works = time.Second
		ctx, leave = context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		slots.send(t.Context(), "a", 0)
		slots.send(ctx, "a", 1, 2)
		slots.send(t.Context(), "a", 3)
		slots.all.Wait()
		if left := limits.Left(t, slots.lim, "header:Key:a")[0]; !slices.Equal(slots.served, []int{0, 3}) || left != 1 {
			t.Errorf("served the requests %v, and %d slots are free; want 0 and 3, and 1 slot", slots.served, left)
		}
	})
}

// TestWaitUpToAtOnce checks which requests are answered at once, although WaitUpTo is set.
func TestWaitUpToAtOnce(t *testing.T) {
	t.Parallel()
	bucket := []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(1))}
	for name, c := range map[string]struct {
		limits []core.Option
		opts   []guard.Option
		within time.Duration // the deadline of the last request
		want   string        // the answer to the last request
	}{
		"DryRun":             {bucket, []guard.Option{guard.DryRun()}, time.Hour, "200 after 0s, retry "},
		"a distant window":   {[]core.Option{core.FixedWindow(core.PerMinute(1))}, nil, time.Hour, "429 after 0s, retry 60"},
		"a near deadline":    {bucket, nil, time.Second / 2, "429 after 0s, retry 1"},
		"above the capacity": {bucket, []guard.Option{guard.Cost(func(keyfunc.Request) int64 { return 2 })}, time.Hour, "429 after 0s, retry "},
		"a cost of 0":        {bucket, []guard.Option{guard.Cost(func(keyfunc.Request) int64 { return 0 })}, time.Hour, "200 after 0s, retry "},
		"a long ban":         {[]core.Option{core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour)}, nil, time.Hour, "429 after 0s, retry 3600"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, c.limits, c.opts...)
				l.send(context.Background(), "a", 0)
				l.all.Wait()
				l.answers = nil
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				l.send(ctx, "a", 1)
				l.want("1 " + c.want)
			})
		})
	}
}

// TestMaxWaiting sends more requests than may wait. The requests of one key must not take more places than are left for all other keys;
// further requests are denied at once.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.InFlight(1)}, guard.MaxWaiting(8))
		l.works = upTo
		for _, c := range []struct {
			key string
			all []int
			now []string // the requests that are denied at once
		}{
			{"a", []int{10, 11, 12, 13, 14, 15}, []string{"15"}},
			{"b", []int{20, 21, 22, 23, 24}, []string{"23", "24"}},
			{"c", []int{30, 31, 32}, []string{"32"}},
			{"d", []int{40, 41, 42}, []string{"42"}},
			{"e", []int{50, 51}, []string{"51"}},
		} {
			l.take()
			l.send(t.Context(), c.key, c.all...)
			var now []string
			for _, n := range c.now {
				now = append(now, n+" 429 after 0s, retry 1")
			}
			if got := l.take(); !slices.Equal(got, now) {
				t.Errorf("the requests that were denied at once are %q, want %q", got, now)
			}
		}
		l.all.Wait()
		l.answers = nil
		l.works = time.Second
		l.send(t.Context(), "a", 60, 61) // all places are free again
		l.want("60 200 after 1s, retry ", "61 200 after 2s, retry ")
	})
}

// TestWaitUpToBans checks that a request that waits bans no key, even if it waits in vain, and that a request that is denied at once
// does. A request must wait for the end of a ban if the end is near enough.
func TestWaitUpToBans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(1)), core.Ban(time.Minute)})
		l.send(t.Context(), "a", 0, 1, 2)
		l.want("0 200 after 0s, retry ", "1 200 after 1s, retry ", "2 200 after 2s, retry ")
		if err := l.lim.Block(t.Context(), "header:Key:a", 1500*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		l.send(t.Context(), "a", 3)
		l.want("3 200 after 1.5s, retry ")
		l.send(t.Context(), "a", 4, 5, 6) // 6 cannot be admitted in time, so it is denied at once and bans the key
		l.want("6 429 after 0s, retry 60", "4 429 after 1s, retry 59", "5 429 after 1s, retry 59")

		two := guard.Cost(func(keyfunc.Request) int64 { return 2 })
		l = newLine(t, []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(2)), core.Ban(time.Minute)}, two)
		l.send(t.Context(), "a", 0, 1)
		time.Sleep(time.Second)
		if res, err := l.lim.Allow(t.Context(), "header:Key:a"); err != nil || !res.Allowed { // takes the unit for which request 1 waits
			t.Fatal(res, err)
		}
		l.want("0 200 after 0s, retry ", "1 429 after 2s, retry 1")
	})
}

// TestWaitUpToReset checks that a reset of the limit admits a waiting request at once.
func TestWaitUpToReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, []core.Option{core.FixedWindow(core.Per(1, 2*time.Second))})
		l.send(t.Context(), "a", 0, 1)
		time.Sleep(time.Second)
		if err := l.lim.Reset(t.Context(), "header:Key:a"); err != nil {
			t.Fatal(err)
		}
		l.want("0 200 after 0s, retry ", "1 200 after 1s, retry ")
	})
}

// TestWaitUpToOfQueue checks that LimiterFor may choose a limiter with a LeakyBucket for a middleware with WaitUpTo. The limiter that
// is passed to such a middleware must not have one.
func TestWaitUpToOfQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		queue := core.MustNewMemory("queue", core.LeakyBucket(core.PerMinute(60), core.Burst(5)))
		l := newLine(t, []core.Option{core.FixedWindow(core.PerMinute(1))}, guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) {
			return queue, nil
		}))
		l.send(t.Context(), "a", 0)
		l.want("0 200 after 0s, retry ")
	})
}

// TestWaitUpToIsObserved checks that observers receive an EventWait for each request that waited, and for no other.
func TestWaitUpToIsObserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var observed []string
		l := newLine(t, []core.Option{core.TokenBucket(core.PerSecond(1), core.Burst(1)), core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventWait {
				mu.Lock()
				defer mu.Unlock()
				observed = append(observed, fmt.Sprint(e.Took, " ", e.Result.Allowed, " ", e.Err))
			}
		})})
		l.send(t.Context(), "k", 1, 2)
		leaving, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		l.send(leaving, "k", 3)
		l.send(t.Context(), "k", 4) // cannot be admitted in time, so it does not wait
		l.all.Wait()
		if want := []string{"500ms false context canceled", "1s true <nil>"}; !slices.Equal(observed, want) {
			t.Errorf("observed %q, want %q", observed, want)
		}
	})
}

// TestDeadlineInQueue checks requests whose deadlines end before their turn in the queue of a LeakyBucket. They are answered with 503,
// and RetryJitter must spread their Retry-After, too.
func TestDeadlineInQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := core.MustNewMemory("api", core.LeakyBucket(core.PerMinute(1), core.Burst(100)))
		h := httplimit.Middleware(lim, keyfunc.Global(), guard.RetryJitter(0.5), guard.RetryAfterMs())(http.NotFoundHandler())
		get(h, "/")
		waits := make(map[string]bool)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			cancel()
			if w.Code != http.StatusServiceUnavailable {
				t.Fatalf("got status %d, want 503", w.Code)
			}
			waits[w.Header().Get("Retry-After-Ms")] = true
		}
		if len(waits) < 5 {
			t.Errorf("got the waits %v ms, want at least 5 different ones", waits)
		}
	})
}
