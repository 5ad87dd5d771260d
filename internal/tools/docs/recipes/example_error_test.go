package recipes_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	"github.com/redislimit/redislimit/keyfunc"
)

func Example_houseStyleEcho() {
	lim := core.MustNew(rdb, "house-echo", core.FixedWindow(core.PerMinute(1)))
	e := echo.New()
	e.Use(echolimit.Middleware(lim, keyfunc.IP()))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })

	e.HTTPErrorHandler = func(err error, c echo.Context) {
		var denied *guard.DeniedError
		if !errors.As(err, &denied) {
			e.DefaultHTTPErrorHandler(err, c)
			return
		}
		_ = c.JSON(http.StatusTooManyRequests, map[string]string{"code": "rate_limited", "limit": denied.Result.LimitName})
	}

	fmt.Println(get(e, "/").Body)
	w := get(e, "/")
	fmt.Print(w.Code, " ", w.Header().Get("Retry-After"), " ", w.Body)
	// Output:
	// hello
	// 429 60 {"code":"rate_limited","limit":"fixed-1m"}
}

func Example_houseStyleFiber() {
	lim := core.MustNew(rdb, "house-fiber", core.FixedWindow(core.PerMinute(1)))

	app := fiber.New(fiber.Config{ErrorHandler: func(c *fiber.Ctx, err error) error {
		var denied *guard.DeniedError
		if !errors.As(err, &denied) {
			return fiber.DefaultErrorHandler(c, err)
		}
		return c.Status(http.StatusTooManyRequests).JSON(fiber.Map{"code": "rate_limited", "limit": denied.Result.LimitName})
	}})

	app.Use(fiberlimit.Middleware(lim, keyfunc.IP()))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello") })
	for range 2 {
		answer, err := app.Test(httptest.NewRequest(http.MethodGet, "/", nil), -1)
		if err != nil {
			fmt.Println(err)
			return
		}
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		fmt.Println(answer.StatusCode, answer.Header.Get("Retry-After"), string(body))
	}
	// Output:
	// 200  hello
	// 429 60 {"code":"rate_limited","limit":"fixed-1m"}
}
