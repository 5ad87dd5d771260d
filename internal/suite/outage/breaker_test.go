package outage

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// errBroken is the failure of a client whose switch says so: at once, and so no timeout.
var errBroken = errors.New("the client is broken")

// A switchable is a hook of a client that can fail or panic instead of sending a command.
type switchable struct {
	fails, panics atomic.Bool
	panicked      atomic.Int64 // how often
}

// DialHook changes nothing.
func (s *switchable) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook fails as the switches say.
func (s *switchable) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch {
		case s.panics.Load():
			s.panicked.Add(1)
			panic(errBroken)
		case s.fails.Load():
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook changes nothing.
func (s *switchable) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// withSwitch runs f with either kind of client of one server, each with a switch.
func withSwitch(t *testing.T, f func(t *testing.T, rdb *redis.Client, client *switchable)) {
	t.Helper()
	server := redistest.Server(t)
	for _, contextTimeout := range []bool{false, true} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: contextTimeout})
			t.Cleanup(func() { _ = rdb.Close() })
			client := &switchable{}
			rdb.AddHook(client)
			f(t, rdb, client)
		})
	}
}

// Two failures are tolerated each time, however often, as long as Redis answers between them: three in a row are an
// outage. It would notice a success that is not counted as one, so that failures add up over days.
func TestFailuresWithSuccessesBetween(t *testing.T) {
	t.Parallel()
	withSwitch(t, func(t *testing.T, rdb *redis.Client, client *switchable) {
		l, watch := limiter(rdb, "between", core.FailClosed(), core.DenyCache(0), core.Timeout(time.Minute))
		call := func(ok bool) {
			t.Helper()
			client.fails.Store(!ok)
			res, err := l.Allow(t.Context(), "k")
			if ok && (err != nil || res.Source != core.SourceRedis) || !ok && !errors.Is(err, errBroken) {
				t.Errorf("Redis answers: %v; the result: %+v, %v", ok, res, err)
			}
		}
		call(true)
		const rounds = 4
		for range rounds {
			call(false)
			call(false)
			call(true)
		}
		watch.wantOutages(t, 0)
		if n := watch.count(core.EventOutage); n != 2*rounds {
			t.Errorf("%d failures were reported, want %d", n, 2*rounds)
		}
		for range 3 {
			call(false)
		}
		if n := watch.count(core.EventFallbackOn); n != 1 {
			t.Errorf("three failures in a row: the fallback went on %d times, want once", n)
		}
	})
}

// A client that panics in the call that asks whether Redis is back ends nothing: the call is a failed probe, no caller
// sees it, and Redis decides again afterwards. It would notice a panic in a goroutine of the library, which ends the process,
// and a breaker that waits for the outcome of that probe for ever.
func TestPanicWhileHalfOpen(t *testing.T) {
	t.Parallel()
	withSwitch(t, func(t *testing.T, rdb *redis.Client, client *switchable) {
		t.Parallel()
		l, watch := limiter(rdb, "panic", core.FailClosed(), core.Timeout(time.Minute))
		awaitRedis(t, l, "k")
		client.fails.Store(true)
		for range 3 {
			if res, err := l.Allow(t.Context(), "k"); !errors.Is(err, errBroken) {
				t.Fatalf("%+v, %v; want the client's error", res, err)
			}
		}
		client.panics.Store(true)
		before := client.panicked.Load()
		check.Eventually(t, "two probes panic", func() bool {
			if res, err := l.Allow(t.Context(), "k"); !errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%+v, %v; want ErrUnavailable", res, err)
			}
			return client.panicked.Load() >= before+2
		})
		client.panics.Store(false)
		client.fails.Store(false)
		awaitRedis(t, l, "k")
		watch.wantOutages(t, 1)
	})
}

// An observer that panics when it hears of an outage ends nothing: not the process, though that is in the background, and not the
// probes. Other limiters over the client hear of the outage, and it is logged once.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) {
		e := newEnv(t, setup{})
		w := newWatcher()
		l := core.MustNew(e.rdb, "panics", core.FixedWindow(core.PerHour(limit)), core.FailOpen(), core.Timeout(timeout), core.Logger(slog.New(w)),
			core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind != core.EventDecision && e.Kind != core.EventScriptLoad && e.Kind != core.EventOutage {
					panic("an observer's own mistake")
				}
			}))
		other, watch := limiter(e.rdb, "other", core.FailOpen(), core.Timeout(timeout))
		for range 2 {
			awaitRedis(t, l, "k")
			awaitRedis(t, other, "k")
			e.proxy.Silence()
			before := watch.probes()
			check.Eventually(t, "a probe is made", func() bool {
				if res, err := l.Allow(t.Context(), "k"); err != nil || res.Source != core.SourceNone {
					t.Errorf("during the outage: %+v, %v", res, err)
				}
				return watch.probes() > before
			})
			e.proxy.Pass()
		}
		awaitRedis(t, l, "k")
		awaitRedis(t, other, "k") // only what is still used hears of it
		if on, off := watch.count(core.EventFallbackOn), watch.count(core.EventFallbackOff); on != 2 || off != 2 {
			t.Errorf("the other limiter heard of %d outages and %d ends, want 2 of each", on, off)
		}
		if lines := w.logged(); lines[slog.LevelError] != 1 || lines[slog.LevelWarn] != 2 || lines[slog.LevelInfo] != 2 {
			t.Errorf("log lines %v, want an ERROR, and a WARN and an INFO for each outage", lines)
		}
	})
}
