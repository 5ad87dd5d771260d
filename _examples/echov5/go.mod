// A module of its own: it needs Echo v5, which the library does not require.
module github.com/redislimit/redislimit/_examples/echov5

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/labstack/echo/v5 v5.2.1
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redislimit/redislimit v0.0.0-20261129033212-182248019887
	github.com/redislimit/redislimit/echov5 v0.0.0-00010101000000-000000000000
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.46.0 // indirect
)

replace (
	github.com/redislimit/redislimit => ../..
	github.com/redislimit/redislimit/echov5 => ../../echov5
)
