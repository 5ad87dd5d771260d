// Command tokens limits an API whose requests cost a number of tokens that is known only
// at the end, such as the API of a language model: each API key may use 1000 tokens per
// minute. It is one file that you can copy, like the other examples. Without -redis
// it starts an embedded Redis, so that "go run ./_examples/tokens" needs nothing else.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
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

const (
	perMinute = 1000 // tokens, for each API key
	estimate  = 200  // tokens, reserved while an answer is written
)

func main() {
	rdb, listener := start()
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	lim := core.MustNew(rdb, "tokens", core.TokenBucket(core.PerMinute(perMinute)), patient)
	server := &http.Server{Handler: routes(lim), ReadHeaderTimeout: 5 * time.Second}
	serve(listener, server.Serve, server.Shutdown)
}

// try is printed at the start.
const try = `
1000 tokens a minute with each API key; these cost 550 each, so that the last is denied with 429:
  for i in 1 2 3; do curl -s -H 'X-API-Key: demo-key-1' -d "$(seq 50)" -o /dev/null -w '%{http_code}\n' URL/answer; done
  curl -i -H 'X-API-Key: demo-key-1' URL/usage
  curl -i -H 'X-API-Key: demo-key-2' -d 'why is the sky blue' URL/answer
`

func routes(lim *core.Limiter) http.Handler {
	byKey := keyfunc.APIKey("X-API-Key", keyfunc.Known(issued))
	limited := httplimit.Middleware(lim, byKey,
		guard.CostAfter(),
		guard.Cost(func(keyfunc.Request) int64 { return estimate }),
		guard.CountIf(func(status int) bool { return status == http.StatusOK })) // errors are free
	shown := httplimit.Middleware(lim, byKey,
		guard.Cost(func(keyfunc.Request) int64 { return 0 })) // the headers are set, and nothing is charged

	mux := http.NewServeMux()
	mux.Handle("POST /answer", authenticate(limited(http.HandlerFunc(answer))))
	mux.Handle("GET /usage", authenticate(shown(http.HandlerFunc(usage))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	return mux
}

// answer streams an answer. Each word of the question and of the answer is a token.
func answer(w http.ResponseWriter, r *http.Request) {
	question, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4096))
	words := strings.Fields(string(question))
	if err != nil || len(words) == 0 {
		http.Error(w, "ask something, in at most 4096 bytes", http.StatusBadRequest)
		return
	}
	response := http.NewResponseController(w)
	tokens := int64(len(words))
	for word := range model(words) {
		tokens++
		httplimit.SetCost(r.Context(), tokens) // the cost so far, because the client may leave at any time
		if _, err := fmt.Fprintln(w, word); err != nil {
			return
		}
		if err := response.Flush(); err != nil {
			return
		}
	}
	_, _ = fmt.Fprintf(w, "(%d tokens)\n", tokens)
}

// model answers with ten words for each word of the question.
func model(question []string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range 10 * len(question) {
			if !yield(question[i%len(question)]) {
				return
			}
		}
	}
}

// usage shows how many tokens are left, as the headers do.
func usage(w http.ResponseWriter, r *http.Request) {
	if res, ok := httplimit.Result(r.Context()); ok {
		_, _ = fmt.Fprintf(w, "%d of %d tokens left; all of them in %v\n", res.Remaining, res.Limit, res.ResetAfter.Round(time.Second))
	}
}

// authenticate serves only requests with an API key that was issued.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !issued(r.Header.Get("X-API-Key")) {
			w.Header().Set("Content-Type", guard.ProblemType)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write(guard.Problem(http.StatusUnauthorized, nil))
			return
		}
		next.ServeHTTP(w, r)
	})
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
