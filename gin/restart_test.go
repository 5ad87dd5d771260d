package ginlimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestHandleContext makes a handler restart the routing, as an internal redirect does. A request that holds a slot must not take another
// one, and a warning must be logged if a request is charged twice.
func TestHandleContext(t *testing.T) {
	t.Parallel()
	gin.SetMode(gin.ReleaseMode)
	for name, c := range map[string]struct {
		limits  core.Option
		warning string
		used    map[string]int64 // the units of each limit that are charged
		options []guard.Option
	}{
		"slot":   {core.InFlight(1), "a request is counted twice", nil, nil},
		"window": {core.FixedWindow(core.PerHour(100)), "a response had X-RateLimit-Limit before this limiter decided", map[string]int64{"fixed-1h": 6}, nil},
		"prefix": {
			core.FixedWindow(core.PerHour(100)), "a response had X-Rate-Limit-Limit before this limiter decided", map[string]int64{"fixed-1h": 6},
			[]guard.Option{guard.HeaderPrefix("X-Rate-Limit-")},
		},
		"slot and window": {
			core.Options(core.InFlight(1), core.FixedWindow(core.PerHour(100))), "a request is counted twice", map[string]int64{"fixed-1h": 3}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs bytes.Buffer
			lim := core.MustNewMemory("api", c.limits, core.Logger(slog.New(slog.NewTextHandler(&logs, nil))))
			r := gin.New()
			r.Use(ginlimit.Middleware(lim, keyfunc.IP(), c.options...))
			r.GET("/new", func(c *gin.Context) { c.String(http.StatusOK, "new") })
			r.GET("/old", func(c *gin.Context) {
				c.Request.URL.Path = "/new"
				r.HandleContext(c)
			})
			for range 3 {
				w := httptest.NewRecorder()
				r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/old", nil))
				if w.Code != http.StatusOK || w.Body.String() != "new" {
					t.Errorf("got status %d and the body %q, want 200 and \"new\"", w.Code, w.Body)
				}
			}
			if n := strings.Count(logs.String(), c.warning); n != 1 {
				t.Errorf("%d warnings are logged, want 1: %s", n, logs.String())
			}
			res, err := lim.Peek(t.Context(), keyfunc.ForIP(netip.MustParseAddr("192.0.2.1")))
			if err != nil {
				t.Fatal(err)
			}
			for each := range res.All() {
				if used := each.Limit - each.Remaining; used != c.used[each.LimitName] {
					t.Errorf("%d units of %s are charged, want %d", used, each.LimitName, c.used[each.LimitName])
				}
			}
		})
	}
}
