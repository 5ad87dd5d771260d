package suite_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiberv3"
	"github.com/redislimit/redislimit/internal/suite/clientsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

func TestClients(t *testing.T)     { clientsuite.Exercise(t, apps) }
func FuzzLeftOfProxy(f *testing.F) { clientsuite.LeftOfProxy(f, apps) }

const refused = "fasthttp 1.71 and 1.72 refuse it"

var apps = clientsuite.Apps{
	Lacks: map[clientsuite.Ability]string{
		clientsuite.Trailer("cookie"):          refused,
		clientsuite.Trailer("x-forwarded-for"): refused,
		clientsuite.Trailer("x-real-ip"):       refused,
	},
	Default: map[string]clientsuite.NewApp{
		"fiber": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{})
		},
	},
	Configured: map[string]clientsuite.NewApp{
		"fiber, headers as they came": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{DisableHeaderNormalizing: true})
		},
		"fiber, streamed bodies": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{StreamRequestBody: true}, func(c fiber.Ctx) error {
				_ = c.Body()
				return c.Next()
			})
		},
		"fiber, cookies used before": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{}, func(c fiber.Ctx) error {
				_ = c.Cookies("session")
				return c.Next()
			})
		},
		"fiber, immutable": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newFiberApp(lim, key, fiber.Config{Immutable: true})
		},
	},
	Impatient: map[string]clientsuite.NewApp{
		"fiber": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newImpatientApp(lim, key, fiber.Config{})
		},
		"fiber, streamed bodies": func(lim *core.Limiter, key keyfunc.Func) clientsuite.App {
			return newImpatientApp(lim, key, fiber.Config{StreamRequestBody: true})
		},
	},
}

func newImpatientApp(lim *core.Limiter, key keyfunc.Func, config fiber.Config) fiberApp {
	config.ReadTimeout = clientsuite.ReadTimeout
	f := fiber.New(config)
	f.Use(fiberlimit.Middleware(lim, key))
	f.All("/a", func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	return fiberApp{f}
}

type fiberApp struct{ *fiber.App }

func newFiberApp(lim *core.Limiter, key keyfunc.Func, config fiber.Config, before ...fiber.Handler) fiberApp {
	f := fiber.New(config)
	for _, handler := range before {
		f.Use(handler)
	}
	f.All("/a", fiberlimit.Middleware(lim, key), func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
	return fiberApp{f}
}

func (f fiberApp) Serve(l net.Listener) error {
	return f.Listener(l, fiber.ListenConfig{DisableStartupMessage: true})
}
func (f fiberApp) Shutdown() error { return f.ShutdownWithTimeout(clientsuite.AnswerLimit) }

func (f fiberApp) Send() clientsuite.Send {
	handler := f.Handler()
	return func(r clientsuite.Request) int {
		var req fasthttp.Request
		req.Header.SetMethod(r.Method)
		req.SetRequestURI("http://example.com" + r.Target)
		r.AddHeader(req.Header.Add)
		var ctx fasthttp.RequestCtx
		ctx.Init(&req, r.PeerAddr(), nil)
		handler(&ctx)
		return ctx.Response.StatusCode()
	}
}
