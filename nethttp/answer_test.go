package httplimit

import (
	"bytes"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
)

// TestAnswererLogger checks that mistakes of an Answerer are logged by the logger of the outer middleware's limiter, or by the
// default logger if there is no middleware.
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
			t.Errorf("behind a middleware: %t: want one error, in its logger only; the default logger has %s, and the limiter's has %s", behind, standard.String(), own.String())
		}
		own.Reset()
		standard.Reset()
	}
}

// TestAnswererUploads parses an upload in the application's own answer, and checks that its temporary files are removed.
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
			t.Errorf("ParseMultipartForm: got error %v, want none", err)
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
			t.Errorf("%s: %d temporary files stay, %v; want none", name, len(entries), err)
		}
	}
	if parsed != 2 {
		t.Errorf("%d temporary files were made, want 2", parsed)
	}
}

// TestAnswererHandlerNil checks that Handler panics without a handler.
func TestAnswererHandlerNil(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("Handler(nil) did not panic")
		}
	}()
	NewAnswerer().Handler(nil)
}
