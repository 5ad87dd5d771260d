package httpsuite

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redislimit/redislimit/core"
)

// The helpers of this file let the adapters of several frameworks serve an App.

// ServeHTTP serves app by h with net/http, on which all frameworks except Fiber are based.
func ServeHTTP(h http.Handler, app App) *Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // some cases panic after the header on purpose
	s.Config.WriteTimeout = app.WriteTimeout
	if app.Base != nil {
		s.Config.BaseContext = func(net.Listener) context.Context { return app.Base }
	}
	s.EnableHTTP2 = app.HTTP2
	if app.HTTP2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	return &Server{URL: s.URL, Transport: s.Client().Transport.(*http.Transport), Close: s.Close}
}

// SignIn stores the user in a request's context, under key and the typed key.
func SignIn(r *http.Request, key any, user string) *http.Request {
	ctx := context.WithValue(r.Context(), TypedUserKey, user)
	return r.WithContext(context.WithValue(ctx, key, user))
}

// AllowOrigins lets scripts of all origins read a response. It reports whether the request is a preflight, which the caller
// answers with 204.
func AllowOrigins(h http.Header, r *http.Request) (preflight bool) {
	h.Set("Access-Control-Allow-Origin", "*")
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// A Zipper is a response writer that compresses the body, until it is closed.
type Zipper struct {
	http.ResponseWriter
	*gzip.Writer
}

// Zip returns w wrapped as a compression middleware does it.
func Zip(w http.ResponseWriter) Zipper {
	w.Header().Set("Content-Encoding", "gzip")
	return Zipper{w, gzip.NewWriter(w)}
}

// Header returns the header of the response.
func (z Zipper) Header() http.Header { return z.ResponseWriter.Header() }

// WriteHeader removes the length of the uncompressed body.
func (z Zipper) WriteHeader(status int) {
	z.Header().Del("Content-Length")
	z.ResponseWriter.WriteHeader(status)
}

// Write compresses b. It removes the length again, because Gin 1.12 sets it between WriteHeader and Write.
func (z Zipper) Write(b []byte) (int, error) {
	z.Header().Del("Content-Length")
	return z.Writer.Write(b)
}

// A statusWriter records the status that was written.
type statusWriter struct {
	http.ResponseWriter

	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// LogTo returns a handler that calls next, and then saw with the status.
func LogTo(saw func(status int), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := &statusWriter{w, http.StatusOK}
		next.ServeHTTP(s, r)
		saw(s.status)
	})
}

// Colons converts a path from the form /users/{id} to /users/:id.
func Colons(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// Each makes the middlewares of mounts.
func Each[M any](mounts []Mount, middleware func(Mount) M) []M {
	middlewares := make([]M, 0, len(mounts))
	for _, mount := range mounts {
		middlewares = append(middlewares, middleware(mount))
	}
	return middlewares
}

// An HTTPContext has the parts of a [Context] that frameworks on net/http have in common.
type HTTPContext struct {
	W      http.ResponseWriter
	R      *http.Request
	Refuse func(status int) error                                   // fails by the framework's own error
	Show   func() (core.Result, bool)                               // the adapter's Result
	Charge func(n int64)                                            // the adapter's SetCost
	Reply  func(core.Decision, error) (answered bool, answer error) // the adapter's Answerer
}

// Write writes body. It writes a status only if that is not 0.
func (c HTTPContext) Write(status int, body string) error {
	if status != 0 {
		c.W.WriteHeader(status)
	}
	_, err := io.WriteString(c.W, body)
	return err
}

// Fail calls Refuse.
func (c HTTPContext) Fail(status int) error { return c.Refuse(status) }

// Throw returns err.
func (HTTPContext) Throw(err error) error { return err }

// Stream flushes the first part before it calls more.
func (c HTTPContext) Stream(first string, more func(), second string) error {
	flusher, ok := c.W.(http.Flusher)
	if !ok {
		return errors.New("no http.Flusher")
	}
	if _, err := io.WriteString(c.W, first); err != nil {
		return err
	}
	flusher.Flush()
	more()
	_, err := io.WriteString(c.W, second)
	return err
}

// Upgrade takes over the connection.
func (c HTTPContext) Upgrade(talk func(io.ReadWriter)) error {
	hijacker, ok := c.W.(http.Hijacker)
	if !ok {
		return errors.New("no http.Hijacker")
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		return err
	}
	talk(struct {
		io.Reader
		io.Writer
	}{buffered, conn})
	return nil
}

// Gone is closed when net/http has noticed that the client left.
func (c HTTPContext) Gone() <-chan struct{} { return c.R.Context().Done() }

// Context returns the request's context.
func (c HTTPContext) Context() context.Context { return c.R.Context() }

// Upload parses the form, and keeps only a byte of it in memory.
func (c HTTPContext) Upload() error { return c.R.ParseMultipartForm(1) }

// Writer returns W.
func (c HTTPContext) Writer() http.ResponseWriter { return c.W }

// Result calls Show.
func (c HTTPContext) Result() (core.Result, bool) { return c.Show() }

// SetCost calls Charge.
func (c HTTPContext) SetCost(n int64) { c.Charge(n) }

// Answer calls Reply.
func (c HTTPContext) Answer(decision core.Decision, err error) (answered bool, answer error) {
	return c.Reply(decision, err)
}

// CostSetter returns Charge.
func (c HTTPContext) CostSetter() func(n int64) { return c.Charge }
