package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func Example_off() {
	mux := newMux()
	lim := core.MustNew(rdb, "switched", core.FixedWindow(core.PerMinute(1)))

	var off atomic.Bool // set by your feature flag or admin page
	handler := httplimit.Middleware(lim, keyfunc.IP(),
		guard.Skip(func(keyfunc.Request) bool { return off.Load() }))(mux)

	for _, is := range []bool{false, false, true, false} {
		off.Store(is)
		show(get(handler, "/"), "X-RateLimit-Limit")
	}
	// Output:
	// 200 1
	// 429 1
	// 200
	// 429 1
}

func Example_exempt() {
	mux := newMux()
	lim := core.MustNew(rdb, "exempt", core.FixedWindow(core.PerMinute(1)))

	office := netip.MustParsePrefix("2001:db8:1::/48")
	proxies := keyfunc.TrustedProxies("192.0.2.0/24")
	address := keyfunc.IP(proxies, keyfunc.IPv6Prefix(128)) // a single address instead of its /64
	exempt := guard.Skip(func(r keyfunc.Request) bool {
		key, _ := address(r)
		client, err := netip.ParseAddr(strings.TrimPrefix(key, "ip:"))
		return err == nil && office.Contains(client)
	})
	handler := httplimit.Middleware(lim, keyfunc.IP(proxies), exempt)(mux)

	for _, client := range []string{"2001:db8:1::7", "2001:db8:1:5::7", "2001:db8:2::7", "203.0.113.7"} {
		from := "X-Forwarded-For: " + client
		fmt.Println(client, get(handler, "/", from).Code, get(handler, "/", from).Code)
	}
	// Output:
	// 2001:db8:1::7 200 200
	// 2001:db8:1:5::7 200 200
	// 2001:db8:2::7 200 429
	// 203.0.113.7 200 429
}

func Example_mostlyUsed() {
	mux := newMux()
	mail := func(user string) { fmt.Println("a mail to", user) }

	quota := core.MustNew(rdb, "quota", core.FixedWindow(core.PerDay(10), core.Aligned()))
	notified := core.MustNew(rdb, "notified", core.FixedWindow(core.PerDay(1), core.Aligned()), core.FailClosed())
	notify := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if res, ok := httplimit.Result(r.Context()); ok && res.Remaining <= res.Limit/5 {
			name := r.Context().Value(userKey{}).(user).name
			if first, err := notified.Allow(r.Context(), name); err == nil && first.Allowed {
				mail(name)
			}
		}
		mux.ServeHTTP(w, r)
	})
	handler := authenticate(httplimit.Middleware(quota, keyfunc.User(userKey{}))(notify))

	for range 12 {
		show(get(handler, "/", "User: carol"), "X-RateLimit-Remaining")
	}
	// Output:
	// 200 9
	// 200 8
	// 200 7
	// 200 6
	// 200 5
	// 200 4
	// 200 3
	// a mail to carol
	// 200 2
	// 200 1
	// 200 0
	// 429 0
	// 429 0
}

func Example_costBySize() {
	mux := newMux()

	const most = 10 << 20 // the largest body, in bytes
	lim := core.MustNew(rdb, "kibibytes", core.TokenBucket(core.PerMinute(20_000)))
	size := guard.Cost(func(r keyfunc.Request) int64 {
		n := r.Unwrap().(*http.Request).ContentLength
		if n < 0 || n > most { // unknown, or a body that is refused
			n = most
		}
		return 1 + n>>10
	})
	handler := httplimit.Middleware(lim, keyfunc.IP(), size)(http.MaxBytesHandler(mux, most))

	for _, n := range []int{0, 1 << 20} {
		show(send(handler, http.MethodPost, "/", strings.Repeat("x", n)), "X-RateLimit-Remaining")
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/", io.MultiReader(strings.NewReader("chunked")))
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	show(w, "X-RateLimit-Remaining")
	// Output:
	// 200 19999
	// 200 18974
	// 200 8733
}

func Example_tokensAndRequests() {
	tokensOf := func(*http.Request) int64 { return 400 } // an estimate
	usedBy := func(response *http.Response) int64 {      // from a response header, or by your own count
		var n int64
		_, _ = fmt.Sscan(response.Header.Get("Tokens-Used"), &n)
		return n
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Tokens-Used", "250") }))
	defer api.Close()
	const model = "a-model"

	account := func(*http.Request) string { return model } // the API limits requests by model
	requests := core.MustNew(rdb, "model-requests", core.TokenBucket(core.PerMinute(3)), core.Ban())
	tokens := core.MustNew(rdb, "model-tokens", core.TokenBucket(core.PerMinute(1000)), core.Ban())
	client := &http.Client{Timeout: time.Minute, Transport: httplimit.Transport(tokens, account,
		httplimit.Cost(tokensOf), httplimit.CostAfter(usedBy), httplimit.Retries(2),
		httplimit.Base(httplimit.Transport(requests, account)))}

	client.Timeout = time.Second // in this example, Redis's clock stands still
	for range 4 {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, api.URL, http.NoBody)
		response, err := client.Do(r)
		if err != nil {
			fmt.Println("its turn comes too late:", errors.Is(err, context.DeadlineExceeded))
			break
		}
		_ = response.Body.Close()
		left, _ := tokens.Peek(context.Background(), model)
		calls, _ := requests.Peek(context.Background(), model)
		fmt.Println(response.Status, left.Remaining, calls.Remaining)
	}
	left, _ := tokens.Peek(context.Background(), model)
	fmt.Println(left.Remaining)
	// Output:
	// 200 OK 750 2
	// 200 OK 500 1
	// 200 OK 250 0
	// its turn comes too late: true
	// 250
}

func Example_unblock() {
	mux := newMux()
	lim := core.MustNew(rdb, "unblocked", core.FixedWindow(core.PerHour(1)), core.Ban(24*time.Hour))

	unblock := func(ctx context.Context, name string) error {
		key := keyfunc.ForUser(name) // the key that the middleware uses
		return errors.Join(lim.Reset(ctx, key), lim.Unblock(ctx, key))
	}

	handler := authenticate(httplimit.Middleware(lim, keyfunc.User(userKey{}))(mux))
	show(get(handler, "/", "User: erin"))
	show(get(handler, "/", "User: erin"), "Retry-After")
	fmt.Println(unblock(context.Background(), "erin"))
	show(get(handler, "/", "User: erin"))
	// Output:
	// 200
	// 429 86400
	// <nil>
	// 200
}

func Example_shutdown() {
	handler := newMux()
	lim := core.MustNew(rdb, "shutdown", core.InFlight(2))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := &http.Server{Handler: httplimit.Middleware(lim, keyfunc.IP())(handler), ReadHeaderTimeout: time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	stop := func(ctx context.Context) error {
		return errors.Join(server.Shutdown(ctx), lim.Close()) // in this order; close the client last
	}

	fmt.Println(stop(context.Background()), <-served)
	// Output: <nil> http: Server closed
}
