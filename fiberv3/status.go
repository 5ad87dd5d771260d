package fiberlimit

import (
	"context"
	"runtime"
	"sync"

	"github.com/gofiber/fiber/v3"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse answers a request that is not served, as the Verdict says: it returns the error that the
// application renders, or what a handler of the application returned.
func refuse(c fiber.Ctx, v adapter.Verdict, handlers adapter.Handlers[fiber.Handler]) error {
	if handler, ok := handlers.For(v); ok {
		return handler(c.Status(v.Status))
	}
	return &answerError{fiber.NewError(v.Status), v.Err}
}

// serveAndFinish serves the request and gives g the final status. An error is rendered at once,
// because only the application's ErrorHandler knows its status. A panic is 500: that is what
// recovering middleware further out answers.
//
// After Fiber's Timeout the handler goes on, and with Fiber's SSE it begins. Both still use c,
// which is abandoned then and must not be changed.
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

// A responseEnd is a value of a request, which fasthttp closes when the request is over: when the
// body is sent or the client gone, or when the connection that a handler took over is closed.
type responseEnd struct{ finish func() }

// calls has finish called, once, when the response has ended.
func (e *responseEnd) calls(finish func()) {
	e.finish = sync.OnceFunc(finish)
	runtime.AddCleanup(e, func(finish func()) { finish() }, e.finish) // fasthttp drops some failed requests without closing their values
}

// Close is for fasthttp.
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
