package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// TestContextShowsNothing prints the context of a request and one that is derived from it, as logs do. The text must contain neither the
// user's key nor a header of the request.
func TestContextShowsNothing(t *testing.T) {
	t.Parallel()
	lim, err := core.NewMemory("printed", core.FixedWindow(core.PerMinute(9)))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	h := Middleware(lim, keyfunc.BasicAuth())(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		child, cancel := context.WithCancel(r.Context())
		defer cancel()
		text = fmt.Sprintf("%v %+v %#v %s %v", r.Context(), r.Context(), r.Context(), r.Context(), child)
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.SetBasicAuth("alice", "password")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if text == "" || strings.Contains(text, "alice") || strings.Contains(text, r.Header.Get("Authorization")) {
		t.Errorf("a context is printed as %s, want it without the user and the password", text)
	}
}
