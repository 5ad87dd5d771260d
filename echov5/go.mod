// A module of its own, so that users of another framework, or of Echo v4, do not require
// Echo v5.
module github.com/redislimit/redislimit/echov5

go 1.25.0

require (
	github.com/labstack/echo/v5 v5.2.1
	github.com/redislimit/redislimit v0.0.0-20261129033212-182248019887 // a commit of main: see _examples/apps/first_steps_test.go; a release has its tag here
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/redis/go-redis/v9 v9.22.0 // tests
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/dunglas/httpsfv v1.1.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	golang.org/x/time v0.14.0 // indirect
)

// The library in this repository. Only builds in this checkout use the line, not those of users.
replace github.com/redislimit/redislimit => ../
