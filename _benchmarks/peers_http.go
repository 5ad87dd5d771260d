package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/go-chi/httprate"
	httprateredis "github.com/go-chi/httprate-redis"
	"github.com/gofiber/fiber/v2"
	fiberlimiter "github.com/gofiber/fiber/v2/middleware/limiter"
	fiberredis "github.com/gofiber/storage/redis/v3"
	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// httprateLimiter calls httprate without an HTTP server. The local fallback stays on, as it is by default, but a
// decision that uses it is an error here.
func httprateLimiter(w *setup) (limiter, error) {
	client, ok := w.rdb.(*redis.Client)
	if !ok {
		return nil, errors.New("a client of another type")
	}
	var failed atomic.Pointer[error]
	lim := httprate.NewRateLimiter(int(w.limit.count), w.limit.period, httprateredis.WithRedisLimitCounter(&httprateredis.Config{
		Client: client, WindowLength: w.limit.period, OnError: func(err error) { failed.Store(&err) },
	}))
	return func() decide {
		headers := discard{http.Header{}}
		return func(ctx context.Context, key string) (bool, error) {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			if err != nil {
				return false, err
			}
			limited := lim.OnLimit(headers, r, key)
			if err := failed.Load(); err != nil {
				return false, *err
			}
			return !limited, nil
		}
	}, nil
}

// A discard is a ResponseWriter that discards the response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header       { return d.header }
func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) WriteHeader(int)             {}

// keyHeader is the header with the key of a request to the Fiber app.
const keyHeader = "X-Key"

// fiberLimiter calls Fiber's middleware in an app without sockets. If the storage fails, the middleware admits
// the request and reports no error.
func fiberLimiter(w *setup) (limiter, error) {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(fiberlimiter.New(fiberlimiter.Config{
		Max: int(w.limit.count), Expiration: w.limit.period, Storage: fiberredis.NewFromConnection(w.rdb),
		KeyGenerator: func(c *fiber.Ctx) string { return "fiber:" + c.Get(keyHeader) },
	}))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendStatus(fiber.StatusNoContent) })
	handler := app.Handler()
	return func() decide {
		ctx := &fasthttp.RequestCtx{}
		ctx.Request.Header.SetMethod(fiber.MethodGet)
		ctx.Request.SetRequestURI("/")
		return func(_ context.Context, key string) (bool, error) {
			ctx.Response.Reset()
			ctx.Request.Header.Set(keyHeader, key)
			handler(ctx)
			switch status := ctx.Response.StatusCode(); status {
			case fiber.StatusNoContent:
				return true, nil
			case fiber.StatusTooManyRequests:
				return false, nil
			default:
				return false, fmt.Errorf("%w: %d", errStatus, status)
			}
		}
	}, nil
}

var errStatus = errors.New("unexpected status")
