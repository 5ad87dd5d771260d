package httpsuite_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/keyfunc"
)

func ginFramework() httpsuite.Adapter {
	gin.SetMode(gin.ReleaseMode) // otherwise Gin prints every route
	return httpsuite.Adapter{
		Name: "Gin", Start: startGin, Problem: true,
		Lacks: map[httpsuite.Ability]string{
			httpsuite.Ability(httpsuite.BeforeRouting): "Gin routes before any middleware runs",
			httpsuite.Interim:                          "Gin mistakes an interim status for the final one",
		},
		Patterns: map[httpsuite.MountPoint]string{
			httpsuite.Everywhere: "/g/users/:id",
			httpsuite.InGroup:    "/g/users/:id",
			httpsuite.OnRoute:    "/g/users/:id",
		},
	}
}

func startGin(_ *testing.T, app httpsuite.App) *httpsuite.Server {
	engine := gin.New()
	if app.Recover {
		engine.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	}
	if app.Renders {
		engine.Use(renderGin)
	}
	engine.Use(mountGin(app.Use)...)
	for _, group := range app.Groups {
		handleGin(engine.Group(group.Prefix, mountGin(group.Use)...), group.Routes)
	}
	handleGin(engine, app.Routes)
	return httpsuite.ServeHTTP(engine, app)
}

// renderGin is the error handler of a Gin app. It is registered first, and renders the errors that handlers left in
// c.Errors.
func renderGin(c *gin.Context) {
	c.Next()
	if err := c.Errors.Last(); err != nil && !c.Writer.Written() {
		c.String(httpsuite.Render(err.Err, http.StatusInternalServerError))
	}
}

func handleGin(router gin.IRouter, routes []httpsuite.Route) {
	for _, route := range routes {
		router.Any(httpsuite.Colons(route.Path), append(mountGin(route.Use), handlerGin(route.Handler))...)
	}
}

func mountGin(mounts []httpsuite.Mount) []gin.HandlerFunc {
	return httpsuite.Each(mounts, middlewareGin)
}

func middlewareGin(mount httpsuite.Mount) gin.HandlerFunc {
	switch m := mount.(type) {
	case httpsuite.Auth:
		return func(c *gin.Context) {
			if user := c.GetHeader(httpsuite.UserHeader); user != "" {
				c.Set(httpsuite.UserKey.(string), user)
				if typed, ok := any(c).(interface{ Set(key, value any) }); ok { // since Gin 1.11
					typed.Set(httpsuite.TypedUserKey, user)
				} else {
					c.Request = httpsuite.SignIn(c.Request, httpsuite.TypedUserKey, user)
				}
			}
		}
	case httpsuite.AddHeader:
		return func(c *gin.Context) { c.Writer.Header().Add(m.Name, m.Value) }
	case httpsuite.Log:
		return func(c *gin.Context) {
			c.Next()
			m.Saw(c.Writer.Status())
		}
	case httpsuite.CORS:
		return func(c *gin.Context) {
			if httpsuite.AllowOrigins(c.Writer.Header(), c.Request) {
				c.AbortWithStatus(http.StatusNoContent)
			}
		}
	case httpsuite.Compress:
		return func(c *gin.Context) {
			z := httpsuite.Zip(c.Writer)
			c.Writer = ginZipper{c.Writer, z}
			c.Next()
			_ = z.Close() // fails only if the client has left
		}
	case httpsuite.Limit:
		key := httpsuite.KeyOf(m, ginlimit.Key, ginlimit.Request, func(c *gin.Context) string { return c.GetHeader(httpsuite.KeyHeader) })
		return ginlimit.Middleware(m.Limiter, key, httpsuite.Options(m, handlerGin, ginlimit.OnDenied, ginlimit.OnError)...)
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

// A ginZipper is Gin's response writer that compresses.
type ginZipper struct {
	gin.ResponseWriter

	z httpsuite.Zipper
}

func (g ginZipper) WriteHeader(status int)            { g.z.WriteHeader(status) }
func (g ginZipper) Write(b []byte) (int, error)       { return g.z.Write(b) }
func (g ginZipper) WriteString(s string) (int, error) { return g.z.Write([]byte(s)) }

func handlerGin(h httpsuite.Handler) gin.HandlerFunc {
	limit := ginlimit.NewAnswerer(httpsuite.AnswerOptions(h.Answers, handlerGin, ginlimit.OnDenied, ginlimit.OnError)...)
	return func(c *gin.Context) {
		if err := h.Serve(httpsuite.HTTPContext{
			W: c.Writer, R: c.Request,
			Refuse: func(status int) error {
				c.AbortWithStatus(status)
				return nil
			},
			Show:   func() (core.Result, bool) { return ginlimit.Result(c) },
			Charge: func(n int64) { ginlimit.SetCost(c, n) },
			Reply:  func(decision core.Decision, err error) (bool, error) { return limit.Answer(c, decision, err), nil },
		}); err != nil {
			_ = c.Error(err) // returns the same error
		}
	}
}

func TestGinHalfClosed(t *testing.T) {
	t.Parallel()
	httpsuite.HalfClosed(t, func(limit httpsuite.Limit, fails error, late func()) http.Handler {
		e := gin.New()
		e.Use(func(c *gin.Context) {
			c.Next()
			if len(c.Errors) > 0 {
				late()
				c.Status(http.StatusUnauthorized)
				c.Writer.WriteHeaderNow()
			}
		}, middlewareGin(limit))
		e.GET("/", func(c *gin.Context) { _ = c.Error(fails) })
		return e
	})
}

// TestGinStatusOnly answers requests with a status and no body, and leaves a note for the log in c.Errors. Gin itself sends such a
// status, after all middlewares. The status must be the one that CountIf sees, and it must see it at once.
func TestGinStatusOnly(t *testing.T) {
	t.Parallel()
	note := func(c *gin.Context) { _ = c.Error(errors.New("only for the log")) }
	next := func(c *gin.Context) { c.Next() }
	noContent := func(c *gin.Context) { c.Status(http.StatusNoContent) }
	seeOther := func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/home") }
	flush := func(c *gin.Context) { c.Writer.Flush() }
	after := func(answer gin.HandlerFunc) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Next()
			answer(c)
		}
	}
	for name, app := range map[string]struct {
		outer, handler gin.HandlerFunc
		status         int
	}{
		"the handler, 204":          {next, func(c *gin.Context) { note(c); noContent(c) }, http.StatusNoContent},
		"the handler, redirect":     {next, func(c *gin.Context) { note(c); seeOther(c) }, http.StatusSeeOther},
		"outer middleware, 204":     {after(noContent), note, http.StatusNoContent},
		"outer middleware, 303":     {after(seeOther), note, http.StatusSeeOther},
		"outer middleware, flushed": {after(flush), note, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := core.MustNewMemory("login", core.FixedWindow(core.PerHour(1)))
			e := gin.New()
			e.Use(app.outer)
			failures := guard.CountIf(func(status int) bool { return status >= http.StatusBadRequest })
			e.POST("/", ginlimit.Middleware(lim, keyfunc.Global(), failures), app.handler)
			for range 3 {
				w := httptest.NewRecorder()
				if e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)); w.Code != app.status {
					t.Errorf("got status %d, want %d", w.Code, app.status)
				}
			}
		})
	}
}
