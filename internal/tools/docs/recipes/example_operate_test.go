package recipes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redislimit/redislimit/_examples/recipes/alert"
	"github.com/redislimit/redislimit/_examples/recipes/limitsfile"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// writeError writes an error in the same form as all other errors of this API.
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
	account := func(*http.Request) string { return "our-account" } // the account that the partner limits
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
		client.Timeout = 100 * time.Millisecond // less than the wait of 600 ms
	}
	// Output:
	// 200 OK
	// timeout: true
}

// page stands for the application's function.
func page(string, error) {}

func Example_pager() {
	pager := &alert.Pager{After: time.Minute, Calm: 30 * time.Second, Page: page}
	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)), core.Observe(pager.Observe))
	logins := core.MustNew(rdb, "logins", core.SlidingWindowLog(core.PerMinute(5)), core.FailClosed(), core.Observe(pager.Observe))
	defer func() { _, _ = lim.Close(), logins.Close() }()
}

func Example_limitsFile() {
	ctx, mux := context.Background(), newMux()
	lim := core.MustNewMemory("file", core.TokenBucket(core.PerMinute(1)))
	handler, err := limitsfile.Limit(ctx, "limits.yaml", lim, keyfunc.IP(), mux)
	fmt.Println(handler != nil, errors.Is(err, fs.ErrNotExist))
	// Output: false true
}
