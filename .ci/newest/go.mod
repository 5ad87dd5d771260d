// The newest versions of what this stands on, for tests and the linter: see in_newest of .ci/run. Pinned, so that CI
// tests the same every time; the other go.mod files have the oldest.
module github.com/redislimit/redislimit/ci/newest

go 1.25.0

require (
	github.com/gin-gonic/gin v1.12.0
	github.com/gofiber/fiber/v2 v2.52.15
	github.com/gofiber/fiber/v3 v3.4.0
	github.com/labstack/echo/v4 v4.16.0
	github.com/labstack/echo/v5 v5.3.1
	github.com/redis/go-redis/v9 v9.23.0
	google.golang.org/grpc v1.85.0
)
