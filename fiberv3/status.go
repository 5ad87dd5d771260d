package fiberlimit

import (
	"context"
	"runtime"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse answers a request that is not served because of the Verdict v. It returns the error that the
// application must render, or the error of the application's own handler.
func refuse(c fiber.Ctx, v adapter.Verdict, handlers adapter.Handlers[fiber.Handler]) error {
	if handler, ok := handlers.For(v); ok {
		return handler(c.Status(v.Status))
	}
	return &answerError{fiber.NewError(v.Status), v.Err}
}

// serveAndFinish serves the request and passes the final status to g. An error is rendered at once, because
// only the application's ErrorHandler knows its status. A panic counts as 500, the answer of recovering
// middleware further out.
//
// With two middlewares of Fiber, a handler uses c even after c.Next has returned: after Fiber's Timeout has
// answered, its handler continues, and with Fiber's SSE, the handler begins only when the body is sent. Fiber
// then says that c is abandoned, and serveAndFinish must not change c.
//
// If the body is streamed or a handler takes over the connection, g finishes only when the stream or the
// connection has ended.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, c fiber.Ctx) error {
	status, ctx, timedOut := fiber.StatusInternalServerError, c.Context(), false
	end := &responseEnd{}
	c.Locals(end, end)
	if v.Context != nil {
		c.SetContext(v.Context)
	}
	defer func() {
		if v.Context != nil && !c.IsAbandoned() {
			c.SetContext(ctx)
		}
		if !timedOut && (c.Response().IsBodyStream() || c.RequestCtx().Hijacked()) {
			end.calls(func() { g.Finish(context.Background(), v, status) }) // c and its context are not valid then
			return
		}
		g.Finish(ctx, v, status)
	}()
	err := c.Next()
	if answer := c.RequestCtx().LastTimeoutErrorResponse(); answer != nil {
		timedOut, status = true, answer.StatusCode()
		return err
	}
	if err != nil {
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

// calls makes e call finish, once, when the response has ended.
func (e *responseEnd) calls(finish func()) {
	e.finish = sync.OnceFunc(finish)
	runtime.AddCleanup(e, func(finish func()) { finish() }, e.finish) // fasthttp drops some failed requests without closing their values
}

// Close calls the function that was given to calls, if any.
func (e *responseEnd) Close() error {
	if e.finish != nil {
		e.finish()
	}
	return nil
}

// An answerError is a status and the reason for it. Clients see only the status.
type answerError struct {
	status *fiber.Error
	reason error
}

func (e *answerError) Error() string   { return e.status.Error() }
func (e *answerError) Unwrap() []error { return []error{e.status, e.reason} }
