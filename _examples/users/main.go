// Command users limits users of organizations: a user may send 5 requests per minute, and all users of
// an organization together 12. A request that one of the limits denies is charged to neither. It is one
// file that you can copy, like the other examples. Without -redis it starts an embedded Redis, so that
// "go run ./_examples/users" needs nothing else.
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
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func main() {
	rdb, listener := start()
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	perUser := core.MustNew(rdb, "user", core.TokenBucket(core.PerMinute(5)), patient)
	perOrg := core.MustNew(rdb, "org", core.TokenBucket(core.PerMinute(12)), patient)
	server := &http.Server{Handler: routes(perUser, perOrg), ReadHeaderTimeout: 5 * time.Second}
	serve(listener, server.Serve, server.Shutdown)
}

// try is printed at the start.
const try = `
alice has 5 requests, however many she sends; bob has 5, too, and carol what is left of the 12 that they share:
  for user in alice bob carol; do for i in 1 2 3 4 5 6 7; do curl -s -H "User: $user@acme" -o /dev/null -w '%{http_code} ' URL/; done; echo $user; done
  curl -i -H 'User: carol@acme' URL/
  curl -i -H 'User: dave@initech' URL/
`

func routes(perUser, perOrg *core.Limiter) http.Handler {
	org := func(r keyfunc.Request) (string, error) {
		u, ok := r.Value(userKey{}).(user)
		if !ok {
			return "", keyfunc.ErrNoKey
		}
		return "org:" + u.org, nil
	}
	limited := httplimit.Middleware(perUser, keyfunc.User(userKey{}),
		guard.AlsoLimit(perOrg, org),
		guard.Headers(guard.XRateLimit|guard.IETF))
	return authenticate(limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "hello %v\n", r.Context().Value(userKey{}))
	})))
}

// A user is the result of authentication.
type user struct{ name, org string }

func (u user) String() string { return u.name + "@" + u.org }

// userKey is the key under which authenticate stores the user in a request's context.
type userKey struct{}

// authenticate trusts the header that the client sends. A real service must not.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, org, ok := strings.Cut(cmp.Or(r.Header.Get("User"), "anonymous@nobody"), "@")
		if !ok {
			http.Error(w, "want a user such as alice@acme", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user{name, org})))
	})
}

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
