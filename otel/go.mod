// A module of its own, so that the library's users require no OpenTelemetry: see
// the package's documentation.
module github.com/redislimit/redislimit/otel

go 1.25.0

require (
	github.com/redis/go-redis/v9 v9.22.0 // tests
	github.com/redislimit/redislimit v0.0.0-20261129033212-182248019887 // a commit of main: see _examples/apps/first_steps_test.go; a release has its tag here
	go.opentelemetry.io/otel v1.45.0
	go.opentelemetry.io/otel/metric v1.45.0
	go.opentelemetry.io/otel/sdk v1.45.0 // tests
	go.opentelemetry.io/otel/sdk/metric v1.45.0 // tests
	go.opentelemetry.io/otel/trace v1.45.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

// The library in this repository. Only builds in this checkout use the line, not those of users.
replace github.com/redislimit/redislimit => ../
