package ginlimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/keyfunc"
)

func ExampleMiddleware() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	r := gin.New()
	r.Use(ginlimit.Middleware(lim, keyfunc.IP()))
	r.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	log.Fatal(r.Run("localhost:8080"))
}

// limited returns an app whose "/" admits one request per hour from each client.
func limited(handler gin.HandlerFunc, key keyfunc.Func, options ...guard.Option) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	lim, _ := core.NewMemory("api", core.FixedWindow(core.PerHour(1)))
	r := gin.New()
	r.GET("/", ginlimit.Middleware(lim, key, options...), handler)
	return r
}

// get requests "/" from h and prints the answer.
func get(h http.Handler) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?tenant=acme", nil))
	fmt.Println(w.Code, w.Body)
}

func hello(c *gin.Context) { c.String(http.StatusOK, "hello") }

// The application answers denied requests itself.
func ExampleOnDenied() {
	h := limited(hello, keyfunc.IP(), ginlimit.OnDenied(func(c *gin.Context) {
		res, _ := ginlimit.Result(c)
		c.JSON(http.StatusTooManyRequests, gin.H{"error": "slow down", "limit": res.Limit})
	}))
	get(h)
	get(h)
	// Output:
	// 200 hello
	// 429 {"error":"slow down","limit":1}
}

// A request can be counted by anything that Gin knows about it.
func ExampleKey() {
	byTenant := ginlimit.Key(func(c *gin.Context) (string, error) {
		if c.Query("tenant") == "" {
			return "", keyfunc.ErrNoKey
		}
		return "tenant:" + c.Query("tenant"), nil
	})
	get(limited(hello, byTenant))
	// Output: 200 hello
}

// An answer that costs more than was reserved leaves a debt: the next request is denied.
func ExampleSetCost() {
	h := limited(func(c *gin.Context) {
		c.String(http.StatusOK, "an answer")
		ginlimit.SetCost(c, 12)
	}, keyfunc.IP(), guard.CostAfter(), guard.NoHeaders())
	get(h)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	fmt.Println(w.Code)
	// Output:
	// 200 an answer
	// 429
}
