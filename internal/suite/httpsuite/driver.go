package httpsuite

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
)

// What the adapters of several frameworks need to serve an App.

// ServeHTTP serves with net/http, on which all but Fiber stand.
func ServeHTTP(h http.Handler, http2 bool) *Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a panic after the header is meant
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	return &Server{URL: s.URL, Transport: s.Client().Transport.(*http.Transport), Close: s.Close}
}

// StreamTo streams to a writer of net/http.
func StreamTo(w http.ResponseWriter, flush func(), first string, more func(), second string) error {
	if _, err := io.WriteString(w, first); err != nil {
		return err
	}
	flush()
	more()
	_, err := io.WriteString(w, second)
	return err
}

// UpgradeFrom takes over the connection of a Hijacker, and talks.
func UpgradeFrom(w http.Hijacker, talk func(io.ReadWriter)) error {
	conn, buffered, err := w.Hijack()
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

// SignIn stores the user in a request's context, under key and the typed key.
func SignIn(r *http.Request, key any, user string) *http.Request {
	ctx := context.WithValue(r.Context(), TypedUserKey, user)
	return r.WithContext(context.WithValue(ctx, key, user))
}

// Colons writes /users/{id} as /users/:id.
func Colons(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// Each makes middlewares of mounts.
func Each[M any](mounts []Mount, middleware func(Mount) M) []M {
	middlewares := make([]M, 0, len(mounts))
	for _, mount := range mounts {
		middlewares = append(middlewares, middleware(mount))
	}
	return middlewares
}
