// Command grpc limits a gRPC server: calls by API key or address, and how many streams each client has open. It is one
// file that you can copy: in a module of yours, "go mod tidy && go run ." runs it. Without -redis it starts an embedded
// Redis, so that "go run -C _examples/grpc ." needs nothing else.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	grpclimit "github.com/redislimit/redislimit/grpc"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb, listener := start()
	server := limited(rdb)
	serve(listener, server.Serve, func(context.Context) error {
		time.AfterFunc(5*time.Second, server.Stop) // ends the streams that are still open
		server.GracefulStop()
		return nil
	})
}

// try is printed at the start. A gRPC call is a POST request of HTTP/2, whose body is a length and a message. The message is empty here.
const try = `
10 calls in 10 seconds from each address, so that the last of these 12 are denied with RESOURCE_EXHAUSTED, which is 8:
  call() { printf '\0\0\0\0\0' | curl -s --http2-prior-knowledge -H 'Content-Type: application/grpc' -H 'TE: trailers' --data-binary @- -o /dev/null -D - "$@" | grep -E '^(grpc-status|x-ratelimit-remaining|retry-after):'; }
  for i in $(seq 12); do call URL/grpc.health.v1.Health/Check; done
5 a second with each API key:
  call -H 'X-API-Key: demo-key-1' URL/grpc.health.v1.Health/Check
2 streams at a time from each client, so that the third is denied:
  for i in 1 2 3; do call -m 2 URL/grpc.health.v1.Health/Watch & done; wait
`

// limited returns a server with two limits around the health service, which every gRPC server can have. A server of yours has other services.
func limited(rdb core.Client) *grpc.Server {
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	home := core.MustNew(rdb, "demo-calls", core.TokenBucket(core.Per(10, 10*time.Second)), patient)
	paid := core.MustNew(rdb, "demo-paid", core.GCRA(core.PerSecond(5)), patient)
	streams := core.MustNew(rdb, "demo-streams", core.InFlight(2), patient)

	byClient := keyfunc.FirstOf(keyfunc.APIKey("X-API-Key", keyfunc.Known(issued)), keyfunc.IP())
	tier := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		if issued(r.Header("X-API-Key")) {
			return paid, nil
		}
		return nil, nil //nolint:nilnil // home
	})
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(grpclimit.Unary(home, byClient, tier, grpclimit.CountIf(served))),
		grpc.ChainStreamInterceptor(grpclimit.Stream(streams, byClient)))
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server
}

// served reports whether a call counts. Calls that fail because of this service do not.
func served(code codes.Code) bool { return code != codes.Internal && code != codes.Unavailable }

// issued reports whether an API key is one that this service has issued.
func issued(key string) bool { return key == "demo-key-1" || key == "demo-key-2" }

// The rest is not about limits: flags, the connection to Redis, start and stop.

// start reads the flags, connects to Redis and listens.
func start() (redis.UniversalClient, net.Listener) {
	log.SetFlags(0)
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	redisURL := flag.String("redis", "", "`URL` of Redis, such as redis://localhost:6379; for a Cluster with ?addr=host:port,\n"+
		"for Sentinels with ?master_name=name; default $REDIS_URL, or else an embedded Redis")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is not a flag; -help lists the flags", flag.Arg(0))
	}
	rdb := connect(cmp.Or(*redisURL, os.Getenv("REDIS_URL")))
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err, "; choose another address, such as -addr 127.0.0.1:8081")
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String()) // a TCP address can be split
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	at := "http://" + net.JoinHostPort(host, port)
	fmt.Printf("Listening on %s, try:\n%s", at, strings.ReplaceAll(try, "URL", at))
	return rdb, listener
}

// connect opens the Redis at a URL. If the URL is empty, it starts one in this process.
func connect(redisURL string) (rdb redis.UniversalClient) {
	if redisURL == "" {
		if strconv.IntSize == 32 {
			log.Fatal("-redis is needed in a 32-bit program: the embedded Redis (miniredis) cuts times to 32 bits there")
		}
		embedded := must(miniredis.Run())
		embedded.ClockTTL(true) // lets keys expire
		redisURL = "redis://" + embedded.Addr()
		fmt.Println("No -redis given: using an embedded Redis (miniredis) in this process. Its counts end with it.")
	}
	u, err := url.Parse(redisURL)
	if err != nil || !strings.Contains(redisURL, "://") {
		log.Fatal("-redis: not a URL such as redis://localhost:6379") // err would show the password
	}
	switch query := u.Query(); {
	case query.Has("master_name"):
		opt := must(redis.ParseFailoverURL(redisURL))
		opt.ContextTimeoutEnabled = true // saves a goroutine for each decision
		rdb = redis.NewFailoverClient(opt)
	case query.Has("addr"):
		opt := must(redis.ParseClusterURL(redisURL))
		opt.ContextTimeoutEnabled = true
		rdb = redis.NewClusterClient(opt)
	default:
		opt := must(redis.ParseURL(redisURL))
		opt.ContextTimeoutEnabled = true
		rdb = redis.NewClient(opt)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	must(rdb.Ping(ctx).Result())
	return rdb
}

// must returns v, or ends the program with err, which is about -redis.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal("-redis: ", err)
	}
	return v
}

// serve serves until SIGINT or SIGTERM, and then lets requests in flight finish.
func serve(l net.Listener, serve func(net.Listener) error, shutdown func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	go func() {
		if err := serve(l); ctx.Err() == nil {
			log.Fatal(err)
		}
	}()
	<-ctx.Done()
	stop() // a second signal ends the program at once
	if err := shutdown(context.Background()); err != nil {
		log.Fatal(err)
	}
}
