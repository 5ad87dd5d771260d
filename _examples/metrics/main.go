// Command metrics is the net/http example with Prometheus metrics of its limiters on
// /metrics. It is one file that you can copy, like the other examples. In this repository, it is a
// Go module of its own: run it with "go run -C _examples/metrics .".
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
	otellimit "github.com/redislimit/redislimit/otel"
)

func main() {
	rdb, listener := start()
	telemetry, metrics, err := prometheusMetrics()
	if err != nil {
		log.Fatal(err)
	}
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	server := &http.Server{Handler: routes(rdb, metrics, patient, telemetry), ReadHeaderTimeout: 5 * time.Second}
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
3 wrong passwords a minute from each address; a client that continues is banned for a minute:
  curl -i -u alice:secret URL/login
  for i in $(seq 5); do curl -s -o /dev/null -w '%{http_code}\n' -u alice:wrong URL/login; done
2 a second from each address; further requests wait:
  for i in $(seq 3); do curl -s URL/queue; done
the metrics of all that:
  curl -s URL/metrics
`

// prometheusMetrics returns the option with which limiters report metrics, and the
// handler from which Prometheus reads them.
func prometheusMetrics() (core.Option, http.Handler, error) {
	registry := prometheus.NewRegistry()
	// The three labels of the scope are left out, because nothing else is instrumented here.
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return nil, nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	return otellimit.Observe(otellimit.MeterProvider(provider)), promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

func routes(rdb core.Client, metrics http.Handler, options ...core.Option) http.Handler {
	settings := core.Options(options...)
	home := core.MustNew(rdb, "demo-home", core.TokenBucket(core.Per(10, 10*time.Second)), settings)
	user := core.MustNew(rdb, "demo-user", core.FixedWindow(core.PerMinute(5)), settings)
	apiKey := core.MustNew(rdb, "demo-key", core.GCRA(core.PerSecond(5)), core.SlidingWindowLog(core.PerMinute(20)), settings)
	login := core.MustNew(rdb, "demo-login", core.FixedWindow(core.PerMinute(3)), core.Ban(time.Minute), settings)
	queue := core.MustNew(rdb, "demo-queue", core.LeakyBucket(core.PerSecond(2), core.Burst(10)), settings)

	byIP := httplimit.Middleware(home, keyfunc.IP())
	byUser := httplimit.Middleware(user, keyfunc.User(userKey{}))
	byKey := httplimit.Middleware(apiKey, keyfunc.APIKey("X-API-Key", keyfunc.Known(issued)))
	byFailures := httplimit.Middleware(login, keyfunc.IP(), guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized }))
	inOrder := httplimit.Middleware(queue, keyfunc.IP())

	mux := http.NewServeMux()
	mux.Handle("GET /{$}", byIP(say("hello")))
	mux.Handle("GET /user", authenticate(byUser(say("hello, user"))))
	mux.Handle("GET /key", byKey(say("hello, key")))
	mux.Handle("GET /login", byFailures(http.HandlerFunc(logIn)))
	mux.Handle("GET /queue", inOrder(say("hello, it is your turn")))
	mux.Handle("GET /healthz", say("ok"))
	mux.Handle("GET /metrics", metrics) // in production, serve them on an address that only Prometheus can reach
	return mux
}

func say(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, text) })
}

// userKey is the key under which authenticate stores the user in a request's context.
type userKey struct{}

// authenticate accepts any password.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		if user == "" {
			challenge(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// logIn accepts one password.
func logIn(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != "secret" {
		challenge(w)
		return
	}
	_, _ = fmt.Fprintln(w, "hello, you are logged in")
}

func challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="demo"`)
	w.Header().Set("Content-Type", guard.ProblemType)
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write(guard.Problem(http.StatusUnauthorized, nil))
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
