// Package httpsuite holds what every adapter must do over HTTP, as one suite:
// [Exercise] runs the same requests through whatever framework an [Adapter]
// serves with.
package httpsuite

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/embedded"
	"github.com/redislimit/redislimit/keyfunc"
)

// An Adapter serves with one framework.
type Adapter struct {
	// Name is the framework's name.
	Name string
	// Serve starts a server that answers every request with "served", behind the
	// adapter's middleware, and returns its URL. It ends with the test.
	Serve func(t *testing.T, lim *core.Limiter, key keyfunc.Func, opts ...guard.Option) string
}

// UserHeader is what a server of [Adapter.Serve] takes the user from, whom it puts
// into the request's context under UserKey, before the middleware.
const UserHeader = "Demo-User"

// UserKey is a string, because some frameworks take no other key.
var UserKey any = "user"

// start is the instant at which the clock stands in every case.
var start = time.UnixMicro(1_800_000_012_345_678)

// A bench is one case's Redis, with the clock standing.
type bench struct {
	redis  *miniredis.Miniredis
	client *redis.Client
	now    time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	server.SetTime(start)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &bench{server, client, start}
}

func (b *bench) advance(d time.Duration) {
	b.now = b.now.Add(d)
	b.redis.SetTime(b.now)
}

func (b *bench) limiter(limits ...core.Option) *core.Limiter {
	return core.MustNew(b.client, "api", limits...)
}

// An answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// get sends a request with header lines such as "Name: value".
func get(t *testing.T, url string, lines ...string) answer {
	t.Helper()
	return send(t, http.MethodGet, url, lines...)
}

func send(t *testing.T, method, url string, lines ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// wantStatus checks the status, and that the handler ran if and only if it is 200.
func (a answer) wantStatus(t *testing.T, status int) {
	t.Helper()
	if a.status != status || (a.body == "served") != (status == http.StatusOK) {
		t.Errorf("status %d, body %q; want %d", a.status, a.body, status)
	}
}

// wantHeaders checks limit, remaining, reset and retry after, each exactly and
// at most once; "" is absent.
func (a answer) wantHeaders(t *testing.T, limit, remaining, reset, retryAfter string) {
	t.Helper()
	for name, want := range map[string]string{
		"X-RateLimit-Limit": limit, "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": reset, "Retry-After": retryAfter,
	} {
		got := a.header.Values(name)
		if len(got) > 1 || a.header.Get(name) != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
