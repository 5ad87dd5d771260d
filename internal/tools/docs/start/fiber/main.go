// Command fiber is the program for Fiber in the README.
package main

import (
	"log"

	"github.com/gofiber/fiber/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	app := fiber.New()
	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello\n") })
	log.Fatal(app.Listen("localhost:8080"))
}
