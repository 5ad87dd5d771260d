package core

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
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/lease"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
)

// TestObserveKeys checks that observers of both kinds are called in the order of the options, and that ObserveKeys receives
// the key of each decision and ban. For other events, the key is empty.
func TestObserveKeys(t *testing.T) {
	t.Parallel()
	var observed []string
	lim, err := NewMemory("api", FixedWindow(PerHour(1)), Ban(time.Hour),
		ObserveKeys(func(_ context.Context, key string, e Event) {
			observed = append(observed, fmt.Sprintf("%v of %q by %s", e.Kind, key, e.Limiter))
		}),
		Observe(func(_ context.Context, e Event) { observed = append(observed, e.Kind.String()) }))
	if err != nil {
		t.Fatal(err)
	}
	_, first := lim.Allow(t.Context(), "user:alice")
	_, second := lim.Allow(t.Context(), "user:alice")
	blocked := lim.Block(t.Context(), "user:bob", time.Hour)
	inside{}.Emit(t.Context(), lim, Event{Kind: EventKeyFallback})
	if err := errors.Join(first, second, blocked); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`decision of "user:alice" by api`, "decision",
		`ban of "user:alice" by api`, "ban", `decision of "user:alice" by api`, "decision",
		`ban of "user:bob" by api`, "ban",
		`key_fallback of "" by api`, "key_fallback",
	}
	if !slices.Equal(observed, want) {
		t.Errorf("observed %q, want %q", observed, want)
	}
}

// TestFallbackShowsNoKey prints the Event and the Result of a decision by the outage policy, and checks that the key is not
// in them. The conformance suite checks the same for decisions by Redis and in memory.
func TestFallbackShowsNoKey(t *testing.T) {
	t.Parallel()
	const secret = "alice@example.org"
	var (
		mu     sync.Mutex // a background goroutine notifies of the outage
		events []Event
	)
	lim := MustNew(fakeClient(func(redis.Cmder) error { return errors.New("away") }), "api", TokenBucket(PerMinute(9)),
		Observe(func(_ context.Context, e Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}))
	defer func() { _ = lim.Close() }()
	res, err := lim.Allow(t.Context(), secret)
	if err != nil || res.Source != SourceFallback {
		t.Fatalf("got %+v, %v; want a decision by the fallback", res, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, e := range append(events, Event{Result: res}) {
		if text := fmt.Sprintf("%v %+v %#v %v %+v", e, e, e, e.Result, &e.Result); strings.Contains(text, secret) {
			t.Errorf("the key %q is in the text %s", secret, text)
		}
	}
}

// TestObserverPanics checks observers that panic at events of background goroutines, where a panic would end the program:
// the Limiter recovers it, logs it once, and calls the other observers.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	acquire := func(lim *Limiter) error {
		r, err := lim.Acquire(context.Background(), "k", 1)
		time.Sleep(time.Minute) // renewals fail, and the slot is lost
		return errors.Join(err, r.Release(context.Background()))
	}
	allow := func(lim *Limiter) (err error) {
		for range lease.HotDecisions + 2 {
			_, e := lim.Allow(context.Background(), "k")
			err = errors.Join(err, e)
		}
		time.Sleep(time.Minute) // the lease ends
		return err
	}
	for kind, c := range map[EventKind]struct {
		client Client
		opts   []Option
		run    func(lim *Limiter) error
	}{
		EventSlots:    {&oneSlot{}, []Option{InFlight(1)}, acquire},
		EventSlotLost: {&oneSlot{away: time.Second}, []Option{InFlight(1)}, acquire},
		EventOutage:   {&oneSlot{away: time.Second}, []Option{InFlight(1)}, acquire},
		EventLease:    {&exchanging{}, []Option{TokenBucket(PerSecond(1000)), Lease(hotFor)}, allow},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			calls := 0
			observer := func(_ context.Context, e Event) {
				if e.Kind == kind {
					calls++
					panic("its own mistake")
				}
			}
			c.opts = append(c.opts, FailClosed(), Logger(slog.New(slog.NewTextHandler(&log, nil))), Observe(observer), Observe(observer))
			lim := MustNew(c.client, "x", c.opts...)
			if err := c.run(lim); err != nil {
				t.Errorf("%v: got error %v, want none", kind, err)
			}
			_ = lim.Close()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), "an observer panicked"); n != 1 {
				t.Errorf("%v: the panic is logged %d times, want 1: %s", kind, n, log.String())
			}
			if calls%2 != 0 {
				t.Errorf("%v: %d calls of two observers, want as many of each: one observer's panic kept the other from being called", kind, calls)
			}
		})
	}
}

// A panickingHandler is the Handler of a logger. It panics at each message, and counts the messages.
type panickingHandler struct {
	slog.Handler

	messages *atomic.Int64
}

func (panickingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h panickingHandler) Handle(context.Context, slog.Record) error {
	h.messages.Add(1)
	panic("its own mistake")
}

