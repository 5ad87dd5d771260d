package echolimit

import (
	"bufio"
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse answers a request that is not served because of the Verdict v. It returns the error that the
// application must render, or the error of the application's own handler.
func refuse(c echo.Context, v adapter.Verdict, handlers adapter.Handlers[echo.HandlerFunc]) error {
	if handler, ok := handlers.For(v); ok {
		return serveWithStatus(handler, c, v.Status)
	}
	return &echo.HTTPError{Code: v.Status, Message: http.StatusText(v.Status), Internal: v.Err}
}

// serveWithStatus calls h, and sends status if h sends none.
func serveWithStatus(h echo.HandlerFunc, c echo.Context, status int) error {
	c.Response().Status = status
	if err := h(c); err != nil || c.Response().Committed {
		return err
	}
	return c.NoContent(status)
}

// serveAndFinish serves the request and passes the final status to g. An error is answered after this
// middleware has returned, so its status is known only when the response is sent. A panic before that counts
// as 500.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, next echo.HandlerFunc, c echo.Context) (err error) {
	ctx, response := c.Request().Context(), c.Response()
	var once sync.Once
	finish := func(status int) { once.Do(func() { g.Finish(ctx, v, status) }) }
	status := 0
	var stop func() bool // not nil once middleware further out must answer the error
	writer := &hijackable{ResponseWriter: response.Writer}
	response.Writer = writer
	response.Before(func() {
		if writer.hijacked {
			return // this response reaches nobody
		}
		status = response.Status
		if stop != nil {
			stop()
			finish(status)
		}
	})
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
		if response.Writer == writer { // otherwise a middleware further in has left its own writer
			response.Writer = writer.ResponseWriter
		}
		switch {
		case writer.hijacked && status == 0:
			finish(http.StatusSwitchingProtocols)
		case status != 0:
			finish(status)
		case panicked:
			finish(http.StatusInternalServerError)
		case err == nil:
			finish(http.StatusOK) // nothing was written: net/http sends 200
		default:
			stop = g.WhenOver(ctx, func() { finish(adapter.NoAnswer) })
		}
	}()
	err = next(c)
	panicked = false
	return err
}

// A hijackable response records whether a handler has taken over the connection, which the status that Echo
// keeps does not show.
type hijackable struct {
	http.ResponseWriter

	hijacked bool
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.hijacked = h.hijacked || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController, by which Echo finds methods such as Flush in the writer inside h.
func (h *hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }
