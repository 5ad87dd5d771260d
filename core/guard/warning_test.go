package guard_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// logged returns an option that sets a Logger, and the log.
func logged() (core.Option, *check.Log) {
	log := new(check.Log)
	return core.Logger(slog.New(slog.NewTextHandler(log, nil))), log
}

// TestFailuresAreCounted checks that failing requests cannot flood the log: one line per minute says how many requests have failed.
// A wrong limit is logged only once.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	fails, minutely := errors.New("it fails"), map[string]int{"it fails": 4, "limiter=api": 4, "level=ERROR": 4, "requests=1 ": 1, "requests=60 ": 3}
	for message, c := range map[string]struct {
		key    keyfunc.Func
		option guard.Option
		logged map[string]int // how many times each part of a line is logged
	}{
		"the key function failed": {func(keyfunc.Request) (string, error) { return "", fails }, guard.HeadersOnDenial(), minutely},
		"LimiterFor failed":       {keyfunc.IP(), guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return nil, fails }), minutely},
		"a wrong limit in LimiterFor": {keyfunc.IP(), guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) {
			return core.MustNewMemory("plans", core.FixedWindow(core.PerHour(10))).With(core.FixedWindow(core.PerHour(-7)))
		}), map[string]int{"-7/1h": 1, "limiter=api": 1, "level=ERROR": 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			logger, log := logged()
			h := httplimit.Middleware(core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)), logger), c.key, c.option)(http.NotFoundHandler())
			for range 181 { // the last request comes after three minutes
				if w := get(h, "/"); w.Code != http.StatusInternalServerError || w.Header().Get("X-RateLimit-Limit") != "" {
					t.Fatalf("got status %d and the headers %v, want 500 and no limit", w.Code, w.Header())
				}
				time.Sleep(time.Second)
			}
			for part, want := range c.logged {
				if n := log.Count(part); n != want {
					t.Errorf("%s: %q is logged %d times, want %d: %s", message, part, n, want, log)
				}
			}
			if n, want := log.Count(message), log.Count("level=ERROR"); n != want {
				t.Errorf("%d lines have the message %q, want all %d: %s", n, message, want, log)
			}
		})
	}
}

// TestCutOff checks that a warning is logged if a request waits for longer than the WriteTimeout of the server, which then closes the
// connection without an answer. Package httpsuite checks other adapters.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server   *http.Server
		deadline time.Duration // of the request; 0 without one
		lines    int           // how many warnings are logged
	}{
		"less":                       {&http.Server{WriteTimeout: 5 * time.Second}, 0, 1},
		"as much":                    {&http.Server{WriteTimeout: 10 * time.Second}, 0, 0},
		"any":                        {&http.Server{}, 0, 0},
		"no server":                  {nil, 0, 0},
		"a deadline before":          {&http.Server{WriteTimeout: 5 * time.Second}, 3 * time.Second, 0},
		"a deadline that is too far": {&http.Server{WriteTimeout: 5 * time.Second}, 7 * time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			logger, log := logged()
			lim := core.MustNewMemory("api", core.LeakyBucket(core.Per(1, 10*time.Second), core.Burst(9)), logger)
			defer func() { _ = lim.Close() }()
			h := httplimit.Middleware(lim, keyfunc.Global())(http.NotFoundHandler())
			get(h, "/")
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), http.ServerContextKey, c.server))
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
			}
			defer cancel()
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			}
			if n := strings.Count(log.String(), "\n"); n != c.lines || log.Count("WriteTimeout, 5s") != n {
				t.Errorf("%s: %d warnings are logged, want %d: %s", name, n, c.lines, log)
			}
		})
	}
}
