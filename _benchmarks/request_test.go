package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// newRequest returns a request that came through two proxies and has an API key.
func newRequest() *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/a", nil)
	r.RemoteAddr = "203.0.113.5:4711"
	r.Header.Set("X-Forwarded-For", "192.0.2.1, 198.51.100.7, 203.0.113.9")
	r.Header.Set("X-Api-Key", "4f1b7b0c9d2e4a6f8e1c3b5d7f9a0b2c")
	return r
}

// BenchmarkKey measures the functions that make a key from a request.
func BenchmarkKey(b *testing.B) {
	for _, c := range []struct {
		name string
		key  keyfunc.Func
	}{
		{"ip", keyfunc.IP()},
		{"ip-behind-proxies", keyfunc.IP(keyfunc.TrustedProxies("203.0.113.0/24"))},
		{"api-key", keyfunc.APIKey("X-API-Key", keyfunc.Known(func(string) bool { return true }))},
		{"join", keyfunc.Join(keyfunc.IP(), keyfunc.Method())},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httplimit.Request(newRequest())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.key(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheck measures a guard over a limiter in memory: making the key, the decision and the headers,
// without a framework.
func BenchmarkCheck(b *testing.B) {
	for _, limit := range []struct {
		name    string
		options []core.Option
		status  int
	}{
		{"admitted", []core.Option{core.TokenBucket(core.PerSecond(1e9))}, 0},
		{"denied", []core.Option{core.TokenBucket(core.PerDay(1))}, http.StatusTooManyRequests},
		{"two-limits", []core.Option{core.TokenBucket(core.PerSecond(1e9)), core.FixedWindow(core.PerDay(1e9))}, 0},
	} {
		for _, headers := range []struct {
			name   string
			option guard.Option
		}{
			{"no-headers", guard.NoHeaders()},
			{"x-ratelimit", guard.Headers(guard.XRateLimit)},
			{"ietf", guard.Headers(guard.IETF)},
			{"both", guard.Headers(guard.XRateLimit | guard.IETF)},
		} {
			b.Run(limit.name+"/"+headers.name, func(b *testing.B) {
				const framework = adapter.Adapter[*http.Request, http.Handler]("httplimit")
				g, _ := framework.New(core.MustNewMemory("api", limit.options...), keyfunc.IP(), headers.option)
				r, h := httplimit.Request(newRequest()), http.Header{}
				g.Check(r, h, &adapter.RequestState{}) // uses up a limit of one
				b.ReportAllocs()
				for b.Loop() {
					if v := g.Check(r, h, &adapter.RequestState{}); v.Status != limit.status {
						b.Fatal(v)
					}
				}
			})
		}
	}
}

// BenchmarkMiddleware measures a request through the middleware of net/http, and the same handler without it. If
// the cost is settled, it is reserved before the handler runs and charged afterwards.
func BenchmarkMiddleware(b *testing.B) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for name, handler := range map[string]http.Handler{
		"bare":    served,
		"limited": httplimit.Middleware(core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1e9))), keyfunc.IP())(served),
		"settled": httplimit.Middleware(core.MustNewMemory("api", core.TokenBucket(core.PerSecond(1e9))), keyfunc.IP(), guard.CostAfter())(served),
	} {
		b.Run(name, func(b *testing.B) {
			r, w := newRequest(), discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				handler.ServeHTTP(w, r)
			}
		})
	}
}
