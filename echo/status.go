package echolimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core/guard"
)

// serveAndFinish serves the request and gives g the final status. An error, or a
// panic that is recovered further out, is answered after this middleware has
// returned: the status is then known only when the response is sent.
func serveAndFinish(g *guard.Guard, v guard.Verdict, next echo.HandlerFunc, c echo.Context) (err error) {
	ctx, response := c.Request().Context(), c.Response()
	returned, status := false, 0
	response.Before(func() {
		status = response.Status
		if returned {
			g.Finish(ctx, v, status)
		}
	})
	panicked := true
	defer func() {
		returned = true
		switch {
		case status != 0:
			g.Finish(ctx, v, status)
		case err == nil && !panicked:
			g.Finish(ctx, v, http.StatusOK) // nothing was written: net/http sends 200
		}
	}()
	err = next(c)
	panicked = false
	return err
}
