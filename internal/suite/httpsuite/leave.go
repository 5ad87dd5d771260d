package httpsuite

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/keyfunc"
)

const (
	leavers      = 500
	leavesAtOnce = 50
	leavesWithin = 20 * time.Millisecond
	tripTakes    = 2 * time.Millisecond // the time of a command to Redis, and of its reply back
	handlerTakes = 5 * time.Millisecond
)

// Leavers makes many clients leave: before the decision, during it, while they wait for their turn, while the handler
// works, and after it. Afterwards all slots are free, and exactly the cost of the handlers that ran is charged. Nothing
// expires during the test.
func Leavers(t *testing.T, a Adapter) {
	t.Helper()
	proxy := faultproxy.New(t, redistest.Server(t).Addr)
	proxy.Latency(tripTakes)
	for name, options := range map[string]*redis.Options{
		"Default": {},
		"Hasty":   {ContextTimeoutEnabled: true}, // the Redis client also ends calls with their contexts
	} {
		options.Addr = proxy.Addr()
		client := redisclient.New(t, options)
		t.Run(name, func(t *testing.T) { leaversOver(t, a, client) })
	}
}

func leaversOver(t *testing.T, a Adapter, client *redis.Client) {
	t.Helper()
	const units, slots = 1_000_000, 50
	counted := guard.CountIf(func(status int) bool { return status == http.StatusOK })
	admitted := guard.CountIf(func(status int) bool { return status != http.StatusTooManyRequests })
	window, narrow := core.FixedWindow(core.PerDay(units)), core.FixedWindow(core.PerDay(leavers/3))
	held, slow := core.Hold(time.Hour), core.LeakyBucket(core.Per(10, time.Millisecond), core.Burst(units))
	flight, narrowFlight := core.InFlight(slots, core.SlotTTL(time.Hour)), core.InFlight(5*7, core.SlotTTL(time.Hour))
	for _, c := range []struct {
		name   string
		limits [][]core.Option // the limits of each middleware, the outer one first
		with   [][]guard.Option
		cost   int64 // what each handler that ran costs in the outer middleware's window; 0 if it has no window
	}{
		{"InFlight", [][]core.Option{{flight}}, [][]guard.Option{nil}, 0},
		{"CountIf", [][]core.Option{{window, held}}, [][]guard.Option{{counted}}, 1},
		{"CostAfter", [][]core.Option{{window, held}}, [][]guard.Option{{guard.CostAfter(), estimate(7)}}, realCost},
		{"All", [][]core.Option{{flight, window, held}}, [][]guard.Option{{guard.CostAfter(), estimate(7), counted}}, realCost},
		{"WaitUpTo", [][]core.Option{{narrowFlight, window, held}}, [][]guard.Option{{guard.CostAfter(), estimate(7), counted, guard.WaitUpTo(leavesWithin / 2)}}, realCost},
		{"Queue", [][]core.Option{{flight, slow}}, [][]guard.Option{nil}, 0},
		{"Stacked", [][]core.Option{{window, held}, {narrow}}, [][]guard.Option{{admitted}, nil}, 1},
		{"And", [][]core.Option{{window, held}, {narrow, held}}, [][]guard.Option{{guard.CostAfter(), estimate(7), counted}, {estimate(1)}}, realCost},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ran atomic.Int64
			var all []*core.Limiter
			var mounts []Mount
			for i, options := range c.limits {
				name := fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-"), i)
				lim := core.MustNew(client, name[max(0, len(name)-60):], append(options, core.FailClosed(), core.DenyCache(0), core.Timeout(testTimeout))...)
				t.Cleanup(func() { _ = lim.Close() })
				all = append(all, lim)
				mounts = append(mounts, Limit{Limiter: lim, Key: keyfunc.Global(), Options: c.with[i]})
			}
			if c.name == "And" { // both limiters decide together in one middleware
				mounts = []Mount{Limit{Limiter: all[0], Key: keyfunc.Global(), Options: append(c.with[0], guard.AlsoLimit(all[1], keyfunc.Global(), c.with[1]...))}}
			}
			server := a.Start(t, App{Use: mounts, Routes: []Route{
				{Path: "/a", Handler: Handler{Takes: handlerTakes, Calls: &ran, Costs: []int64{realCost}}},
			}})
			leaveAll(t, strings.TrimPrefix(server.URL, "http://"))
			server.Close()

			var left []int64
			settled := func() bool {
				left = limits.Left(t, all[0], keyfunc.ForGlobal())
				if l := all[0].Limits()[0]; l.Algorithm() == flight.Algorithm() && left[0] != l.Capacity() {
					return false
				}
				if c.name == "And" && limits.Left(t, all[1], keyfunc.ForGlobal())[0] != leavers/3-ran.Load() {
					return false
				}
				return c.cost == 0 || left[len(left)-1] == units-c.cost*ran.Load()
			}
			if !check.Eventually(t, "all requests are settled", settled) {
				t.Errorf("of the limits %d units remain after %d handlers, want all slots, and the units without the handlers' cost", left, ran.Load())
			}
			if n := ran.Load(); n == 0 || n == leavers {
				t.Errorf("%d of %d handlers ran, want some but not all", n, leavers)
			}
		})
	}
}

// leaveAll sends requests, each over a connection of its own that is closed after a random time. One client in ten waits
// for the response.
func leaveAll(t *testing.T, addr string) {
	t.Helper()
	var clients sync.WaitGroup
	defer clients.Wait()
	random := rand.New(rand.NewPCG(1, 2))
	places := make(chan struct{}, leavesAtOnce)
	for i := range leavers {
		places <- struct{}{}
		stays := time.Duration(random.Int64N(int64(leavesWithin)))
		clients.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			_, _ = io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: test\r\n\r\n")
			if i%10 == 0 { // this client waits
				_, _ = conn.Read(make([]byte, 1))
			} else {
				time.Sleep(stays)
			}
			_ = conn.Close()
		})
	}
}
