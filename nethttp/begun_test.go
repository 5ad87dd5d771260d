package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/felixge/httpsnoop"
)

// A plainWrapper is a writer of a middleware that has no method Unwrap.
type plainWrapper struct{ http.ResponseWriter }

// A loop is a writer that unwraps itself.
type loop struct{ http.ResponseWriter }

func (l loop) Unwrap() http.ResponseWriter { return l }

// A nilWriter is a writer that embeds a nil pointer.
type nilWriter struct {
	*httptest.ResponseRecorder

	header http.Header
}

func (w nilWriter) Header() http.Header       { return w.header }
func (nilWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nilWriter) WriteHeader(int)             {}

// TestHasBegun checks hasBegun before and after a handler writes, for each kind of writer that net/http has, also if middlewares wrap
// the writer.
func TestHasBegun(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"bare":     func(w http.ResponseWriter) http.ResponseWriter { return w },
		"Unwrap":   func(w http.ResponseWriter) http.ResponseWriter { return httpsnoop.Wrap(w, httpsnoop.Hooks{}) },
		"embedded": func(w http.ResponseWriter) http.ResponseWriter { return &plainWrapper{w} },
		"two of them": func(w http.ResponseWriter) http.ResponseWriter {
			return plainWrapper{httpsnoop.Wrap(w, httpsnoop.Hooks{})}
		},
	} {
		for begin, write := range map[string]func(w http.ResponseWriter){
			"Write":       func(w http.ResponseWriter) { _, _ = io.WriteString(w, "begun") },
			"WriteHeader": func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
		} {
			handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w = wrap(w)
				before := hasBegun(w)
				if w.Header().Set("Before", fmt.Sprint(before)); before {
					return
				}
				write(w)
				if !hasBegun(w) {
					_, _ = io.WriteString(w, "not noticed")
				}
			})
			for server, serve := range map[string]func(t *testing.T) *http.Response{
				"HTTP/1": func(t *testing.T) *http.Response { return getFrom(t, httptest.NewUnstartedServer(handler), false) },
				"HTTP/2": func(t *testing.T) *http.Response { return getFrom(t, httptest.NewUnstartedServer(handler), true) },
				"TimeoutHandler": func(t *testing.T) *http.Response {
					return getFrom(t, httptest.NewUnstartedServer(http.TimeoutHandler(handler, time.Minute, "late")), false)
				},
				"httptest": func(t *testing.T) *http.Response {
					w := httptest.NewRecorder()
					handler(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
					return w.Result()
				},
			} {
				t.Run(server+"/"+name+"/"+begin, func(t *testing.T) {
					t.Parallel()
					response := serve(t)
					body, err := io.ReadAll(response.Body)
					if err != nil || response.Header.Get("Before") != "false" || strings.Contains(string(body), "not noticed") {
						t.Errorf("hasBegun before the handler writes: got %s, want false; the body is %q, %v", response.Header.Get("Before"), body, err)
					}
					_ = response.Body.Close()
				})
			}
		}
	}
}

// getFrom starts a server that runs until the test ends, and returns its response to a request for "/".
func getFrom(t *testing.T, server *httptest.Server, http2 bool) *http.Response {
	t.Helper()
	if server.EnableHTTP2 = http2; http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if http2 != (response.ProtoMajor == 2) {
		t.Fatalf("got protocol %s, want HTTP/2: %t", response.Proto, http2)
	}
	return response
}

// TestHasBegunStrange checks writers that lack the field of net/http's writers, or do not lead to a writer: hasBegun must return false,
// and must neither panic nor run forever.
func TestHasBegunStrange(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	for name, w := range map[string]http.ResponseWriter{
		"nil": nil, "a nil pointer": (*plainWrapper)(nil), "nil inside": plainWrapper{}, "a loop": loop{recorder},
		"a nil pointer inside": nilWriter{header: http.Header{}},
	} {
		if hasBegun(w) {
			t.Errorf("%s: hasBegun returned true, want false", name)
		}
	}
}
