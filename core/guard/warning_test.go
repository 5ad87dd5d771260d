package guard_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// logged returns an option that keeps what is logged.
func logged() (core.Option, *check.Log) {
	log := new(check.Log)
	return core.Logger(slog.New(slog.NewTextHandler(log, nil))), log
}

// TestFailuresAreCounted has requests fail as often as clients like: a line a minute says how many did.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	fails := errors.New("it fails")
	for message, c := range map[string]struct {
		key    keyfunc.Func
		option guard.Option
	}{
		"the key function failed": {func(keyfunc.Request) (string, error) { return "", fails }, guard.HeadersOnDenial()},
		"LimiterFor failed":       {keyfunc.IP(), guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return nil, fails })},
	} {
		synctest.Test(t, func(t *testing.T) {
			logger, log := logged()
			h := httplimit.Middleware(core.MustNewMemory("api", core.FixedWindow(core.PerDay(10)), logger), c.key, c.option)(http.NotFoundHandler())
			for range 181 { // the last comes after three minutes
				if w := get(h, "/"); w.Code != http.StatusInternalServerError {
					t.Fatal(w.Code)
				}
				time.Sleep(time.Second)
			}
			for part, want := range map[string]int{message: 4, "it fails": 4, "limiter=api": 4, "level=ERROR": 4, "requests=1 ": 1, "requests=60 ": 3} {
				if n := log.Count(part); n != want {
					t.Errorf("%s: %q is logged %d times, want %d: %s", message, part, n, want, log)
				}
			}
		})
	}
}
