// Command admin serves an API with two limits, and the page on which its operators see which clients are denied. Invented clients use
// the API, and some of them exceed the limits; -traffic=false leaves them out. It is one file that you can copy, like the other
// examples. Without -redis it starts an embedded Redis, so that "go run ./_examples/admin" needs nothing else.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/admin"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

var (
	// limit applies to each client of the API. The flag -limit sets another one.
	limit = core.TokenBucket(core.PerMinute(120), core.Burst(20))
	// password is the password of the user admin.
	password = cmp.Or(os.Getenv("ADMIN_PASSWORD"), rand.Text())
)

func main() {
	flag.TextVar(&limit, "limit", limit, "`limit` of each client, such as \"fixed_window 1000/1h\"")
	made := flag.Bool("traffic", true, "make up clients")
	rdb, listener := start()
	watch := admin.NewWatch()
	shared := core.Options(core.ObserveKeys(watch.Observe), core.Timeout(5*time.Second)) // for busy laptops; the default is right for services
	api := core.MustNew(rdb, "api", limit, core.FixedWindow(core.PerDay(10_000)), shared)
	login := core.MustNew(rdb, "login", core.SlidingWindowLog(core.PerMinute(5)), core.Ban(time.Minute, 10*time.Minute, time.Hour), shared)
	watch.Add(api, login)
	if *made {
		go traffic(api, login)
	}
	server := &http.Server{Handler: routes(api, login, watch), ReadHeaderTimeout: 5 * time.Second}
	serve(listener, server.Serve, server.Shutdown)
}

// try is printed at the start.
var try = `
URL/limits/ in a browser, as admin with the password ` + password + `; and the sixth guess of another password is banned:
  for i in 1 2 3 4 5 6; do curl -s -u alice:$i -X POST -o /dev/null -w '%{http_code}\n' URL/login; done
  curl -s -u admin:` + password + ` URL/limits/data.json
`

func routes(api, login *core.Limiter, watch *admin.Watch) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /hello", httplimit.Middleware(api, keyfunc.FirstOf(keyfunc.Header("X-Client"), keyfunc.IP()))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "Hello.") })))
	mux.Handle("POST /login", httplimit.Middleware(login, keyfunc.Join(keyfunc.IP(), keyfunc.BasicAuth()))(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Wrong password.", http.StatusUnauthorized)
		})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })

	isAdmin := func(r *http.Request) bool {
		user, given, _ := r.BasicAuth()
		return user == "admin" && subtle.ConstantTimeCompare([]byte(given), []byte(password)) == 1
	}
	page := admin.Handler(isAdmin, watch)
	mux.HandleFunc("/limits/", func(w http.ResponseWriter, r *http.Request) {
		if !isAdmin(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`) // browsers then ask for the password
			http.Error(w, "Who are you?", http.StatusUnauthorized)
			return
		}
		page.ServeHTTP(w, r)
	})
	return mux
}

// traffic makes decisions for clients that do not exist: the first client sends ten requests per second, the tenth one, and another
// client guesses passwords.
func traffic(api, login *core.Limiter) {
	ctx := context.Background()
	for round := 1; ; round++ {
		time.Sleep(100 * time.Millisecond)
		for client := range 20 {
			if round%(client+1) == 0 {
				_, _ = api.Allow(ctx, keyfunc.ForIP(netip.AddrFrom4([4]byte{192, 0, 2, byte(client + 1)})))
			}
		}
		if round%50 == 0 {
			guesser := keyfunc.ForIP(netip.AddrFrom4([4]byte{198, 51, 100, 7}))
			_, _ = login.Allow(ctx, keyfunc.ForJoin(guesser, keyfunc.ForBasicAuth("alice")))
		}
		if round%200 == 0 {
			_, _ = login.Allow(ctx, keyfunc.ForJoin(keyfunc.ForIP(netip.AddrFrom4([4]byte{203, 0, 113, byte(round / 200)})), keyfunc.ForBasicAuth("bob")))
		}
	}
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
