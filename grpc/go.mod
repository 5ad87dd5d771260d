// A module of its own, so that users of HTTP do not require gRPC. It requires the oldest
// grpc-go without a vulnerability that is known.
module github.com/redislimit/redislimit/grpc

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0
	github.com/redislimit/redislimit v0.0.0-20261129033212-182248019887 // a commit of main: see _examples/apps/first_steps_test.go; a release has its tag here
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa
	google.golang.org/grpc v1.83.2
	google.golang.org/protobuf v1.36.11
)

require github.com/alicebob/miniredis/v2 v2.40.0

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/felixge/httpsnoop v1.0.4 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/net v0.58.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

// The library in this repository. Only builds in this checkout use the line, not those of users.
replace github.com/redislimit/redislimit => ../
