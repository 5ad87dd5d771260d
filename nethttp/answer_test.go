package httplimit

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/felixge/httpsnoop"

	"github.com/redislimit/redislimit/core"
)

// A plainWrapper is a writer of a middleware that has no method Unwrap.
type plainWrapper struct{ http.ResponseWriter }

// A loop unwraps itself.
type loop struct{ http.ResponseWriter }

func (l loop) Unwrap() http.ResponseWriter { return l }

// A nilWriter embeds a nil pointer.
type nilWriter struct {
	*httptest.ResponseRecorder

	header http.Header
}

func (w nilWriter) Header() http.Header       { return w.header }
func (nilWriter) Write(b []byte) (int, error) { return len(b), nil }
func (nilWriter) WriteHeader(int)             {}

// TestHasBegun looks at responses before and after a handler writes, with each kind of net/http's writers, also wrapped by middlewares.
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
						t.Errorf("begun before: %s; then %q, %v", response.Header.Get("Before"), body, err)
					}
					_ = response.Body.Close()
				})
			}
		}
	}
}

// getFrom starts a server until the test ends, and asks it for "/".
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
		t.Fatal(response.Proto)
	}
	return response
}

// TestHasBegunStrange looks at writers that have no such field, or lead nowhere.
func TestHasBegunStrange(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	for name, w := range map[string]http.ResponseWriter{
		"nil": nil, "a nil pointer": (*plainWrapper)(nil), "nil inside": plainWrapper{}, "a loop": loop{recorder},
		"a nil pointer inside": nilWriter{header: http.Header{}},
	} {
		if hasBegun(w) {
			t.Errorf("%s has begun", name)
		}
	}
}

// TestAnswererLogger expects a mistake in the log of the limiter whose middleware is further out, or else in the default log.
func TestAnswererLogger(t *testing.T) {
	var own, standard strings.Builder
	old := slog.Default()
	t.Cleanup(func() { slog.SetDefault(old) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&standard, nil)))
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerHour(9)), core.Logger(slog.New(slog.NewTextHandler(&own, nil))))
	for _, behind := range []bool{false, true} {
		limit := NewAnswerer()
		var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			res, err := lim.Allow(r.Context(), "")
			limit.Answer(w, r, res, err)
		})
		if behind {
			h = Middleware(lim, Key(func(*http.Request) (string, error) { return "k", nil }))(h)
		}
		for range 2 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		}
		got, other := &standard, &own
		if behind {
			got, other = other, got
		}
		if strings.Count(got.String(), "level=ERROR") != 1 || other.Len() > 0 {
			t.Errorf("behind a middleware: %t; logged by default: %s; by the limiter: %s", behind, standard.String(), own.String())
		}
		own.Reset()
		standard.Reset()
	}
}

// TestAnswererUploads parses an upload in the application's own answer: no temporary file stays.
func TestAnswererUploads(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, _ := form.CreateFormFile("file", "name")
	_, _ = file.Write(make([]byte, 1<<16))
	_ = form.Close()
	parsed := 0
	parse := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		entries, _ := os.ReadDir(os.TempDir())
		parsed += len(entries)
	})
	limit := NewAnswerer(OnError(parse))
	for name, h := range map[string]http.Handler{
		"Answer":  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { limit.Answer(w, r, nil, core.ErrUnavailable) }),
		"Handler": limit.Handler(parse),
	} {
		server := httptest.NewServer(h)
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, bytes.NewReader(body.Bytes()))
		r.Header.Set("Content-Type", form.FormDataContentType())
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		server.Close()
		if entries, err := os.ReadDir(os.TempDir()); err != nil || len(entries) > 0 {
			t.Errorf("%s: %d files stay, %v", name, len(entries), err)
		}
	}
	if parsed != 2 {
		t.Errorf("%d files were made, want 2", parsed)
	}
}

func TestAnswererHandlerNil(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewAnswerer().Handler(nil)
}
