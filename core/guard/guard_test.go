package guard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleSkip() {
	_ = guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/healthz" }) // pass it to a Middleware
}

func ExampleCost() {
	_ = guard.Cost(func(r keyfunc.Request) int64 { // pass it to a Middleware
		if r.Method() == "POST" {
			return 5
		}
		return 1
	})
}

// Customers of the paid tier have a limiter of their own.
func ExampleLimiterFor() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	paid := core.MustNew(rdb, "paid", core.TokenBucket(core.PerMinute(1000)))

	_ = guard.LimiterFor(func(r keyfunc.Request) *core.Limiter { // pass it to a Middleware
		if r.Value("tier") == "paid" {
			return paid
		}
		return nil // the mounted one
	})
}

// Only failed logins count: who knows the password is not limited.
func ExampleCountIf() {
	_ = guard.CountIf(func(status int) bool { return status == 401 }) // pass it to a Middleware
}

func ExampleDryRun() {
	_ = guard.DryRun() // pass it to a Middleware, look at the decisions, and take it out
}

func ExampleHeaders() {
	_ = guard.Headers(guard.XRateLimit | guard.IETF) // pass it to a Middleware
}

// TestPanics has what would leave a route unlimited.
func TestPanics(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(1)))
	for want, f := range map[string]func(){
		"limiter is nil":      func() { guard.New(nil, keyfunc.IP()) },
		"key function is nil": func() { guard.New(lim, nil) },
		"nil Option":          func() { guard.New(lim, keyfunc.IP(), nil) },
		"Skip(nil)":           func() { guard.Skip(nil) },
		"Cost(nil)":           func() { guard.Cost(nil) },
		"LimiterFor(nil)":     func() { guard.LimiterFor(nil) },
		"CountIf(nil)":        func() { guard.CountIf(nil) },
		"Headers(0)":          func() { guard.Headers(0) },
		"Headers(4)":          func() { guard.Headers(4) },
		"OnDenied(nil)":       func() { guard.OnDenied((func())(nil)) },
		"OnError(nil)":        func() { guard.OnError(nil) },
		"OnDenied has a func": func() {
			guard.Handlers[http.Handler](guard.New(lim, keyfunc.IP(), guard.OnDenied(func() {})))
		},
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) {
					t.Errorf("panic %q, want one that says %s", got, want)
				}
			}()
			f()
		}()
	}
}
