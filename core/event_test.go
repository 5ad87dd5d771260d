package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/lease"
)

// TestObserveMoreThanOnce has an application's own observer and that of a package,
// such as otellimit: none replaces another.
func TestObserveMoreThanOnce(t *testing.T) {
	t.Parallel()
	var heard []string
	observer := func(name string) Option {
		return Observe(func(_ context.Context, e Event) { heard = append(heard, name+":"+e.Kind.String()+":"+e.Limiter) })
	}
	lim, err := NewMemory("api", observer("first"), TokenBucket(PerMinute(1)), observer("second"), observer("third"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Allow(t.Context(), "user:alice"); err != nil {
		t.Fatal(err)
	}
	want := []string{"first:decision:api", "second:decision:api", "third:decision:api"}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

// TestFallbackShowsNoKey prints the Event of a decision by the fallback, and its Result.
// The conformance suite has those of Redis and of memory.
func TestFallbackShowsNoKey(t *testing.T) {
	t.Parallel()
	const secret = "alice@example.org"
	var events []Event
	lim := MustNew(fakeClient(func(redis.Cmder) error { return errors.New("away") }), "api", TokenBucket(PerMinute(9)),
		Observe(func(_ context.Context, e Event) { events = append(events, e) }))
	defer func() { _ = lim.Close() }()
	res, err := lim.Allow(t.Context(), secret)
	if err != nil || res.Source != SourceFallback {
		t.Fatal(res, err)
	}
	for _, e := range append(events, Event{Result: res}) {
		if text := fmt.Sprintf("%v %+v %#v %v %+v", e, e, e, e.Result, &e.Result); strings.Contains(text, secret) {
			t.Errorf("the key is in %s", text)
		}
	}
}

// A lockedLog is a log that goroutines write to.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// TestObserverPanics has observers that panic on what may happen in the background, where nobody
// could recover: nothing ends, and it is logged once.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	slots := func(t *testing.T, lim *Limiter) *Reservation {
		t.Helper()
		r, err := lim.Acquire(t.Context(), "k", 1)
		if err != nil || !r.Allowed {
			t.Fatal(r, err)
		}
		return r
	}
	for kind, c := range map[EventKind]struct {
		client Client
		opts   []Option
		run    func(t *testing.T, lim *Limiter)
	}{
		EventSlots: {&oneSlot{}, []Option{InFlight(1)}, func(t *testing.T, lim *Limiter) {
			if err := slots(t, lim).Release(t.Context()); err != nil {
				t.Error(err)
			}
		}},
		EventSlotLost: {&oneSlot{away: time.Second}, []Option{InFlight(1)}, func(t *testing.T, lim *Limiter) {
			ctx, cancel := slots(t, lim).Context(t.Context())
			defer cancel()
			time.Sleep(time.Minute)
			if !errors.Is(context.Cause(ctx), ErrSlotLost) {
				t.Error("the slots are not lost")
			}
		}},
		EventOutage: {&oneSlot{away: time.Second}, []Option{InFlight(1)}, func(t *testing.T, lim *Limiter) {
			slots(t, lim)
			time.Sleep(time.Minute) // renewals fail
		}},
		EventLease: {&exchanging{}, []Option{TokenBucket(PerSecond(1000)), Lease(hotFor)}, func(t *testing.T, lim *Limiter) {
			for range lease.HotAsks + 2 {
				if _, err := lim.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Minute) // the lease ends
		}},
	} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log lockedLog
				var heard sync.Map
				lim := MustNew(c.client, "x", append(c.opts, FailClosed(), Logger(slog.New(slog.NewTextHandler(&log, nil))),
					Observe(func(_ context.Context, e Event) {
						if e.Kind == kind {
							heard.Store(e.Kind, true)
							panic("an observer")
						}
					}))...)
				c.run(t, lim)
				_ = lim.Close()
				time.Sleep(time.Minute)
				if _, ok := heard.Load(kind); !ok || strings.Count(log.text.String(), "an observer panicked") != 1 {
					t.Errorf("heard %v; logged %s", ok, log.text.String())
				}
			})
		})
	}
}

// TestFallbackOnOnce has Limiters of several algorithms, derived from one: its observer hears once
// of an outage, and that of another Limiter over the client, too.
func TestFallbackOnOnce(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	var mu sync.Mutex
	heard := make(map[string]int)
	observer := Observe(func(_ context.Context, e Event) {
		if e.Kind == EventFallbackOn {
			mu.Lock()
			defer mu.Unlock()
			heard[e.Limiter]++
		}
	})
	quiet := Logger(slog.New(slog.DiscardHandler))
	one, other := MustNew(client, "one", TokenBucket(PerHour(9)), observer, quiet), MustNew(client, "other", TokenBucket(PerHour(9)), observer, quiet)
	defer func() { _, _ = one.Close(), other.Close() }()
	derived, err := one.With(FixedWindow(PerHour(9)))
	if err != nil {
		t.Fatal(err)
	}
	for _, lim := range []*Limiter{derived, one, other} {
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != SourceFallback {
			t.Error(res, err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if heard["one"] != 1 || heard["other"] != 1 {
		t.Errorf("heard %v, want each once", heard)
	}
}
