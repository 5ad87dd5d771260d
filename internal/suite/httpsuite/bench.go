package httpsuite

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// Benchmark measures the time that a limit adds to a request: app serves a route without a limit, and behind a limit that
// decides in memory. There are no sockets, so the middleware is the only difference.
func Benchmark(b *testing.B, app func(...Mount) (serve func() (status int))) {
	for name, mounts := range map[string][]Mount{"bare": nil, "limited": {Unlimited(b)}} {
		b.Run(name, func(b *testing.B) {
			serve := app(mounts...)
			b.ReportAllocs()
			for b.Loop() {
				if status := serve(); status != http.StatusOK {
					b.Fatalf("got status %d, want 200", status)
				}
			}
		})
	}
}

// Unlimited returns a limit that no benchmark reaches.
func Unlimited(b *testing.B) Limit {
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerSecond(1e9)))
	if err != nil {
		b.Fatal(err)
	}
	return Limit{Limiter: lim, Key: keyfunc.IP()}
}

// DriveHTTP returns a function that makes h serve the same request again and again.
func DriveHTTP(h http.Handler) (serve func() (status int)) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/a", nil)
	w := &discard{header: http.Header{}}
	return func() int {
		clear(w.header)
		w.status = http.StatusOK
		h.ServeHTTP(w, r)
		return w.status
	}
}

// discard is a response that nobody reads.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header               { return d.header }
func (d *discard) WriteHeader(status int)            { d.status = status }
func (d *discard) Write(b []byte) (int, error)       { return len(b), nil }
func (d *discard) WriteString(s string) (int, error) { return len(s), nil }
