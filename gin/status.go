package ginlimit

import (
	"net/http"

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
			c.Writer = &unanswered{ResponseWriter: c.Writer, settle: func(status int) { g.Settle(ctx, v, status) }}
		default:
			g.Settle(ctx, v, c.Writer.Status())
		}
	}()
	c.Next()
	panicked = false
}

// An unanswered response waits for whoever answers it.
type unanswered struct {
	gin.ResponseWriter

	settle func(status int)
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

func (u *unanswered) answered() {
	if settle := u.settle; settle != nil {
		u.settle = nil
		settle(u.Status())
	}
}
