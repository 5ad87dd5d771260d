package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestTransportDrip makes the server answer 429 with a body that never ends and arrives byte by byte. This body must delay neither the
// next attempt, which is sent when the Retry-After has passed, nor the release of the slot, for which other requests wait.
func TestTransportDrip(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tries.Add(1) > 1 {
			_, _ = w.Write([]byte("served")) // a client that has left sees nothing
			return
		}
		w.Header().Set("Retry-After-Ms", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
		close(ended)
	}))
	defer server.Close()
	lim := core.MustNewMemory("api", core.InFlight(1))
	client := &http.Client{Transport: httplimit.Transport(lim, func(*http.Request) string { return "k" }, httplimit.Retries(1))}
	began := time.Now()
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || time.Since(began) > time.Minute {
		t.Errorf("got status %d after %v, want 200 within a minute", response.StatusCode, time.Since(began))
	}
	_ = response.Body.Close()
	check.Receive(t, "the connection of the body that drips is closed", ended)
	check.Within(t, time.Minute, "the slot is free", func() bool {
		res, err := lim.Peek(t.Context(), "k")
		return err == nil && res.Allowed
	})
	client.CloseIdleConnections()
	check.Within(t, time.Minute, "no goroutine is left", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "httplimit.drain")
	})
}
