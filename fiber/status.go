package fiberlimit

import (
	"context"
	"runtime"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse answers a request that is not served because of the Verdict v. It returns the error that the
// application must render, or the error of the application's own handler.
func refuse(c *fiber.Ctx, v adapter.Verdict, handlers adapter.Handlers[fiber.Handler]) error {
	if handler, ok := handlers.For(v); ok {
		return handler(c.Status(v.Status))
	}
	return &answerError{fiber.NewError(v.Status), v.Err}
}

// serveAndFinish serves the request and passes the final status to g. An error is rendered at once, because
// only the application's ErrorHandler knows its status. A panic counts as 500, the answer of recovering
// middleware further out. If the body is streamed or a handler takes over the connection, g finishes only when
// the stream or the connection has ended.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, c *fiber.Ctx) error {
	status, ctx := fiber.StatusInternalServerError, c.UserContext()
	if v.Context != nil {
		c.SetUserContext(v.Context)
	}
	defer func() {
		if v.Context != nil {
			c.SetUserContext(ctx)
		}
		if c.Response().IsBodyStream() || c.Context().Hijacked() {
			whenEnded(c, func() { g.Finish(context.Background(), v, status) }) // c and its context are not valid then
			return
		}
		g.Finish(ctx, v, status)
	}()
	if err := c.Next(); err != nil {
		if err := c.App().ErrorHandler(c, err); err != nil {
			return c.SendStatus(fiber.StatusInternalServerError) // as Fiber itself does
		}
	}
	status = c.Response().StatusCode()
	return nil
}

// A responseEnd is stored among the values of a request. fasthttp closes these values when the request is over:
// when the body has been sent, the client has left, or the connection that a handler took over is closed.
type responseEnd struct{ finish func() }

// Close calls finish.
func (e *responseEnd) Close() error {
	e.finish()
	return nil
}

// whenEnded makes fasthttp call finish, once, when the response to c has ended.
func whenEnded(c *fiber.Ctx, finish func()) {
	end := &responseEnd{sync.OnceFunc(finish)}
	runtime.AddCleanup(end, func(finish func()) { finish() }, end.finish) // fasthttp drops some failed requests without closing their values
	c.Locals(end, end)
}

// An answerError is a status and the reason for it. Clients see only the status.
type answerError struct {
	status *fiber.Error
	reason error
}

func (e *answerError) Error() string   { return e.status.Error() }
func (e *answerError) Unwrap() []error { return []error{e.status, e.reason} }
