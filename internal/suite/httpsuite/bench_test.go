package httpsuite_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

// BenchmarkAdapters measures what a limit adds to a request: each framework serves a
// route without a limit, and behind one that answers from memory. There are no
// sockets; what differs is the middleware.
func BenchmarkAdapters(b *testing.B) {
	for _, framework := range []struct {
		name string
		app  func(...httpsuite.Mount) (serve func() (status int))
	}{
		{"nethttp", benchNetHTTP},
		{"gin", benchGin},
		{"echo", benchEcho},
		{"fiber", benchFiber},
	} {
		for name, mounts := range map[string][]httpsuite.Mount{"bare": nil, "limited": {unlimited(b)}} {
			b.Run(framework.name+"/"+name, func(b *testing.B) {
				serve := framework.app(mounts...)
				b.ReportAllocs()
				for b.Loop() {
					if status := serve(); status != http.StatusOK {
						b.Fatalf("status %d", status)
					}
				}
			})
		}
	}
}

// BenchmarkDecision is the part of that which is the limiter's own.
func BenchmarkDecision(b *testing.B) {
	limit := unlimited(b)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := limit.Limiter.Allow(b.Context(), "ip:192.0.2.1"); err != nil || !res.Allowed {
			b.Fatal(res, err)
		}
	}
}

// unlimited is a limit that no benchmark reaches.
func unlimited(b *testing.B) httpsuite.Limit {
	lim, err := core.NewMemory("api", core.TokenBucket(core.PerSecond(1e9)))
	if err != nil {
		b.Fatal(err)
	}
	return httpsuite.Limit{Limiter: lim, Key: keyfunc.IP()}
}

func benchNetHTTP(mounts ...httpsuite.Mount) func() int {
	mux := http.NewServeMux()
	mux.HandleFunc("/a", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) })
	return driveHTTP(mountNetHTTP(mounts, mux))
}

func benchGin(mounts ...httpsuite.Mount) func() int {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(mountGin(mounts)...)
	engine.GET("/a", func(c *gin.Context) { _, _ = c.Writer.WriteString("served") })
	return driveHTTP(engine)
}

func benchEcho(mounts ...httpsuite.Mount) func() int {
	e := echo.New()
	e.Use(mountEcho(mounts)...)
	e.GET("/a", func(c echo.Context) error {
		_, err := c.Response().Write([]byte("served"))
		return err
	})
	return driveHTTP(e)
}

// driveHTTP returns a function that has h serve the same request again and again.
func driveHTTP(h http.Handler) func() int {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/a", nil)
	w := &discard{header: http.Header{}}
	return func() int {
		clear(w.header)
		w.status = http.StatusOK
		h.ServeHTTP(w, r)
		return w.status
	}
}

// discard is a response that is not read.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header               { return d.header }
func (d *discard) WriteHeader(status int)            { d.status = status }
func (d *discard) Write(b []byte) (int, error)       { return len(b), nil }
func (d *discard) WriteString(s string) (int, error) { return len(s), nil }

func benchFiber(mounts ...httpsuite.Mount) func() int {
	app := fiber.New()
	for _, handler := range mountFiber(mounts) {
		app.Use(handler)
	}
	app.Get("/a", func(c *fiber.Ctx) error { return c.SendString("served") })
	handler := app.Handler()
	var request fasthttp.Request
	request.SetRequestURI("/a")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	return func() int {
		ctx.Response.Reset() // as the server does between requests
		ctx.ResetUserValues()
		handler(&ctx)
		return ctx.Response.StatusCode()
	}
}
