package httpsuite

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// IPAllocates checks that the key of a direct peer takes at most this number of allocations. r is the request that the
// adapter's Request returns.
func IPAllocates(t *testing.T, r keyfunc.Request, most float64) {
	t.Helper()
	key := keyfunc.IP()
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > most {
		t.Errorf("the key takes %v allocations, want at most %v", n, most)
	}
}

// Unanswered makes outer middleware swallow an error of the handler, or net/http recover a panic, for which nothing is
// written. Such requests must be settled, and must not hold their units forever. An error that nobody has answered counts,
// because for the adapter it looks like an error that is answered after the client has closed its side of the connection.
// app returns an app with a middleware around the limit that swallows all errors.
func Unanswered(t *testing.T, app func(limit Limit, fails func() error) http.Handler) {
	t.Helper()
	for _, c := range []struct {
		name   string
		fails  func() error
		judged []int // the statuses with which CountIf is called
		left   int64
	}{
		{"error", func() error { return errors.New("of the handler") }, nil, 9},
		{"panic", func() error { panic(http.ErrAbortHandler) }, []int{http.StatusInternalServerError}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = lim.Close() })
			var saw statusLog
			h := app(Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{saw.counts(func(int) bool { return false })}}, c.fails)
			ctx, end := context.WithCancel(t.Context())
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
			}()
			end()
			check.Eventually(t, "the request is settled", func() bool {
				held, err := inside.Core.HeldOf(t.Context(), lim, "ip:192.0.2.1")
				return err == nil && held["fixed-1d"] == 0
			})
			if left := limits.Left(t, lim, "ip:192.0.2.1")[0]; left != c.left {
				t.Errorf("%d units are left, want %d", left, c.left)
			}
			if got := saw.all(); !slices.Equal(got, c.judged) {
				t.Errorf("CountIf was called with %v, want %v", got, c.judged)
			}
		})
	}
}

// HalfClosed plays a client that guesses passwords, closes its sending side while its request is served, so that the context
// of the request ends, and reads the answer. Each guess must count, however late the application answers it. app returns an
// app in which outer middleware answers the error fails of the handler with 401, after it has called late.
func HalfClosed(t *testing.T, app func(limit Limit, fails error, late func()) http.Handler) {
	t.Helper()
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(2)))
	check.Need(t, err)
	t.Cleanup(func() { _ = lim.Close() })
	failures := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	limit := Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{failures}}
	var client atomic.Pointer[net.TCPConn]
	s := httptest.NewServer(app(limit, errors.New("wrong password"), func() {
		_ = client.Load().CloseWrite()
		time.Sleep(1500 * time.Millisecond) // the server notices the end of the connection long before
	}))
	t.Cleanup(s.Close)
	for i, want := range []int{http.StatusUnauthorized, http.StatusUnauthorized, http.StatusTooManyRequests} {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
		check.Need(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		client.Store(conn.(*net.TCPConn))
		_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		check.Need(t, err)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		check.Need(t, err)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("guess %d: got status %d, want %d", i+1, response.StatusCode, want)
		}
	}
}
