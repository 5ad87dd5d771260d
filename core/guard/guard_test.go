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

// TestPanics has what would leave a route unlimited.
func TestPanics(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	lim := core.MustNew(client, "api", core.TokenBucket(core.PerMinute(1)))
	const adapter, other = guard.Adapter[*http.Request, http.Handler]("httplimit"), guard.Adapter[any, func()]("otherlimit")
	for want, f := range map[string]func(){
		"limiter is nil":      func() { adapter.New(nil, keyfunc.IP()) },
		"key function is nil": func() { adapter.New(lim, nil) },
		"nil Option":          func() { adapter.New(lim, keyfunc.IP(), nil) },
		"Skip(nil)":           func() { guard.Skip(nil) },
		"Cost(nil)":           func() { guard.Cost(nil) },
		"LimiterFor(nil)":     func() { guard.LimiterFor(nil) },
		"LimitFor(nil)":       func() { guard.LimitFor(nil) },
		"Fallback(nil)":       func() { guard.Fallback(nil) },
		"CountIf(nil)":        func() { guard.CountIf(nil) },
		"Headers(0)":          func() { guard.Headers(0) },
		"Headers(4)":          func() { guard.Headers(4) },
		"OnDenied(nil)":       func() { other.OnDenied((func())(nil)) },
		"OnError(nil)":        func() { adapter.OnError(nil) },
		"Key(nil)":            func() { adapter.Key(nil) },
		"OnDenied has a func": func() { adapter.New(lim, keyfunc.IP(), other.OnDenied(func() {})) },
		"otherlimit: Key wants a func(), but the requests of this middleware are guard_test.callRequest over *guard_test.call": func() {
			_, _ = guard.Adapter[func(), func()]("otherlimit").Key(func(func()) (string, error) { return "called", nil })(callRequest{&call{}})
		},
		"httplimit: OnError has a func(), want a http.Handler: use httplimit.OnError": func() {
			adapter.New(lim, keyfunc.IP(), other.OnError(func() {}))
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
