package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// No login is tried while Redis cannot count it.
func ExampleFailClosed() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerMinute(5)), core.FailClosed())

	if _, err := lim.Allow(context.Background(), "user:alice"); errors.Is(err, core.ErrUnavailable) {
		fmt.Println("try again soon")
	}
}

// Each of four processes enforces a quarter of the limit while Redis is down.
func ExampleFailLocal() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.FailLocal(), core.Processes(4))
}

// What only smooths traffic may let everything pass while Redis is down.
func ExampleFailOpen() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "search", core.TokenBucket(core.PerMinute(100)), core.FailOpen(), core.Timeout(50*time.Millisecond))
}

// Behind an autoscaler: rather too many replicas than too few, as each enforces its
// share while Redis is down.
func ExampleProcesses() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Processes(10)) // 10 per minute in each
}

// A request that Redis does not decide on within 50 ms is decided on without it.
func ExampleTimeout() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Timeout(50*time.Millisecond))
}

func ExampleLogger() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	_ = core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Logger(logger))
}

func ExampleObserve() {
	var denied atomic.Int64
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(2)),
		core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision && !e.Result.Allowed {
				denied.Add(1)
			}
		}))
	if err != nil {
		log.Fatal(err)
	}
	for range 5 {
		_, _ = lim.Allow(context.Background(), "user:alice")
	}
	fmt.Println(denied.Load(), "denied")
	// Output: 3 denied
}

// An Event has all that a metric's labels need, and no key.
func ExampleEvent() {
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(2)),
		core.Observe(func(_ context.Context, e core.Event) {
			fmt.Println(e.Limiter, e.Kind, e.Result.Allowed, e.Cost, e.Result.Source)
		}))
	if err != nil {
		log.Fatal(err)
	}
	_, _ = lim.AllowN(context.Background(), "user:alice", 2)
	_, _ = lim.Allow(context.Background(), "user:alice")
	// Output:
	// api decision true 2 memory
	// api decision false 1 memory
}

// Alerts go by the kind: one event says that Redis is given up, one that it is
// back.
func ExampleEventKind() {
	for _, kind := range []core.EventKind{core.EventDecision, core.EventOutage, core.EventFallbackOn, core.EventFallbackOff} {
		fmt.Println(kind)
	}
	// Output:
	// decision
	// outage
	// fallback_on
	// fallback_off
}

// An adapter can pass on an Event: here, that a request carried no key.
func ExampleLimiter_Emit() {
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(2)),
		core.Observe(func(_ context.Context, e core.Event) { fmt.Println(e.Limiter, e.Kind) }))
	if err != nil {
		log.Fatal(err)
	}
	lim.Emit(context.Background(), core.Event{Kind: core.EventKeyFallback})
	// Output: api key_fallback
}

// Who decided: Redis, or this process while Redis does not answer.
func ExampleSource() {
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerHour(2)))
	if err != nil {
		log.Fatal(err)
	}
	res, _ := lim.Allow(context.Background(), "user:alice")
	switch res.Source {
	case core.SourceRedis, core.SourceDenyCache, core.SourceLease:
		fmt.Println("counted by all processes together")
	case core.SourceMemory, core.SourceFallback:
		fmt.Println("counted by this process alone")
	case core.SourceNone:
		fmt.Println("not counted")
	}
	// Output: counted by this process alone
}
