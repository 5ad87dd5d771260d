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

// limited serves h behind a limit of one slot and ten units. It returns the limiter, the statuses with which CountIf
// was called, and the address of the server.
func limited(t *testing.T, h fiber.Handler) (lim *core.Limiter, counted <-chan int, url string) {
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
	t.Cleanup(func() { // the server is closed first, because it waits for the requests
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

// left returns how many slots and units are left.
func left(t *testing.T, lim *core.Limiter) []int64 {
	t.Helper()
	return limits.Left(t, lim, keyfunc.ForIP(netip.MustParseAddr("127.0.0.1")))
}

// TestTimeout makes Fiber's Timeout answer while the handler continues to use the fiber.Ctx. For the limiter, the request must end when the
// Timeout answers, once, with the status that the client gets.
func TestTimeout(t *testing.T) {
	for name, onTimeout := range map[string]fiber.Handler{
		"default":   nil,
		"an error":  func(fiber.Ctx) error { return fiber.ErrBadGateway }, // the error is not sent
		"an answer": func(c fiber.Ctx) error { return c.Status(http.StatusGatewayTimeout).SendString("too late") },
	} {
		t.Run(name, func(t *testing.T) {
			goOn, done := make(chan struct{}), make(chan struct{})
			lim, counted, url := limited(t, timeout.New(func(c fiber.Ctx) error {
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
			if got := <-counted; status < http.StatusRequestTimeout || got != status {
				t.Errorf("CountIf got %d, want %d, the client's status, 408 or more", got, status)
			}
			if got := left(t, lim); !slices.Equal(got, []int64{1, 9}) {
				t.Errorf("%d slots and units are left, want 1 and 9", got)
			}
			close(goOn)
			<-done
			if len(counted) > 0 {
				t.Errorf("CountIf was called again, with %d, want one call", <-counted)
			}
		})
	}
}

// TestSSE streams with Fiber's SSE, which uses the fiber.Ctx after the handler has returned: the slot must be held, and the cost may be set,
// until the stream ends.
func TestSSE(t *testing.T) {
	var peek func() []int64
	lim, counted, url := limited(t, func(c fiber.Ctx) error {
		c.Locals("user", "alice")
		return sse.New(sse.Config{DisableHeartbeat: true, Handler: func(c fiber.Ctx, stream *sse.Stream) error {
			for i := range 1000 { // while the middleware returns
				if c.Locals("user") != "alice" || c.Context().Err() != nil {
					return io.ErrUnexpectedEOF
				}
				fiberlimit.SetCost(c, int64(i%7))
			}
			if got := peek(); !slices.Equal(got, []int64{0, 9}) {
				t.Errorf("%d slots and units are left while the stream continues, want 0 and 9", got)
			}
			return stream.Event(sse.Event{Data: "whole"})
		}})(c)
	})
	peek = func() []int64 { return left(t, lim) }
	status, body := get(t, url)
	if got := <-counted; status != http.StatusOK || got != status || !strings.Contains(body, "data: whole") {
		t.Errorf("CountIf got %d, and the client got %d, %q; want 200 for both, and the whole stream", got, status, body)
	}
	check.Eventually(t, "the slot is free, and the last cost is charged", func() bool {
		return slices.Equal(left(t, lim), []int64{1, 10 - 999%7})
	})
}
