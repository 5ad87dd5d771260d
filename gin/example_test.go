package ginlimit_test

import (
	"log"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	r := gin.New()
	r.Use(ginlimit.Middleware(lim, keyfunc.IP()))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	log.Fatal(r.Run("localhost:8080"))
}

func ExampleOnDenied() {
	_ = ginlimit.OnDenied(func(c *gin.Context) { // pass it to a Middleware
		res, _ := ginlimit.Result(c)
		c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down", "limit": res.Limit})
	})
}

func ExampleOnError() {
	_ = ginlimit.OnError(func(c *gin.Context) { c.String(http.StatusServiceUnavailable, "try again soon") }) // pass it to a Middleware
}

func ExampleKey() {
	_ = ginlimit.Key(func(c *gin.Context) (string, error) { // pass it to a Middleware
		if c.Param("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.Param("tenant"), nil
	})
}

func ExampleResult() {
	_ = func(c *gin.Context) {
		if res, ok := ginlimit.Result(c); ok {
			c.JSON(http.StatusOK, gin.H{"left": res.Remaining})
		}
	}
}
