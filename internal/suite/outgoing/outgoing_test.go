// Package outgoing tests httplimit.Transport: several processes call a server over real connections, with a real Redis.
package outgoing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// patient is a Timeout for busy machines.
const patient = time.Minute

// everything gives all requests the same key.
func everything(*http.Request) string { return "partner" }

// process returns the parts that another process would have: a client of Redis with a Limiter, and an HTTP client.
func process(t *testing.T, redis *redistest.Instance, limit core.Option, opts ...httplimit.TransportOption) (*core.Limiter, *http.Client) {
	t.Helper()
	lim := core.MustNew(redis.Client(t), "partner", limit, core.Ban(), core.FailOpen(), core.Timeout(patient))
	base := &http.Transport{}
	t.Cleanup(func() {
		_ = lim.Close()
		base.CloseIdleConnections()
	})
	return lim, &http.Client{Transport: httplimit.Transport(lim, everything, append(opts, httplimit.Base(base))...)}
}

// server starts a server and returns its URL.
func server(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// get sends a request, reads the response to its end, and returns its status.
func get(ctx context.Context, c *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// TestAllProcessesHoldBack makes the server tell one process to wait. No process sends a request before that time is over,
// and then all waiting requests are served.
func TestAllProcessesHoldBack(t *testing.T) {
	t.Parallel()
	const pause = 1500 * time.Millisecond
	var answered atomic.Pointer[time.Time]
	var soon, served atomic.Int64
	url := server(t, func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		if answered.CompareAndSwap(nil, &now) {
			w.Header().Set("Retry-After-Ms", fmt.Sprint(pause.Milliseconds()))
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if now.Sub(*answered.Load()) < pause {
			soon.Add(1)
		}
		served.Add(1)
	})
	redis := redistest.Server(t)
	limit := core.TokenBucket(core.PerSecond(1000))
	lim, one := process(t, redis, limit)
	_, two := process(t, redis, limit)
	if status, err := get(t.Context(), one, url); status != http.StatusTooManyRequests || err != nil {
		t.Fatalf("the first request: got status %d, %v; want 429", status, err)
	}
	// A shorter time from another response does not shorten the pause.
	if err := lim.BlockAtLeast(t.Context(), "partner", time.Millisecond); err != nil {
		t.Error(err)
	}
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			if status, err := get(t.Context(), []*http.Client{one, two}[i%2], url); status != http.StatusOK || err != nil {
				t.Errorf("a request after the pause: got status %d, %v; want 200", status, err)
			}
		})
	}
	calls.Wait()
	if soon.Load() > 0 || served.Load() != 40 {
		t.Errorf("%d of %d requests came too soon, want 0 of 40", soon.Load(), served.Load())
	}
}

// TestHoldsBackWithoutRedis stops Redis before the server tells this process to wait, with an outage policy that admits
// everything: this process waits nevertheless.
func TestHoldsBackWithoutRedis(t *testing.T) {
	t.Parallel()
	const pause = time.Second
	var answered atomic.Pointer[time.Time]
	url := server(t, func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		switch before := answered.Swap(&now); {
		case before == nil:
			w.Header().Set("Retry-After-Ms", fmt.Sprint(pause.Milliseconds()))
			w.WriteHeader(http.StatusTooManyRequests)
		case now.Sub(*before) < pause:
			t.Errorf("the next request came after %v, want %v", now.Sub(*before), pause)
		}
	})
	redis := redistest.Server(t)
	_, client := process(t, redis, core.TokenBucket(core.PerSecond(1000)))
	redis.Stop()
	for _, want := range []int{http.StatusTooManyRequests, http.StatusOK} {
		if status, err := get(t.Context(), client, url); status != want || err != nil {
			t.Errorf("got status %d, %v; want %d", status, err, want)
		}
	}
}

// TestRetriesOverOneConnection makes the server deny a request with a body. The request is sent again, whole, over the same
// connection, and the caller does not see the denial.
func TestRetriesOverOneConnection(t *testing.T) {
	t.Parallel()
	var connections, calls atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if string(text) != "a body" || err != nil {
			t.Errorf("the server read the body %q, %v; want %q", text, err, "a body")
		}
		if calls.Add(1) < 3 {
			w.Header().Set("Retry-After-Ms", "20")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, strings.Repeat("not now ", 1000))
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	_, client := process(t, redistest.Server(t), core.TokenBucket(core.PerSecond(1000)), httplimit.Retries(2))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK || calls.Load() != 3 || connections.Load() != 1 {
		t.Errorf("got status %d after %d calls over %d connections, want 200 after 3 calls over 1", response.StatusCode, calls.Load(), connections.Load())
	}
}

// TestRedirectsCount makes a response redirect the client: the request that follows is charged, too.
func TestRedirectsCount(t *testing.T) {
	t.Parallel()
	url := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	})
	lim, client := process(t, redistest.Server(t), core.FixedWindow(core.PerHour(10)))
	if status, err := get(t.Context(), client, url); status != http.StatusOK || err != nil {
		t.Fatalf("got status %d, %v; want 200", status, err)
	}
	if res, err := lim.Peek(t.Context(), "partner"); err != nil || res.Remaining != 8 {
		t.Errorf("Peek: got %+v, %v; want 8 remaining", res, err)
	}
}

// TestSlotLost makes Redis lose a slot while the client waits for the response: the request is aborted, because another
// process may have sent one by now.
func TestSlotLost(t *testing.T) {
	t.Parallel()
	came, leave := make(chan bool, 1), make(chan bool)
	url := server(t, func(_ http.ResponseWriter, r *http.Request) {
		came <- true
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	defer close(leave)
	redis := redistest.Server(t)
	_, client := process(t, redis, core.InFlight(1, core.SlotTTL(time.Second)))
	go func() {
		<-came
		redis.Client(t).FlushAll(context.Background())
	}()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	if status, err := get(ctx, client, url); !errors.Is(err, core.ErrSlotLost) {
		t.Errorf("got status %d, %v; want ErrSlotLost", status, err)
	}
}
