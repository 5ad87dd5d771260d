package recipes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// limitsOf shows and resets what lim has counted for a user. Only your support may
// reach it: serve it on an address of its own.
func limitsOf(lim *core.Limiter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /limits/{user}", func(w http.ResponseWriter, r *http.Request) {
		res, err := lim.Peek(r.Context(), keyfunc.ForUser(r.PathValue("user")))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		for each := range res.All() {
			_, _ = fmt.Fprintf(w, "%s: %d of %d left, all of it in %v\n", each.Name, each.Remaining, each.Limit, each.ResetAfter)
		}
	})
	mux.HandleFunc("DELETE /limits/{user}", func(w http.ResponseWriter, r *http.Request) {
		if err := lim.Reset(r.Context(), keyfunc.ForUser(r.PathValue("user"))); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

func Example_admin() {
	lim := core.MustNew(rdb, "admin-example", core.FixedWindow(core.PerHour(100)))
	api := authenticate(httplimit.Middleware(lim, keyfunc.User(userKey{}))(newMux()))
	for range 3 {
		get(api, "/", "User: alice")
	}

	fmt.Print(get(limitsOf(lim), "/limits/alice").Body)
	fmt.Println(send(limitsOf(lim), http.MethodDelete, "/limits/alice", "").Code)
	fmt.Print(get(limitsOf(lim), "/limits/alice").Body)
	// Output:
	// fixed-1h: 97 of 100 left, all of it in 1h0m0s
	// 200
	// fixed-1h: 100 of 100 left, all of it in 0s
}

// ready reports whether the service can work.
func ready(lim *core.Limiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch res, err := lim.Peek(r.Context(), "readiness"); {
		case err != nil: // with FailClosed: no request is admitted
			http.Error(w, "limits: unavailable", http.StatusServiceUnavailable)
		case res.Source == core.SourceRedis:
			_, _ = fmt.Fprintln(w, "ok")
		default: // FailLocal or FailOpen decides
			_, _ = fmt.Fprintln(w, "ok, but redis does not answer")
		}
	}
}

func Example_readiness() {
	nowhere := redis.NewClient(&redis.Options{
		Addr: "localhost:1", MaxRetries: -1, DialerRetries: 1, // it refuses connections
	})
	defer func() { _ = nowhere.Close() }()
	limit := core.TokenBucket(core.PerMinute(100))

	fmt.Print(get(ready(core.MustNew(rdb, "ready", limit)), "/readyz").Body)
	fmt.Print(get(ready(core.MustNew(nowhere, "ready", limit)), "/readyz").Body)
	fmt.Print(get(ready(core.MustNew(nowhere, "ready", limit, core.FailClosed())), "/readyz").Body)
	// Output:
	// ok
	// ok, but redis does not answer
	// limits: unavailable
}

// writeError writes errors as all others of this API.
func writeError(w http.ResponseWriter, status int, code string, retryAfter time.Duration) {
	type apiError struct {
		Code       string `json:"code"`
		RetryAfter int64  `json:"retryAfter,omitempty"` // in seconds
	}
	body, _ := json.Marshal(map[string]apiError{"error": {code, int64(math.Ceil(retryAfter.Seconds()))}})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func Example_houseStyle() {
	mux := newMux()
	lim := core.MustNew(rdb, "house", core.FixedWindow(core.PerMinute(1)))

	denied := func(w http.ResponseWriter, r *http.Request) {
		res, _ := httplimit.Result(r.Context())
		if res.RetryAfter == core.Never { // the cost is above the capacity
			writeError(w, http.StatusTooManyRequests, "too_large", 0)
			return
		}
		writeError(w, http.StatusTooManyRequests, "rate_limited", res.RetryAfter)
	}
	failed := func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusServiceUnavailable, "try_again", time.Second)
	}
	handler := httplimit.Middleware(lim, keyfunc.IP(),
		httplimit.OnDenied(http.HandlerFunc(denied)), httplimit.OnError(http.HandlerFunc(failed)))(mux)

	fmt.Println(get(handler, "/").Body)
	w := get(handler, "/")
	fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	// Output:
	// hello
	// 429 60 {"error":{"code":"rate_limited","retryAfter":60}}
}

func Example_partner() {
	partner := httptest.NewServer(newMux())
	defer partner.Close()

	lim := core.MustNew(rdb, "partner", core.TokenBucket(core.PerMinute(100), core.Burst(1)), core.Ban())
	account := func(*http.Request) string { return "our-account" } // by which the partner counts
	client := &http.Client{
		Transport: httplimit.Transport(lim, account, httplimit.Retries(2)),
		Timeout:   10 * time.Second,
	}

	for range 2 {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, partner.URL, nil)
		response, err := client.Do(r)
		if err != nil {
			fmt.Println("timeout:", errors.Is(err, context.DeadlineExceeded))
			return
		}
		_ = response.Body.Close()
		fmt.Println(response.Status)
		client.Timeout = 100 * time.Millisecond // less than the 600 ms to wait
	}
	// Output:
	// 200 OK
	// timeout: true
}
