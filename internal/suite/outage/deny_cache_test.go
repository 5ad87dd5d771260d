package outage

import (
	"fmt"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// denied returns a Limiter of so many per period over the proxy.
func denied(w *world, name string, rate core.Rate, options ...core.Option) *core.Limiter {
	return core.MustNew(w.rdb, name, append(options, core.FixedWindow(rate), core.Timeout(slack))...)
}

// want calls and checks who answers what.
func want(t *testing.T, l *core.Limiter, key string, n int64, allowed bool, source core.Source) core.Result {
	t.Helper()
	res, err := l.AllowN(t.Context(), key, n)
	if err != nil || res.Allowed != allowed || res.Source != source {
		t.Errorf("%d for %q: %+v, %v; want allowed %v by %v", n, key, res, err, allowed, source)
	}
	return res
}

// A denied key is denied without asking Redis, for no longer than is true, and for a second at most.
func TestDenialIsRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for _, period := range []time.Duration{300 * time.Millisecond, 2500 * time.Millisecond} {
		t.Run(period.String(), func(t *testing.T) {
			l := denied(w, "denied", core.Per(1, period))
			first := want(t, l, "k", 1, true, core.SourceRedis)
			end := first.At.Add(first.ResetAfter)
			var last core.Result
			var sent time.Time // the last denial of Redis's own
			sources := map[core.Source]int{}
			for {
				requests, start := w.proxy.Requests(), time.Now()
				res, err := l.Allow(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if res.Allowed {
					if res.Source != core.SourceRedis {
						t.Errorf("admitted by %v", res.Source)
					}
					break
				}
				sources[res.Source]++
				if res.Source == core.SourceDenyCache {
					if n := w.proxy.Requests() - requests; n != 0 {
						t.Errorf("%d commands were sent", n)
					}
					if start.After(end.Add(5 * time.Millisecond)) { // the clocks: its own, and the one that decided
						t.Errorf("denied %v after the end", start.Sub(end))
					}
					if age := start.Sub(sent); age > 1200*time.Millisecond { // sent is a little early
						t.Errorf("a denial of %v ago", age)
					}
				} else {
					sent = start
				}
				// RetryAfter is true, rounded up, and falls.
				if over := res.At.Add(res.RetryAfter).Sub(end); over > 10*time.Microsecond || over < -10*time.Millisecond || res.RetryAfter <= 0 {
					t.Errorf("RetryAfter is off by %v: %+v", over, res)
				}
				if !last.At.IsZero() && (res.RetryAfter > last.RetryAfter || res.At.Before(last.At)) {
					t.Errorf("%v after %v", res, last)
				}
				last = res
				time.Sleep(2 * time.Millisecond)
			}
			if n := sources[core.SourceRedis]; n > 2+int(period/time.Second) || sources[core.SourceDenyCache] < 10 {
				t.Errorf("denials by source: %v", sources)
			}
		})
	}
}

// The cache answers for nothing but what was denied: a call that costs as much, or more.
func TestDenialIsNotStretched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	l := denied(w, "stretched", core.PerHour(10))
	want(t, l, "k", 8, true, core.SourceRedis)
	want(t, l, "k", 5, false, core.SourceRedis)
	want(t, l, "k", 5, false, core.SourceDenyCache)
	want(t, l, "k", 9, false, core.SourceDenyCache)
	want(t, l, "k", 0, true, core.SourceRedis)
	want(t, l, "k", 1, true, core.SourceRedis)
	want(t, l, "k", 2, false, core.SourceRedis)
	want(t, l, "other", 5, true, core.SourceRedis)
	if res, err := l.Peek(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || !res.Allowed || res.Remaining != 1 {
		t.Errorf("Peek: %+v, %v", res, err)
	}
	want(t, l, "k", 1, true, core.SourceRedis)
	off := denied(w, "stretched", core.PerHour(10), core.DenyCache(0))
	want(t, off, "k", 1, false, core.SourceRedis)
	want(t, off, "k", 1, false, core.SourceRedis)
}

// What can never be admitted is told so, also where a smaller cost has just been denied.
func TestDenialForNowAndForever(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	l := denied(w, "never", core.PerHour(10))
	want(t, l, "k", 10, true, core.SourceRedis)
	for range 2 {
		if res, err := l.AllowN(t.Context(), "k", 11); err != nil || res.Allowed || res.RetryAfter != core.Never {
			t.Errorf("above the capacity: %+v, %v; want RetryAfter Never", res, err)
		}
		if res, err := l.AllowN(t.Context(), "k", 1); err != nil || res.Allowed || res.RetryAfter == core.Never {
			t.Errorf("within the capacity: %+v, %v", res, err)
		}
	}
}

// Reset and Refund are seen at once in their own process, and within a second in another.
func TestDenialIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	here, there := denied(w, "forgotten", core.PerHour(2)), denied(w, "forgotten", core.PerHour(2))
	for _, how := range []string{"Reset", "Refund"} {
		t.Run(how, func(t *testing.T) {
			charged := want(t, here, how, 1, true, core.SourceRedis)
			second := want(t, here, how, 1, true, core.SourceRedis)
			for _, l := range []*core.Limiter{here, there} {
				want(t, l, how, 1, false, core.SourceRedis)
				want(t, l, how, 1, false, core.SourceDenyCache)
			}
			if how == "Reset" {
				if err := here.Reset(t.Context(), how); err != nil {
					t.Error(err)
				}
			} else {
				for _, r := range []core.Result{charged, second} {
					if err := here.Refund(t.Context(), r); err != nil {
						t.Error(err)
					}
				}
			}
			want(t, here, how, 1, true, core.SourceRedis)
			eventually(t, "another process sees it", 3*time.Second, func() bool {
				res, err := there.Allow(t.Context(), how)
				return err == nil && res.Allowed && res.Source == core.SourceRedis
			})
		})
	}
}

