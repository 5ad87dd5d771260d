package httpsuite_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	echolimit "github.com/redislimit/redislimit/echo"
	fiberlimit "github.com/redislimit/redislimit/fiber"
	ginlimit "github.com/redislimit/redislimit/gin"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/suite/httpsuite/fasthttpsuite"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// TestIPAllocations checks that the key of a direct peer allocates only its own string. With fasthttp, it also allocates
// the text of the peer's address, which fasthttp has only as a net.Addr.
func TestIPAllocations(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = r
	httpsuite.IPAllocates(t, httplimit.Request(r), 1)
	httpsuite.IPAllocates(t, ginlimit.Request(c), 1)
	httpsuite.IPAllocates(t, echolimit.Request(echo.New().NewContext(r, nil)), 1)
	app := fiber.New()
	f := app.AcquireCtx(fasthttpsuite.NewContext())
	defer app.ReleaseCtx(f)
	httpsuite.IPAllocates(t, fiberlimit.Request(f), 2)
}
