package echolimit

import (
	"context"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core/guard"
)

// serveAndFinish serves the request and gives g the final status. An error is answered
// after this middleware has returned: the status is then known only when the response
// is sent, or at the end of the request if nothing is. A panic before that is 500.
func serveAndFinish(g *guard.Guard, v guard.Verdict, next echo.HandlerFunc, c echo.Context) (err error) {
	ctx, response := c.Request().Context(), c.Response()
	var once sync.Once
	finish := func(status int) { once.Do(func() { g.Finish(ctx, v, status) }) }
	returned, status := false, 0
	response.Before(func() {
		status = response.Status
		if returned {
			finish(status)
		}
	})
	panicked := true
	defer func() {
		returned = true
		switch {
		case status != 0:
			finish(status)
		case panicked:
			finish(http.StatusInternalServerError)
		case err == nil:
			finish(http.StatusOK) // nothing was written: net/http sends 200
		default:
			context.AfterFunc(ctx, func() { finish(http.StatusOK) })
		}
	}()
	err = next(c)
	panicked = false
	return err
}
