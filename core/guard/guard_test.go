package guard_test

import (
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
