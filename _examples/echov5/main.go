// Command echov5 limits requests with Echo v5: by address, by user and by API key. It is
// one file that you can copy: in a module of yours, "go mod tidy && go run ." runs it. Without
// -redis it starts an embedded Redis, so that "go run -C _examples/echov5 ." needs nothing else.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	echolimit "github.com/redislimit/redislimit/echov5"
	"github.com/redislimit/redislimit/keyfunc"
)

func main() {
	rdb, listener := start()
	server := &http.Server{Handler: routes(rdb), ReadHeaderTimeout: 5 * time.Second}
	serve(listener, server.Serve, server.Shutdown)
}

// try is printed at the start.
const try = `
10 requests in 10 seconds from each address, so that the last of these 12 are denied with 429:
  for i in $(seq 12); do curl -s -o /dev/null -w '%{http_code}\n' URL/; done
  curl -i URL/
5 requests a minute by each user:
  curl -i -u alice:any URL/user
5 a second and 20 a minute with each API key:
  curl -i -H 'X-API-Key: demo-key-1' URL/key
`

func routes(rdb core.Client) http.Handler {
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	home := core.MustNew(rdb, "demo-home", core.TokenBucket(core.Per(10, 10*time.Second)), patient)
	user := core.MustNew(rdb, "demo-user", core.FixedWindow(core.PerMinute(5)), patient)
	apiKey := core.MustNew(rdb, "demo-key", core.GCRA(core.PerSecond(5)), core.SlidingWindowLog(core.PerMinute(20)), patient)

	byIP := echolimit.Middleware(home, keyfunc.IP())
	byUser := echolimit.Middleware(user, keyfunc.User("user"))
	byKey := echolimit.Middleware(apiKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(issued)))

	e := echo.New()
	e.HTTPErrorHandler = problem
	e.GET("/", say("hello"), byIP)
	e.GET("/user", say("hello, user"), authenticate, byUser)
	e.GET("/key", say("hello, key"), byKey)
	e.GET("/healthz", say("ok"))
	return e
}

func say(text string) echo.HandlerFunc {
	return func(c *echo.Context) error { return c.String(http.StatusOK, text+"\n") }
}

// authenticate accepts any password.
func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		user, _, _ := c.Request().BasicAuth()
		if user == "" {
			c.Response().Header().Set("WWW-Authenticate", `Basic realm="demo"`)
			return echo.ErrUnauthorized
		}
		c.Set("user", user)
		return next(c)
	}
}

// problem answers every error with problem details, also errors of the limiters.
func problem(c *echo.Context, err error) {
	if response, status := echo.ResolveResponseStatus(c.Response(), err); response == nil || !response.Committed {
		_ = c.Blob(status, guard.ProblemType, guard.Problem(status, err)) // an error means that the client has disconnected
	}
}

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