// Whoever has 50,000 keys denied once each evicts nobody who is denied again and again, and locks out no newcomer.
func TestDenialIsNotFloodedAway(t *testing.T) {
	t.Parallel()
	const flood, between = 50_000, 250
	w := newWorld(t, setup{})
	l := denied(w, "flood", core.PerHour(1), core.DenyCache(1000))
	want(t, l, "victim", 1, true, core.SourceRedis)
	// The attacker's keys, used up before: copies of one that is.
	copies := `local key = redis.call('KEYS', 'rl:flood:*')[1]
		for i = 1, ARGV[1] do redis.call('COPY', key, (string.gsub(key, 'victim', 'attacker:' .. i))) end`
	if err := w.admin.Eval(t.Context(), copies, nil, flood).Err(); err != nil && err.Error() != "redis: nil" {
		t.Fatal(err)
	}
	start, asked := time.Now(), 0
	for i := 0; i < flood; i += between {
		for range 2 {
			res, err := l.Allow(t.Context(), "victim")
			if err != nil || res.Allowed {
				t.Fatalf("the denied key: %+v, %v", res, err)
			}
			if res.Source == core.SourceRedis {
				asked++
			}
		}
		want(t, l, fmt.Sprint("newcomer:", i), 1, true, core.SourceRedis)
		const attackers = 10
		each := make(chan int, between)
		for j := 1; j <= between; j++ {
			each <- i + j
		}
		close(each)
		if n := together(attackers, func() (ok bool) {
			for j := range each {
				res, err := l.Allow(t.Context(), fmt.Sprint("attacker:", j))
				ok = ok || err != nil || res.Allowed
			}
			return ok
		}); n > 0 {
			t.Fatal("an attacker's key was not denied")
		}
	}
	// It is asked for once a second, as the cache must, however many others came.
	if most := 2 + int(time.Since(start)/time.Second); asked > most {
		t.Errorf("the denied key was asked for %d times in %v, want at most %d", asked, time.Since(start), most)
	}
}
