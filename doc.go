// Package redislimit is documentation only: rate limiting for Go web services, backed by Redis. A limit
// applies to all machines of a service together, because the count is kept in Redis, and each decision
// is one atomic script.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	http.Handle("/", httplimit.Middleware(lim, keyfunc.IP())(mux))
//
// The packages:
//
//   - [github.com/redislimit/redislimit/core]: limiters and algorithms, without HTTP
//   - [github.com/redislimit/redislimit/keyfunc]: key functions, which say by what requests are counted: address, user, API key
//   - [github.com/redislimit/redislimit/core/guard]: the options of the middleware
//   - [github.com/redislimit/redislimit/nethttp]: middleware for net/http, package httplimit
//   - [github.com/redislimit/redislimit/gin]: for Gin, package ginlimit
//   - [github.com/redislimit/redislimit/echo]: for Echo v4, package echolimit
//   - [github.com/redislimit/redislimit/fiber]: for Fiber v2, package fiberlimit
//   - github.com/redislimit/redislimit/echov5 and fiberv3: for Echo v5 and Fiber v3, modules of their own
//   - github.com/redislimit/redislimit/grpc: interceptors for gRPC servers, a module of its own
//   - [github.com/redislimit/redislimit/admin]: a page that shows which keys are denied, and can block and unblock them
//   - [github.com/redislimit/redislimit/limittest]: limiters for tests of your own service
//   - github.com/redislimit/redislimit/otel: OpenTelemetry metrics, a module of its own
package redislimit
