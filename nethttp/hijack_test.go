package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// An unwrapping is the usual writer of a middleware: it embeds an http.ResponseWriter, and has Unwrap for
// http.ResponseController.
type unwrapping struct{ http.ResponseWriter }

func (u unwrapping) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// A flushing is an unwrapping that can be flushed.
type flushing struct {
	unwrapping
	http.Flusher
}

// TestHijackThroughUnwrap takes over connections behind middlewares whose writers have no method Hijack. CountIf must see the status 101
// and not 200: otherwise, guesses that are answered over such connections would be free.
func TestHijackThroughUnwrap(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"no middleware": func(w http.ResponseWriter) http.ResponseWriter { return w },
		"Unwrap":        func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{w} },
		"two of them":   func(w http.ResponseWriter) http.ResponseWriter { return unwrapping{unwrapping{w}} },
		"Flush, too":    func(w http.ResponseWriter) http.ResponseWriter { return flushing{unwrapping{w}, w.(http.Flusher)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lim := core.MustNewMemory("login", core.FixedWindow(core.PerHour(2)))
			failures := guard.CountIf(func(status int) bool { return status != http.StatusOK })
			limited := Middleware(lim, keyfunc.Global(), failures)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if _, flushes := w.(http.Flusher); flushes != (name == "no middleware" || name == "Flush, too") {
					t.Errorf("the writer of the handler has Flush: %t, want it as outside of the middleware", flushes)
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Errorf("Hijack: %v, want the connection", err)
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
				_ = conn.Close()
			}))
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limited.ServeHTTP(wrap(w), r) })
			for i, want := range []int{401, 401, 429} {
				response := getFrom(t, httptest.NewUnstartedServer(handler), false)
				if response.StatusCode != want {
					t.Errorf("guess %d: got status %d, want %d", i+1, response.StatusCode, want)
				}
				_ = response.Body.Close()
			}
		})
	}
}

// TestNothingToHijack checks that a writer gets no method Hijack if no writer inside of it has one, as with HTTP/2.
func TestNothingToHijack(t *testing.T) {
	t.Parallel()
	var status int
	for name, w := range map[string]http.ResponseWriter{
		"a recorder": httptest.NewRecorder(), "Unwrap": unwrapping{httptest.NewRecorder()}, "no Unwrap": plainWrapper{}, "a loop": loop{},
	} {
		if _, ok := watch(w, 0, &status).(http.Hijacker); ok {
			t.Errorf("%s: the writer has the method Hijack, want none", name)
		}
	}
}
