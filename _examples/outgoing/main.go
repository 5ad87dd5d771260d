// Command outgoing makes two processes call the API of a partner, which allows 10 calls per second and bans clients that send more.
// The processes share that limit, and when the API denies a call of one of them, both wait. It is one file that you can copy. Without
// -redis it starts an embedded Redis, so that "go run ./_examples/outgoing" needs nothing else.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// newClient returns the HTTP client of one process. A service needs no more than this function.
func newClient(rdb core.Client) *http.Client {
	lim := core.MustNew(rdb, "partner",
		core.TokenBucket(core.PerSecond(10), core.Burst(1)), // one call every 100 ms, from all processes together
		core.Ban(),                  // makes all processes wait when the partner denies a call
		core.Timeout(5*time.Second)) // for busy laptops; the default is right for services
	account := func(*http.Request) string { return "our-account" } // the partner counts by account
	return &http.Client{Transport: httplimit.Transport(lim, account), Timeout: time.Minute}
}

func main() {
	log.SetFlags(0)
	redisURL := flag.String("redis", "", "`URL` of Redis, such as redis://localhost:6379; default an embedded Redis")
	process := flag.Int("process", 0, "which of the two processes this is; the program starts them itself")
	partnerURL := flag.String("partner", "", "`URL` of the partner's API, for the two processes")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("%q is not a flag; -help lists the flags", flag.Arg(0))
	}
	if *redisURL == "" {
		embedded, err := miniredis.Run()
		if err != nil {
			log.Fatal(err)
		}
		embedded.ClockTTL(true) // lets keys expire
		*redisURL = "redis://" + embedded.Addr()
	}
	opt, err := redis.ParseURL(*redisURL)
	if err != nil {
		log.Fatal("-redis: not a URL such as redis://localhost:6379") // err would show the password
	}
	opt.ContextTimeoutEnabled = true // saves a goroutine for each decision
	client := newClient(redis.NewClient(opt))
	if *process > 0 {
		work(client, *partnerURL, *process)
		return
	}
	show(client, *redisURL)
}

// work makes 15 calls, four at a time.
func work(client *http.Client, url string, process int) {
	begun := time.Now()
	var callers sync.WaitGroup
	var calls, served atomic.Int64
	for range 4 {
		callers.Go(func() {
			for calls.Add(1) <= 15 {
				if call(client, url) == http.StatusOK {
					served.Add(1)
				}
			}
		})
	}
	callers.Wait()
	fmt.Printf("process %d: %d of 15 calls served after %.1f s\n", process, served.Load(), time.Since(begun).Seconds())
}

func call(client *http.Client, url string) (status int) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, http.NoBody)
	if err != nil {
		log.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// show makes a call that the partner denies, and then starts the processes.
func show(client *http.Client, redisURL string) {
	program, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	var served, denied atomic.Int64
	partner := httptest.NewServer(newPartner(&served, &denied))
	defer partner.Close()
	fmt.Println("the first call: status", call(client, partner.URL), "and now all wait for three seconds")

	var processes sync.WaitGroup
	for n := range 2 {
		processes.Go(func() {
			c := exec.Command(program, "-process", fmt.Sprint(n+1), "-partner", partner.URL, "-redis", redisURL)
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			if err := c.Run(); err != nil {
				log.Fatal(err)
			}
		})
	}
	processes.Wait()
	fmt.Printf("the partner: %d calls served, 1 denied, and %d after that one\n", served.Load(), denied.Load()-1)
}

// newPartner returns the API of the partner, which stands for a service of somebody else. It bans clients that send too much, and has just
// banned our account, because another user of the account has used it up.
func newPartner(served, denied *atomic.Int64) http.Handler {
	lim := core.MustNewMemory("partner", core.TokenBucket(core.PerSecond(10)), core.Ban(20*time.Second),
		core.Observe(func(_ context.Context, e core.Event) {
			switch {
			case e.Kind != core.EventDecision:
			case e.Result.Allowed:
				served.Add(1)
			default:
				denied.Add(1)
			}
		}))
	if err := lim.Block(context.Background(), keyfunc.ForGlobal(), 3*time.Second); err != nil {
		log.Fatal(err)
	}
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "an answer") })
	return httplimit.Middleware(lim, keyfunc.Global(), guard.RetryAfterMs())(ok)
}
