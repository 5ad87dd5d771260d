// Command mcp limits an MCP server: how often each user calls each of its tools. It is one file that you can copy: in a module
// of yours, "go mod tidy && go run ." runs it. Without -redis it starts an embedded Redis, so that "go run -C _examples/mcp ."
// needs nothing else.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func main() {
	rdb, listener := start()
	tools := newServer(func(tool string) { log.Printf("%s runs", tool) })
	options := &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true} // any process can answer any request
	server := &http.Server{Handler: limited(rdb, tools, options), ReadHeaderTimeout: 5 * time.Second}
	serve(listener, server.Serve, server.Shutdown)
}

// try is printed at the start.
const try = `
2 exports a minute for each user, so that the third is denied:
  call() { curl -s -X POST -H "Authorization: Bearer $1" -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"'"$2"'","arguments":{}}}' URL/mcp; echo; }
  for i in 1 2 3; do call demo-key-1 export; done
Other tools have limits of their own, and so have other users:
  call demo-key-1 search
  call demo-key-2 export
`

// limited serves an MCP server at /mcp. All requests first pass a limit by address, also those without a valid token. The
// limits of the tools apply to requests with a valid token.
func limited(rdb core.Client, server *mcp.Server, options *mcp.StreamableHTTPOptions) http.Handler {
	patient := core.Timeout(5 * time.Second) // for busy laptops; the default is right for services
	requests := core.MustNew(rdb, "demo-requests", core.TokenBucket(core.PerMinute(600)), patient)
	others := core.MustNew(rdb, "demo-mcp", core.TokenBucket(core.PerMinute(300)), patient)
	tools := map[string]*core.Limiter{
		"search": core.MustNew(rdb, "demo-search", core.TokenBucket(core.PerMinute(60)), patient),
		"export": core.MustNew(rdb, "demo-export", core.TokenBucket(core.PerMinute(2)), core.FailClosed(), patient),
	}
	server.AddReceivingMiddleware(limitTools(tools, others))

	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, options)
	mux := http.NewServeMux()
	mux.Handle("/mcp", httplimit.Middleware(requests, keyfunc.IP())(auth.RequireBearerToken(verify, nil)(handler)))
	return mux
}

// limitTools limits how often each user calls each of the tools. Calls of other tools, and all other requests, are counted by the limiter others.
// limitTools is middleware of the MCP SDK, which parses each request and passes it to the middleware just before the server handles it. So no
// client can name one tool to the limiter and another tool to the server, and each call of a batch counts.
func limitTools(tools map[string]*core.Limiter, others *core.Limiter) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			user := userOf(r)
			tool, err := toolOf(method, r)
			switch {
			case err != nil:
				return nil, err
			case user == "":
				return nil, errors.New("the user is not known")
			}
			lim, ok := tools[tool]
			if !ok {
				lim = others
			}
			res, err := lim.Allow(ctx, keyfunc.ForUser(user))
			switch {
			case err != nil: // the limiter logs an outage
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the rate limiter is unavailable: try again in a second"}
			case res.Allowed:
				return next(ctx, method, r)
			case tool != "":
				return denied(tool, res.RetryAfter), nil
			}
			return nil, tooMany(res.RetryAfter)
		}
	}
}

// toolOf returns the name of the tool that a request calls, or "" if it calls none.
func toolOf(method string, r mcp.Request) (string, error) {
	if method != "tools/call" {
		return "", nil
	}
	call, ok := r.GetParams().(*mcp.CallToolParamsRaw)
	if !ok || call == nil { // such a call must not be counted by the limiter others
		return "", fmt.Errorf("the call of a tool has parameters %T", r.GetParams())
	}
	return call.Name, nil
}

// userOf returns the user whose token came with a request, or "" if there was none.
func userOf(r mcp.Request) string {
	if extra := r.GetExtra(); extra != nil && extra.TokenInfo != nil {
		return extra.TokenInfo.UserID
	}
	return ""
}

// denied returns the result of a call that is denied. It is a result, and not an error of the protocol, so that the model sees it, and can
// wait or continue without the tool.
func denied(tool string, retryAfter time.Duration) *mcp.CallToolResult {
	text := fmt.Sprintf("too many calls of %s: try again in %d s", tool, seconds(retryAfter))
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// tooMany returns the error of any other request that is denied.
func tooMany(retryAfter time.Duration) error {
	data := json.RawMessage(fmt.Sprintf(`{"retryAfter":%d}`, seconds(retryAfter)))
	return &jsonrpc.Error{Code: -32000, Message: "too many requests", Data: data} // the first code that JSON-RPC leaves to servers
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d-1)/time.Second) + 1 }

// verify finds the user of a token. In a real service, it calls your authorization server.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	user, ok := map[string]string{"demo-key-1": "alice", "demo-key-2": "bob"}[token]
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour)}, nil
}

// newServer returns an MCP server with three tools, which only call ran.
func newServer(ran func(tool string)) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "demo", Version: "1"}, nil)
	for _, tool := range []string{"search", "export", "other"} {
		mcp.AddTool(server, &mcp.Tool{Name: tool, Description: "does nothing"},
			func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				ran(tool)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: tool + " is done"}}}, nil, nil
			})
	}
	return server
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
