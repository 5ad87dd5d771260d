package echolimit

import (
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse answers a request that is not served because of the Verdict v. It returns the error that the
// application must render, or the error of the application's own handler.
func refuse(c *echo.Context, v adapter.Verdict, handlers adapter.Handlers[echo.HandlerFunc]) error {
	if handler, ok := handlers.For(v); ok {
		return serveWithStatus(handler, c, v.Status)
	}
	return echo.NewHTTPError(v.Status, http.StatusText(v.Status)).Wrap(v.Err)
}

// serveWithStatus calls h, and sends status if h sends none.
func serveWithStatus(h echo.HandlerFunc, c *echo.Context, status int) error {
	w := newWriter(c, status)
	defer w.remove(c)
	if err := h(c); err != nil || w.answered() {
		return err
	}
	return c.NoContent(status)
}

// serveAndFinish serves the request and passes the final status to g. An error is answered after this
// middleware has returned, so its status is known only when the response is sent, or at the end of the
// request if nothing is sent. A panic before that counts as 500.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, next echo.HandlerFunc, c *echo.Context) (err error) {
	ctx, w := c.Request().Context(), newWriter(c, 0)
	if v.Context != nil {
		request := c.Request()
		c.SetRequest(request.WithContext(v.Context))
		defer func() {
			request.MultipartForm = c.Request().MultipartForm // the server removes its temporary files
			c.SetRequest(c.Request().WithContext(ctx))        // middleware further out goes on
		}()
	}
	panicked := true
	defer func() {
		w.remove(c)
		switch {
		case w.answered():
			g.Finish(ctx, v, w.sent())
		case panicked:
			g.Finish(ctx, v, http.StatusInternalServerError)
		case err == nil:
			g.Finish(ctx, v, http.StatusOK) // nothing was written: net/http sends 200
		default:
			w.whenAnswered(ctx, err, g, v)
		}
	}()
	err = next(c)
	panicked = false
	return err
}

// whenAnswered makes g finish, once, when the application answers err, with the status of that answer. If no
// answer comes, g finishes after the request.
func (w *writer) whenAnswered(ctx context.Context, err error, g *adapter.Guard, v adapter.Verdict) {
	if w.response == nil { // the likely status of the answer: the true one is not visible here
		_, status := echo.ResolveResponseStatus(w.ResponseWriter, err)
		g.Finish(ctx, v, status)
		return
	}
	var once sync.Once
	finish := func(status int) { once.Do(func() { g.Finish(ctx, v, status) }) }
	stop := g.WhenOver(ctx, func() { finish(adapter.NoAnswer) })
	w.response.Before(func() {
		stop()
		finish(cmp.Or(w.response.Status, http.StatusOK))
	})
}
