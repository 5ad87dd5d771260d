// Command echo is the program for Echo in the README.
package main

import (
	"log"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	echolimit "github.com/redislimit/redislimit/echo"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello\n") })
	log.Fatal(e.Start("localhost:8080"))
}
