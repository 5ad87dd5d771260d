package httpsuite_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/suite/httpsuite/fasthttpsuite"
)

// BenchmarkAdapters measures the time that a limit adds to a request: each framework serves a route without a limit, and
// behind a limit that decides in memory. There are no sockets, so the middleware is the only difference.
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
		b.Run(framework.name, func(b *testing.B) { httpsuite.Benchmark(b, framework.app) })
	}
}

// BenchmarkDecision measures the limiter's part of that time.
func BenchmarkDecision(b *testing.B) {
	limit := httpsuite.Unlimited(b)
	b.ReportAllocs()
	for b.Loop() {
		if res, err := limit.Limiter.Allow(b.Context(), "ip:192.0.2.1"); err != nil || !res.Allowed {
			b.Fatal(res, err)
		}
	}
}

func benchNetHTTP(mounts ...httpsuite.Mount) func() int {
	mux := http.NewServeMux()
	mux.HandleFunc("/a", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("served")) })
	return httpsuite.DriveHTTP(mountNetHTTP(mounts, mux))
}

func benchGin(mounts ...httpsuite.Mount) func() int {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(mountGin(mounts)...)
	engine.GET("/a", func(c *gin.Context) { _, _ = c.Writer.WriteString("served") })
	return httpsuite.DriveHTTP(engine)
}

func benchEcho(mounts ...httpsuite.Mount) func() int {
	e := echo.New()
	e.Use(mountEcho(mounts)...)
	e.GET("/a", func(c echo.Context) error {
		_, err := c.Response().Write([]byte("served"))
		return err
	})
	return httpsuite.DriveHTTP(e)
}

func benchFiber(mounts ...httpsuite.Mount) func() int {
	app := fiber.New()
	for _, handler := range mountFiber(mounts) {
		app.Use(handler)
	}
	app.Get("/a", func(c *fiber.Ctx) error { return c.SendString("served") })
	return fasthttpsuite.Drive(app.Handler())
}
