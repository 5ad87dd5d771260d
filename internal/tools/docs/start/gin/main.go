// Command gin is the program for Gin in the README.
package main

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	r := gin.Default()
	r.Use(ginlimit.Middleware(lim, keyfunc.IP()))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello\n") })
	log.Fatal(r.Run("localhost:8080"))
}
