package httplimit

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestIPAllocations holds that a direct peer's key costs nothing but itself.
func TestIPAllocations(t *testing.T) {
	var r keyfunc.Request = request{httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)}
	key := keyfunc.IP()
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 1 {
		t.Errorf("%v allocations, want at most 1", n)
	}
}

// TestUploadIsRemoved holds that the server finds the temporary files of an upload,
// although the handler parsed another request than the one that the server has.
func TestUploadIsRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	lim, err := core.NewMemory("upload", core.FixedWindow(core.PerMinute(10)))
	if err != nil {
		t.Fatal(err)
	}
	parsed := make(chan int, 1)
	server := httptest.NewServer(Middleware(lim, keyfunc.IP())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
		files, _ := os.ReadDir(temp)
		parsed <- len(files)
	})))
	defer server.Close()

	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	file, err := form.CreateFormFile("file", "large")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write(make([]byte, 1<<20))
	_ = form.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, &body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if n := <-parsed; n != 1 {
		t.Fatalf("the upload is in %d temporary files, want 1", n)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		files, err := os.ReadDir(temp)
		if err != nil || time.Now().After(deadline) {
			t.Fatal("the temporary file is still there", err)
		}
		if len(files) == 0 {
			return
		}
	}
}
