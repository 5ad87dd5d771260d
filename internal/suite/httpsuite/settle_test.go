package httpsuite_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// farAway is the time of a command to Redis, and of its reply back.
const farAway = 10 * time.Millisecond

// A settling is a process that serves requests whose query says how they end, far from Redis or near.
type settling struct {
	http.Handler

	lim *core.Limiter
}

func newSettling(t *testing.T, addr string, options ...core.Option) settling {
	t.Helper()
	client := redisclient.New(t, &redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	lim := core.MustNew(client, "api", append(options, core.FailClosed(), core.DenyCache(0), core.Timeout(time.Minute))...)
	t.Cleanup(func() {
		_ = lim.Close()
		_ = client.Close()
	})
	failures := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	return settling{httplimit.Middleware(lim, keyfunc.Global(), failures, guard.CostAfter())(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, _ := strconv.Atoi(r.URL.Query().Get("status"))
			cost, _ := strconv.ParseInt(r.URL.Query().Get("cost"), 10, 64)
			httplimit.SetCost(r.Context(), cost)
			w.WriteHeader(status)
		})), lim}
}

func (p settling) get(t *testing.T, query string) int {
	t.Helper()
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/?"+query, nil))
	return w.Code
}

// TestSettledFarAway plays a client that waits for each response before its next request. Every second request goes through
// a process near Redis, which overtakes the settlements of the distant one. The client is never denied too early, and never
// admitted longer than its debt allows.
func TestSettledFarAway(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Server(t).Addr
	proxy := faultproxy.New(t, redisServer)
	proxy.Latency(farAway)
	for _, c := range []struct {
		query    string
		requests []int // the wanted statuses; a 401 costs as many units as the query says
	}{
		{"cost=1", []int{200, 200, 200, 200, 200, 401, 200, 401, 200, 200, 200, 200, 401, 429, 429}},
		{"cost=2", []int{200, 401, 200, 200, 401, 429, 429}},
		{"cost=30", []int{200, 200, 401, 429, 429}},
	} {
		for _, first := range []int{0, 1} {
			options := []core.Option{core.FixedWindow(core.PerDay(3), core.LimitName(strconv.Itoa(first)+strings.ReplaceAll(c.query, "=", "-"))), core.Hold(time.Minute)}
			both := []settling{newSettling(t, proxy.Addr(), options...), newSettling(t, redisServer, options...)}
			for i, want := range c.requests {
				ends := want
				if want == http.StatusTooManyRequests {
					ends = http.StatusOK // the status if the request is admitted by mistake
				}
				if got := both[(i+first)%2].get(t, c.query+"&status="+strconv.Itoa(ends)); got != want {
					t.Errorf("%s, request %d: got status %d, want %d", c.query, i, got, want)
				}
			}
		}
	}
}

// TestOneRoundTrip checks that a response ends after one round trip to Redis although there are two. Close waits for the
// second.
func TestOneRoundTrip(t *testing.T) {
	t.Parallel()
	addr := redistest.Server(t).Addr
	proxy := faultproxy.New(t, addr)
	proxy.Latency(farAway)
	limit := core.FixedWindow(core.PerDay(1000))
	far, near := newSettling(t, proxy.Addr(), limit), newSettling(t, addr, limit)
	const requests = 20
	fastest, gone := time.Hour, 0
	for i := range requests {
		begun := time.Now()
		if i%2 == 0 {
			far.get(t, "status=401&cost=2")
		} else { // the client leaves while its request is served
			ctx, leave := context.WithCancel(t.Context())
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/?status=401&cost=3", nil)
			far.ServeHTTP(leaving{httptest.NewRecorder(), leave}, r)
			gone++
		}
		fastest = min(fastest, time.Since(begun))
	}
	if fastest >= 4*farAway {
		t.Errorf("the fastest response took %v, want less than two round trips of %v", fastest, 2*farAway)
	}
	t.Logf("the fastest response took %v, and a round trip takes %v", fastest, 2*farAway)
	if err := far.lim.Close(); err != nil {
		t.Error(err)
	}
	res, err := near.lim.Peek(t.Context(), keyfunc.ForGlobal())
	if want := int64(1000 - 2*(requests-gone) - 3*gone); err != nil || res.Remaining != want {
		t.Errorf("%d units remain after Close, %v; want %d", res.Remaining, err, want)
	}
}

// A leaving is the response writer of a client that leaves when the header is written.
type leaving struct {
	http.ResponseWriter

	leave func()
}

func (l leaving) WriteHeader(status int) {
	l.leave()
	l.ResponseWriter.WriteHeader(status)
}

// A lockout serves logins. Each is checked until the test sends the status with which one of them ends.
type lockout struct {
	http.Handler

	lim     *core.Limiter
	checked chan struct{}
	ends    chan int
	ended   chan *httptest.ResponseRecorder
}

func newLockout(client *redis.Client, name string, limit core.Option) lockout {
	lim := core.MustNew(client, name, limit, core.FailClosed(), core.Timeout(time.Minute)) // with a deny cache
	l := lockout{lim: lim, checked: make(chan struct{}), ends: make(chan int), ended: make(chan *httptest.ResponseRecorder)}
	failures := guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })
	l.Handler = httplimit.Middleware(lim, keyfunc.Global(), failures)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		l.checked <- struct{}{}
		w.WriteHeader(<-l.ends)
	}))
	return l
}

// login sends a login. It returns the response if the login is denied, or nil once the login is being checked.
func (l lockout) login(t *testing.T) *httptest.ResponseRecorder {
	go func() {
		w := httptest.NewRecorder()
		l.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", nil))
		l.ended <- w
	}()
	select {
	case <-l.checked:
		return nil
	case w := <-l.ended:
		return w
	}
}

// end makes one of the logins end, and waits until it is settled. Its response may end before that, because other logins
// have used the remaining units since it was admitted.
func (l lockout) end(status int) {
	l.ends <- status
	<-l.ended
	_ = l.lim.Close()
}

// TestHeldLogins makes as many logins in flight as may fail in a quarter of an hour. The response to another login, at
// another process, asks for a retry in a second, which passes as soon as one login in flight has ended without counting.
// Once logins have failed, others are denied for longer.
func TestHeldLogins(t *testing.T) {
	t.Parallel()
	const failures = 5
	server := redistest.Server(t)
	for _, v := range limits.Plain() {
		if v.Kind.Delays {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			limit := v.Limit(core.Per(failures, 15*time.Minute))
			here, there := newLockout(server.Client(t), v.Name, limit), newLockout(server.Client(t), v.Name, limit)
			begin := func(l lockout) {
				t.Helper()
				if w := l.login(t); w != nil {
					t.Fatalf("got the response %+v, want the login admitted", w)
				}
			}
			begin(here)
			here.end(http.StatusUnauthorized)
			for range failures - 1 {
				begin(here)
			}
			for range 3 {
				for range 2 {
					if w := there.login(t); w == nil || w.Header().Get("Retry-After") != "1" {
						t.Fatalf("got the response %+v, want a denial for a second", w)
					}
				}
				here.end(http.StatusOK)
				begin(there)
				there.end(http.StatusOK)
				begin(here)
			}
			for range failures - 1 {
				here.end(http.StatusUnauthorized)
			}
			if w := there.login(t); w == nil || len(w.Header().Get("Retry-After")) < 3 { // at least 180 s
				t.Errorf("got the response %+v, want a denial until a failure has drained", w)
			}
		})
	}
}
