package ginlimit

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// refuse aborts and answers a request that is not served because of the Verdict v.
func refuse(c *gin.Context, v adapter.Verdict, handlers adapter.Handlers[gin.HandlerFunc]) {
	c.Abort()
	if handler, ok := handlers.For(v); ok {
		c.Status(v.Status)
		handler(c)
		return
	}
	c.Data(v.Status, guard.ProblemType, guard.Problem(v.Status, v.Err))
}

// serveAndFinish runs the handlers and passes the final status to g. If the handlers panic before they write,
// the status is 500, because recovering middleware further out then answers 500. If the handlers wrote nothing,
// set no status and left an error in c.Errors, middleware further out may answer it; the status of that answer
// then counts.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, c *gin.Context) {
	ctx := c.Request.Context()
	writer := &hijackable{ResponseWriter: c.Writer}
	c.Writer = writer
	if v.Context != nil {
		request := c.Request
		c.Request = request.WithContext(context.WithValue(v.Context, stateKeyOf{}, stateIn(c)))
		defer func() {
			request.MultipartForm = c.Request.MultipartForm // the server removes its temporary files
			c.Request = c.Request.WithContext(ctx)          // middleware further out goes on
		}()
	}
	panicked := true
	defer func() {
		if c.Writer == writer { // otherwise a middleware further in has left its own writer
			c.Writer = writer.ResponseWriter
		}
		switch {
		case writer.hijacked:
			g.Finish(ctx, v, http.StatusSwitchingProtocols)
		case c.Writer.Written():
			g.Finish(ctx, v, c.Writer.Status())
		case panicked:
			g.Finish(ctx, v, http.StatusInternalServerError)
		case len(c.Errors) > 0 && !writer.hasStatus:
			c.Writer = whenAnswered(ctx, c.Writer, g, v)
		default:
			g.Finish(ctx, v, c.Writer.Status())
		}
	}()
	c.Next()
	panicked = false
}

// A hijackable response records whether a handler has taken over the connection, and whether a handler has set a
// status, which Gin also sends if nothing is written. The status that Gin keeps shows neither.
type hijackable struct {
	gin.ResponseWriter

	hijacked, hasStatus bool
}

func (h *hijackable) WriteHeader(status int) {
	h.hasStatus = h.hasStatus || status > 0 // Gin ignores others
	h.ResponseWriter.WriteHeader(status)
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	written := h.Written()
	conn, rw, err := h.ResponseWriter.Hijack()
	h.hijacked = h.hijacked || err == nil && !written
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (h *hijackable) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// An unanswered response calls finish when it is answered, or at the latest after the request.
type unanswered struct {
	gin.ResponseWriter

	finish func(status int) // once
	stop   func() bool
}

func whenAnswered(ctx context.Context, w gin.ResponseWriter, g *adapter.Guard, v adapter.Verdict) *unanswered {
	var once sync.Once
	u := &unanswered{ResponseWriter: w, finish: func(status int) { once.Do(func() { g.Finish(ctx, v, status) }) }}
	u.stop = g.WhenOver(ctx, func() { u.finish(adapter.NoAnswer) })
	return u
}

func (u *unanswered) answered() {
	u.stop()
	u.finish(u.Status())
}

// Unwrap is for http.ResponseController.
func (u *unanswered) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// WriteHeader sets the status, which Gin also sends if nothing is written.
func (u *unanswered) WriteHeader(status int) {
	u.ResponseWriter.WriteHeader(status)
	if status > 0 {
		u.answered()
	}
}

func (u *unanswered) Flush() {
	u.ResponseWriter.Flush()
	u.answered()
}

func (u *unanswered) WriteHeaderNow() {
	u.ResponseWriter.WriteHeaderNow()
	u.answered()
}

func (u *unanswered) Write(b []byte) (int, error) {
	defer u.answered()
	return u.ResponseWriter.Write(b)
}

func (u *unanswered) WriteString(s string) (int, error) {
	defer u.answered()
	return u.ResponseWriter.WriteString(s)
}
