// A module of its own, so that users of another framework, or of Fiber v2, do not require
// Fiber v3.
module github.com/redislimit/redislimit/fiberv3

go 1.25.0

require (
	github.com/gofiber/fiber/v3 v3.3.0
	github.com/redis/go-redis/v9 v9.22.0 // tests
	github.com/redislimit/redislimit v0.0.0-20261129033212-182248019887 // a commit of main: see _examples/apps/first_steps_test.go; a release has its tag here
	github.com/valyala/fasthttp v1.71.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/andybalholm/brotli v1.2.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dunglas/httpsfv v1.1.0 // indirect
	github.com/gofiber/schema v1.7.1 // indirect
	github.com/gofiber/utils/v2 v2.0.6 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/klauspost/compress v1.18.6 // indirect
	github.com/mattn/go-colorable v0.1.15 // indirect
	github.com/mattn/go-isatty v0.0.22 // indirect
	github.com/philhofer/fwd v1.2.0 // indirect
	github.com/tinylib/msgp v1.6.4 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/crypto v0.53.0 // indirect
	golang.org/x/net v0.56.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
	golang.org/x/text v0.38.0 // indirect
)

// The library in this repository. Only builds in this checkout use the line, not those of users.
replace github.com/redislimit/redislimit => ../
