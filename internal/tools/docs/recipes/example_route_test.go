package recipes_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/demo/embedded"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// Example_worker shows that the jobs do not begin with a burst: 4 jobs take at least 3 times 50 ms.
func Example_worker() {
	var left []time.Time
	do := func(string) { left = append(left, time.Now()) }
	server, err := embedded.Start() // a Redis whose clock runs
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()

	lim := core.MustNew(rdb, "mails", core.TokenBucket(core.PerSecond(20), core.Burst(1)))
	work := func(ctx context.Context, jobs <-chan string) error {
		for job := range jobs {
			if _, err := lim.Wait(ctx, "provider"); err != nil {
				return err // ctx ended, or Redis is unavailable and the limiter has FailClosed
			}
			do(job)
		}
		return nil
	}

	jobs := make(chan string, 4)
	for _, job := range []string{"a", "b", "c", "d"} {
		jobs <- job
	}
	close(jobs)
	fmt.Println(work(context.Background(), jobs), len(left), left[3].Sub(left[0]) >= 140*time.Millisecond)
	// Output: <nil> 4 true
}

func Example_globalRoute() {
	mux, report := newMux(), newMux()

	reports := core.MustNew(rdb, "all-reports", core.TokenBucket(core.PerMinute(10)))
	mux.Handle("POST /reports", httplimit.Middleware(reports, keyfunc.Global())(report))

	count := map[int]int{}
	for range 12 {
		count[send(mux, http.MethodPost, "/reports", "").Code]++
	}
	fmt.Println(count, get(mux, "/reports").Code)
	// Output: map[200:10 429:2] 200
}

func Example_sharedOptions() {
	mux, list, export := http.NewServeMux(), newMux(), newMux()
	proxies := keyfunc.TrustedProxies("192.0.2.0/24")
	reads := core.MustNew(rdb, "reads", core.TokenBucket(core.PerMinute(100)))
	writes := core.MustNew(rdb, "writes", core.TokenBucket(core.PerMinute(10)))

	limit := func(lim *core.Limiter, options ...guard.Option) func(http.Handler) http.Handler {
		shared := []guard.Option{
			guard.Headers(guard.XRateLimit | guard.IETF), guard.ExposeHeaders(), guard.Fallback(keyfunc.IP(proxies)),
		}
		return httplimit.Middleware(lim, keyfunc.User(userKey{}), append(shared, options...)...)
	}
	mux.Handle("GET /items", limit(reads)(list))
	mux.Handle("POST /export", limit(writes, guard.WaitUpTo(2*time.Second))(export))

	show(get(mux, "/items"), "X-RateLimit-Remaining", "RateLimit")
	show(send(mux, http.MethodPost, "/export", ""), "X-RateLimit-Remaining", "RateLimit")
	// Output:
	// 200 99 "reads";r=99;t=60
	// 200 9 "writes";r=9;t=54
}
