package fasthttpsuite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/internal/suite/httpsuite"
)

// This file has the parts that both versions of Fiber need in order to serve an App.

// Fiber returns the adapter of one version.
func Fiber(name string, start func(*testing.T, httpsuite.App) *httpsuite.Server) httpsuite.Adapter {
	return httpsuite.Adapter{
		Name: name, Start: start,
		Lacks: map[httpsuite.Ability]string{
			httpsuite.HTTP2:                            "fasthttp speaks HTTP/1 only",
			httpsuite.Gone:                             "fasthttp does not notice that a client left",
			httpsuite.ResponseWriter:                   "fasthttp has no http.ResponseWriter",
			httpsuite.Interim:                          "fasthttp sends one response",
			httpsuite.Begins:                           "fasthttp sends what the handler wrote when it has returned",
			httpsuite.Ability(httpsuite.BeforeRouting): "Fiber routes as it goes: nothing can be mounted before",
		},
		Patterns: map[httpsuite.MountPoint]string{httpsuite.OnRoute: "/g/users/:id"}, // in Use and Group, the pattern is only their own prefix
	}
}

// An App is an application of Fiber.
type App interface {
	Server() *fasthttp.Server
	ShutdownWithTimeout(d time.Duration) error
}

// Serve serves app by serve, the method of its version of Fiber.
func Serve(t *testing.T, app App, serve func(net.Listener) error) *httpsuite.Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(listener) }()
	transport := &http.Transport{}
	return &httpsuite.Server{URL: "http://" + listener.Addr().String(), Transport: transport, Close: func() {
		transport.CloseIdleConnections()
		for i := 0; i < 50 && app.Server().GetOpenConnectionsCount() > 0; i++ {
			time.Sleep(time.Millisecond) // Shutdown would check only every 100 ms
		}
		if err := errors.Join(app.ShutdownWithTimeout(5*time.Second), <-served); err != nil {
			t.Errorf("Fiber ended with error %v, want nil", err)
		}
	}}
}

// A Ctx has those methods of a request of Fiber that are the same in both versions.
type Ctx interface {
	Get(key string, defaultValue ...string) string
	Locals(key any, value ...any) any
	MultipartForm() (*multipart.Form, error)
	Next() error
	Response() *fasthttp.Response
	SendString(body string) error
	Set(key, value string)
}

// Middleware returns the middleware of those mounts that work the same in both versions.
func Middleware[C Ctx](mount httpsuite.Mount, render func(C, error) error) func(C) error {
	switch m := mount.(type) {
	case httpsuite.Auth:
		return func(c C) error {
			if user := c.Get(httpsuite.UserHeader); user != "" {
				c.Locals(httpsuite.UserKey, user)
				c.Locals(httpsuite.TypedUserKey, user)
			}
			return c.Next()
		}
	case httpsuite.AddHeader:
		return func(c C) error {
			c.Response().Header.Add(m.Name, m.Value)
			return c.Next()
		}
	case httpsuite.Log:
		return func(c C) error {
			if err := c.Next(); err != nil { // as Fiber's own middleware does
				_ = render(c, err)
			}
			m.Saw(c.Response().StatusCode())
			return nil
		}
	}
	panic(fmt.Sprintf("a mount %T", mount))
}

// A FiberContext has most of an [httpsuite.Context], for both versions.
type FiberContext struct {
	Ctx    Ctx
	Native *fasthttp.RequestCtx
}

// Write writes body. It sets a status only if that is not 0.
func (c FiberContext) Write(status int, body string) error {
	if status != 0 {
		c.Native.SetStatusCode(status)
	}
	return c.Ctx.SendString(body)
}

// Stream flushes the first part before it calls more.
func (c FiberContext) Stream(first string, more func(), second string) error {
	c.Native.SetBodyStreamWriter(func(w *bufio.Writer) {
		_, _ = w.WriteString(first)
		_ = w.Flush() // an error does not matter, as the client checks the body
		more()
		_, _ = w.WriteString(second)
	})
	return nil
}

// Upgrade takes over the connection once the handler has returned.
func (c FiberContext) Upgrade(talk func(io.ReadWriter)) error {
	c.Ctx.Set("Connection", "Upgrade")
	c.Ctx.Set("Upgrade", "websocket")
	c.Native.SetStatusCode(http.StatusSwitchingProtocols)
	c.Native.Hijack(func(conn net.Conn) { talk(conn) })
	return nil
}

// Upload parses the form of the request.
func (c FiberContext) Upload() error {
	_, err := c.Ctx.MultipartForm()
	return err
}

// Throw returns err.
func (FiberContext) Throw(err error) error { return err }

// Gone is closed when the server ends.
func (c FiberContext) Gone() <-chan struct{} { return c.Native.Done() }

// Writer returns nil, because fasthttp has no http.ResponseWriter.
func (FiberContext) Writer() http.ResponseWriter { return nil }

// Drive returns a function that makes handle serve the same request again and again.
func Drive(handle fasthttp.RequestHandler) (serve func() (status int)) {
	ctx := NewContext()
	ctx.Request.SetRequestURI("/a")
	return func() int {
		ctx.Response.Reset() // as the server does between requests
		ctx.ResetUserValues()
		handle(ctx)
		return ctx.Response.StatusCode()
	}
}
