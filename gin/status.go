package ginlimit

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard"
)

// serveAndFinish runs the handlers and gives g the final status. A panic is 500: that
// is what recovering middleware further out answers. If the handlers wrote nothing
// and left an error in c.Errors, middleware further out may answer it, and the status
// of that answer is the final one.
func serveAndFinish(g *guard.Guard, v guard.Verdict, c *gin.Context) {
	ctx := c.Request.Context()
	panicked := true
	defer func() {
		switch {
		case c.Writer.Written():
			g.Finish(ctx, v, c.Writer.Status())
		case panicked:
			g.Finish(ctx, v, http.StatusInternalServerError)
		case len(c.Errors) > 0:
			c.Writer = whenAnswered(ctx, c.Writer, func(status int) { g.Finish(ctx, v, status) })
		default:
			g.Finish(ctx, v, c.Writer.Status())
		}
	}()
	c.Next()
	panicked = false
}

// An unanswered response calls finish when it is answered, at the latest at the end
// of the request: Gin itself then sends the status that was set, or 200.
type unanswered struct {
	gin.ResponseWriter

	status atomic.Int64
	finish func() // once
}

func whenAnswered(ctx context.Context, w gin.ResponseWriter, finish func(status int)) *unanswered {
	u := &unanswered{ResponseWriter: w}
	u.status.Store(int64(w.Status()))
	u.finish = sync.OnceFunc(func() { finish(int(u.status.Load())) })
	context.AfterFunc(ctx, u.finish)
	return u
}

func (u *unanswered) WriteHeader(code int) {
	u.ResponseWriter.WriteHeader(code)
	u.status.Store(int64(u.Status()))
}

func (u *unanswered) WriteHeaderNow() {
	u.ResponseWriter.WriteHeaderNow()
	u.finish()
}

func (u *unanswered) Write(b []byte) (int, error) {
	defer u.finish()
	return u.ResponseWriter.Write(b)
}

func (u *unanswered) WriteString(s string) (int, error) {
	defer u.finish()
	return u.ResponseWriter.WriteString(s)
}