// TestLoggerPanics checks a logger that panics in the background, where a panic would end the program: at the beginning and
// the end of an outage, and when the panic of an observer is logged. The observers are notified all the same.
func TestLoggerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		client := fakeClient(func(cmd redis.Cmder) error {
			if away.Load() {
				return errors.New("away")
			}
			return set(cmd, 1, 1_800_000_000_000_000, 0, 1_800_000_000_000_000, 60_000_000)
		})
		var messages atomic.Int64
		var mu sync.Mutex
		var events []EventKind
		lim := MustNew(client, "x", FixedWindow(PerMinute(100)), FailOpen(), Logger(slog.New(panickingHandler{nil, &messages})),
			Observe(func(_ context.Context, e Event) {
				if e.Kind == EventDecision {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if events = append(events, e.Kind); e.Kind == EventFallbackOn {
					panic("a mistake of the observer")
				}
			}))
		for i := range 20 {
			away.Store(i >= 5 && i < 10)
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Errorf("call %d: got error %v, want none", i, err)
			}
			time.Sleep(time.Second)
		}
		_ = lim.Close()
		mu.Lock()
		defer mu.Unlock()
		want := []EventKind{EventOutage, EventBreaker, EventFallbackOn, EventBreaker, EventFallbackOff}
		if !slices.Equal(events, want) {
			t.Errorf("observed %v, want %v", events, want)
		}
		if n := messages.Load(); n != 4 { // the call that failed, the beginning, the panic of the observer, and the end
			t.Errorf("%d messages were logged, want 4", n)
		}
	})
}

// TestFallbackOnOnce checks that an observer is notified of an outage once, although both a Limiter and another one that was
// derived from it by With use the fallback.
func TestFallbackOnOnce(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	var outages atomic.Int32
	lim := MustNew(client, "x", TokenBucket(PerHour(9)), Observe(func(_ context.Context, e Event) {
		if e.Kind == EventFallbackOn {
			outages.Add(1)
		}
	}))
	defer func() { _ = lim.Close() }()
	derived, err := lim.With(FixedWindow(PerHour(9)))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []*Limiter{derived, lim} {
		if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != SourceFallback {
			t.Errorf("got %+v, %v; want a decision by the fallback", res, err)
		}
	}
	check.Eventually(t, "the observer is notified of the outage", func() bool { return outages.Load() > 0 }) // by a background goroutine
	_ = lim.Close()
	if n := outages.Load(); n != 1 {
		t.Errorf("the observer was notified of the outage %d times, want once", n)
	}
}

// TestOverload checks a process that makes more calls than Redis answers in time, for several minutes. The events must count
// every call that could not be sent, with at most one event per second, and the log must have one line per minute. Redis is
// healthy, so no event may blame it.
func TestOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const duration, every, callers = 150 * time.Second, 500 * time.Millisecond, 450
		client := redis.NewClient(&redis.Options{})
		defer func() { _ = client.Close() }()
		client.AddHook(gate.Around(func(cmds []redis.Cmder, _ func() error) error { // admits everything, after 200 ms
			for _, cmd := range cmds {
				switch eval, counts := cmd.(*redis.Cmd); {
				case counts: // the script that counts the keys that it sees
					eval.SetVal(int64(cmd.Args()[2].(int)))
				case strings.HasPrefix(cmd.Name(), "eval"):
					time.Sleep(200 * time.Millisecond)
					_ = set(cmd, slices.Repeat([]int64{1, 1_800_000_000_000_000, 0, 0, 0}, cmd.Args()[2].(int))...)
				}
			}
			return nil
		}))
		var events, unsent, failed, blamed atomic.Int64
		var log strings.Builder
		lim := MustNew(client, "x", TokenBucket(PerSecond(1e6)), FailClosed(), MaxBatch(10), Logger(slog.New(slog.NewTextHandler(&log, nil))),
			Observe(func(_ context.Context, e Event) {
				switch {
				case e.Kind == EventOverload && e.Err != nil:
					events.Add(1)
					unsent.Add(e.Cost)
				case e.Kind == EventDecision && e.Err != nil:
					failed.Add(1)
				case e.Kind != EventDecision:
					blamed.Add(1)
				}
			}))
		for begun := time.Now(); time.Since(begun) < duration; time.Sleep(every) {
			for range callers {
				go func() { _, _ = lim.Allow(context.Background(), "k") }()
			}
		}
		time.Sleep(time.Minute)
		_ = lim.Close()
		if n, seconds := events.Load(), int64(duration/time.Second); failed.Load() == 0 || unsent.Load() != failed.Load() || n > seconds || n < seconds/2 {
			t.Errorf("%d events report %d calls that were not sent, want at most %d events that report the %d failed decisions", n, unsent.Load(), seconds, failed.Load())
		}
		if n := blamed.Load(); n > 0 {
			t.Errorf("%d events blame Redis, want none", n)
		}
		if n := strings.Count(log.String(), "this process is overloaded: FailClosed decides"); n != 3 {
			t.Errorf("%d lines are logged, want 3, one per minute: %s", n, log.String())
		}
	})
}
