package echolimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/redislimit/redislimit/keyfunc"
)

// TestIPAllocations holds that a direct peer's key costs nothing but itself.
func TestIPAllocations(t *testing.T) {
	var r keyfunc.Request = newRequest(echo.New().NewContext(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil), nil))
	key := keyfunc.IP()
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 1 {
		t.Errorf("%v allocations, want at most 1", n)
	}
}
