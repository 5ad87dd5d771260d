package suite_test

import (
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/sse"
	"github.com/gofiber/fiber/v3/middleware/timeout"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// limited serves h behind a limit of one slot and ten units, and returns the limiter, the
// statuses that CountIf was asked about, and the address.
func limited(t *testing.T, h fiber.Handler) (lim *core.Limiter, asked <-chan int, url string) {
	t.Helper()
	lim = core.MustNewMemory("api", core.InFlight(1, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerDay(10)))
	statuses := make(chan int, 10)
	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP(), guard.CostAfter(), guard.CountIf(func(status int) bool {
		statuses <- status
		return true
	})))
	app.Get("/", h)
	server := serveFiber(t, app)
	t.Cleanup(func() { // the server first: it waits for the requests
		server.Close()
		_ = lim.Close()
	})
	return lim, statuses, server.URL
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// left returns what is left of the slots and of the units.
func left(t *testing.T, lim *core.Limiter) []int64 {
	t.Helper()
	return limits.Left(t, lim, keyfunc.ForIP(netip.MustParseAddr("127.0.0.1")))
}

// TestTimeout makes Fiber's Timeout answer while the handler continues with the fiber.Ctx. For the limiter,
// the request ends then, once, with the status that the client gets.
func TestTimeout(t *testing.T) {
	for name, onTimeout := range map[string]fiber.Handler{
		"default":   nil,
		"an error":  func(fiber.Ctx) error { return fiber.ErrBadGateway }, // which is not sent
		"an answer": func(c fiber.Ctx) error { return c.Status(http.StatusGatewayTimeout).SendString("too late") },
	} {
		t.Run(name, func(t *testing.T) {
			goOn, done := make(chan struct{}), make(chan struct{})
			lim, asked, url := limited(t, timeout.New(func(c fiber.Ctx) error {
				defer close(done)
				<-c.Context().Done()
				for {
					select {
					case <-goOn:
						return nil
					default:
						if c.Context().Err() == nil || c.Locals("user") != nil {
							return io.ErrUnexpectedEOF
						}
					}
				}
			}, timeout.Config{Timeout: time.Millisecond, OnTimeout: onTimeout}))
			status, _ := get(t, url)
			if counted := <-asked; status < http.StatusRequestTimeout || counted != status {
				t.Errorf("CountIf was asked about %d, and the client got %d", counted, status)
			}
			if got := left(t, lim); !slices.Equal(got, []int64{1, 9}) {
				t.Errorf("%d slots and units left, want 1 and 9", got)
			}
			close(goOn)
			<-done
			if len(asked) > 0 {
				t.Errorf("CountIf was asked again, about %d", <-asked)
			}
		})
	}
}

// TestSSE streams with Fiber's SSE and the fiber.Ctx after the handler has returned: the slot is held, and
// the cost may be set, until the stream ends.
func TestSSE(t *testing.T) {
	var peek func() []int64
	lim, asked, url := limited(t, func(c fiber.Ctx) error {
		c.Locals("user", "alice")
		return sse.New(sse.Config{DisableHeartbeat: true, Handler: func(c fiber.Ctx, stream *sse.Stream) error {
			for i := range 1000 { // while the middleware returns
				if c.Locals("user") != "alice" || c.Context().Err() != nil {
					return io.ErrUnexpectedEOF
				}
				fiberlimit.SetCost(c, int64(i%7))
			}
			if got := peek(); !slices.Equal(got, []int64{0, 9}) {
				t.Errorf("%d slots and units left while the stream goes on, want 0 and 9", got)
			}
			return stream.Event(sse.Event{Data: "whole"})
		}})(c)
	})
	peek = func() []int64 { return left(t, lim) }
	status, body := get(t, url)
	if counted := <-asked; status != http.StatusOK || counted != status || !strings.Contains(body, "data: whole") {
		t.Errorf("CountIf was asked about %d, and the client got %d, %q", counted, status, body)
	}
	check.Eventually(t, "the slot is free, and the last cost is charged", func() bool {
		return slices.Equal(left(t, lim), []int64{1, 10 - 999%7})
	})
}
