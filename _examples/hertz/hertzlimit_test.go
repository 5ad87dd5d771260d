package hertzlimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cloudwego/hertz/pkg/app"
	"github.com/cloudwego/hertz/pkg/app/server"
	"github.com/cloudwego/hertz/pkg/common/ut"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

type tenantKey struct{}

// byTenant is a key function as users of Hertz write it.
func byTenant(ctx context.Context, c *app.RequestContext) (string, error) {
	route, err := keyfunc.Route()(Request(ctx, c))
	return keyfunc.ForJoin("tenant:"+ctx.Value(tenantKey{}).(string), route), err
}

// TestHertz limits by a value of the context, and checks handlers that end in each way.
func TestHertz(t *testing.T) {
	lim := core.MustNewMemory("api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(2)))
	var counted []int
	h := server.New()
	h.Use(func(ctx context.Context, c *app.RequestContext) {
		defer func() {
			if recover() != nil {
				c.SetStatusCode(http.StatusInternalServerError)
			}
		}()
		c.Next(context.WithValue(ctx, tenantKey{}, "acme"))
	}, Middleware(lim, Key(byTenant), guard.CountIf(func(status int) bool {
		counted = append(counted, status)
		return status < 500
	}), OnDenied(func(_ context.Context, c *app.RequestContext) { _, _ = c.WriteString("slow down") })))
	h.GET("/users/:id", func(ctx context.Context, c *app.RequestContext) {
		res, _ := Result(c)
		switch c.Param("id") {
		case "panics":
			panic("early")
		case "fails":
			c.AbortWithStatus(http.StatusBadGateway)
		default:
			c.String(http.StatusCreated, "%s %v", res.LimitName, ctx.Value(tenantKey{}))
		}
	})
	var got []string
	for _, id := range []string{"1", "panics", "fails", "2", "3"} {
		w := ut.PerformRequest(h.Engine, http.MethodGet, "/users/"+id, nil)
		got = append(got, fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Remaining"), " ", w.Header().Get("Retry-After"), " ", w.Body))
	}
	want := []string{"201 1  fixed-1d acme", "500 0  ", "502 0  ", "201 0  fixed-1d acme", "429 0 86400 slow down"}
	if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(counted) != "[201 500 502 201]" {
		t.Errorf("got %q, want %q; CountIf got %v, want 201, 500, 502 and 201", got, want, counted)
	}
	left := limits.Left(t, lim, keyfunc.ForJoin("tenant:acme", keyfunc.ForRoute("/users/:id")))
	if !slices.Equal(left, []int64{1, 0}) {
		t.Errorf("%d slots and units are left, want 1 and 0", left)
	}
}

// TestContext checks that the context of a request that holds slots is canceled when the request ends. It is canceled, too, when the slots are
// lost.
func TestContext(t *testing.T) {
	var ended func() error
	h := server.New()
	h.Use(Middleware(core.MustNewMemory("api", core.InFlight(1)), keyfunc.IP()))
	h.GET("/", func(ctx context.Context, _ *app.RequestContext) { ended = ctx.Err })
	ut.PerformRequest(h.Engine, http.MethodGet, "/", nil)
	if err := ended(); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has the error %v, want Canceled", err)
	}
}
