// Command start is the README's program for gRPC.
package main

import (
	"log"
	"net"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/redislimit/redislimit/core"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))

	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.Unary(lim, keyfunc.IP())),
		grpc.ChainStreamInterceptor(grpclimit.Stream(lim, keyfunc.IP())))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer()) // and your services
	listener, err := net.Listen("tcp", "localhost:8080")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
