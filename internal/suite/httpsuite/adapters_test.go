package httpsuite_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/suite/httpsuite"
)

// The frameworks.
func TestNetHTTP(t *testing.T) { httpsuite.Exercise(t, netHTTP()) }
func TestGin(t *testing.T)     { httpsuite.Exercise(t, ginFramework()) }
func TestEcho(t *testing.T)    { httpsuite.Exercise(t, echoFramework()) }
func TestFiber(t *testing.T)   { httpsuite.Exercise(t, fiberFramework()) }

// serveHTTP serves with net/http, on which all but Fiber stand.
func serveHTTP(h http.Handler, http2 bool) *httpsuite.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // a panic after the header is meant
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	return &httpsuite.Server{URL: s.URL, Transport: s.Client().Transport.(*http.Transport), Close: s.Close}
}

// streamTo streams to a writer of net/http.
func streamTo(w http.ResponseWriter, flush func(), first string, more func(), second string) error {
	if _, err := io.WriteString(w, first); err != nil {
		return err
	}
	flush()
	more()
	_, err := io.WriteString(w, second)
	return err
}

// upgradeFrom takes over the connection of a Hijacker, and talks.
func upgradeFrom(w http.Hijacker, talk func(io.ReadWriter)) error {
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

// colons writes /users/{id} as /users/:id.
func colons(path string) string { return strings.NewReplacer("{", ":", "}", "").Replace(path) }

// each makes middlewares of mounts.
func each[M any](mounts []httpsuite.Mount, middleware func(httpsuite.Mount) M) []M {
	middlewares := make([]M, 0, len(mounts))
	for _, mount := range mounts {
		middlewares = append(middlewares, middleware(mount))
	}
	return middlewares
}
