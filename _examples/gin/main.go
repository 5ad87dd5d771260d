// Command gin serves three rate-limited routes with Gin. Without -redis it
// starts an embedded Redis, so that "go run ./_examples/gin" needs nothing else.
package main

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core/guard"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/demo"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	gin.SetMode(gin.ReleaseMode)
	demo.Main("gin", func(app *demo.App) demo.Server { return demo.HTTPServer(routes(app)) })
}

func routes(app *demo.App) http.Handler {
	byIP := ginlimit.Middleware(app.Home, keyfunc.IP())
	byUser := ginlimit.Middleware(app.User, keyfunc.User("user"))
	byKey := ginlimit.Middleware(app.APIKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(demo.Issued)))

	r := gin.New()
	r.GET("/", byIP, say("hello"))
	r.GET("/user", authenticate, byUser, say("hello, user"))
	r.GET("/key", byKey, say("hello, key"))
	r.GET("/healthz", say("ok"))
	return r
}

func say(text string) gin.HandlerFunc {
	return func(c *gin.Context) { c.String(http.StatusOK, text+"\n") }
}

// authenticate puts the user into the context. It accepts any password, because it is a demo.
func authenticate(c *gin.Context) {
	user, _, _ := c.Request.BasicAuth()
	if user == "" {
		c.Header("WWW-Authenticate", demo.Challenge)
		c.Abort()
		c.Data(http.StatusUnauthorized, guard.ProblemType, guard.Problem(http.StatusUnauthorized, nil))
		return
	}
	c.Set("user", user)
}
