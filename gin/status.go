package ginlimit

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard"
)

// settle runs the handlers and tells g the final status. A panic that is
// recovered further out is 500. An error that the handlers left in c.Errors
// without an answer is for a middleware further out to answer: its status counts.
func settle(g *guard.Guard, v guard.Verdict, c *gin.Context) {
	ctx := c.Request.Context()
	panicked := true
	defer func() {
		switch {
		case c.Writer.Written():
			g.Settle(ctx, v, c.Writer.Status())
		case panicked:
			g.Settle(ctx, v, http.StatusInternalServerError)
		case len(c.Errors) > 0:
			c.Writer = wait(ctx, c.Writer, func(status int) { g.Settle(ctx, v, status) })
		default:
			g.Settle(ctx, v, c.Writer.Status())
		}
	}()
	c.Next()
	panicked = false
}

// An unanswered response waits for whoever answers it. If nobody has by the end of
// the request, Gin itself sends the status that was set, or 200.
type unanswered struct {
	gin.ResponseWriter

	status atomic.Int64
	settle func() // once
}

func wait(ctx context.Context, w gin.ResponseWriter, settle func(status int)) *unanswered {
	u := &unanswered{ResponseWriter: w}
	u.status.Store(int64(w.Status()))
	u.settle = sync.OnceFunc(func() { settle(int(u.status.Load())) })
	context.AfterFunc(ctx, u.settle)
	return u
}

func (u *unanswered) WriteHeader(code int) {
	u.ResponseWriter.WriteHeader(code)
	u.status.Store(int64(u.Status()))
}

func (u *unanswered) WriteHeaderNow() {
	u.ResponseWriter.WriteHeaderNow()
	u.settle()
}

func (u *unanswered) Write(b []byte) (int, error) {
	defer u.settle()
	return u.ResponseWriter.Write(b)
}

func (u *unanswered) WriteString(s string) (int, error) {
	defer u.settle()
	return u.ResponseWriter.WriteString(s)
}
