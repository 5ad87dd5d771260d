package clientsuite

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/proxytest"
	"github.com/redislimit/redislimit/keyfunc"
)

// A refusal is a request that a server may refuse before any handler sees it.
type refusal struct {
	what, raw string
	leave     bool // the client hangs up at once
}

// refusals returns requests that come through a proxy. The proxy has passed on the head of the request, if the request has
// one.
func refusals() []refusal {
	client := []string{xff + "203.0.113.9"}
	post := func(header string) string { return plainRequest("POST /a", header, client[0]) }
	declared := chunked("abc", append(client, "Trailer: X-Forwarded-For"), nil)
	half := plainRequest("GET /a", client...)
	half = half[:len(half)-2]
	stalled := post("Content-Length: 10") + "abc"
	return []refusal{
		{"a trailer that names the client", declared, false},
		{"a trailer that names the length", chunked("abc", append(client, "Trailer: Content-Length"), nil), false},
		{"half a header block", half, false},
		{"half a header block, and gone", half, true},
		{"a stalled body", stalled, false},
		{"a stalled body, and gone", stalled, true},
		{"a stalled chunk", post("Transfer-Encoding: chunked") + "a\r\nabc", false},
		{"no chunk", post("Transfer-Encoding: chunked") + "zz\r\n\r\n", false},
		{"a body too long", post("Content-Length: 99999999999") + "abc", false},
		{"a method that nobody knows", plainRequest("BREW /a", client...), false},
		{"no HTTP", "EHLO example.com\r\n\r\n", false},
		{"TLS", "\x16\x03\x01\x00\x05hello\r\n\r\n", false},
		{"nothing", "", false},
		{"nothing, and gone", "", true},
	}
}

// sendOn sends the request, and waits for a response if the client stays.
func (r refusal) sendOn(c *Conn) {
	defer c.Close()
	if r.leave {
		_, _ = io.WriteString(c.conn, r.raw)
		return
	}
	c.Send(r.raw)
}

// refusedRequests checks that refused requests are never counted by the proxy's address: requests that a handler sees are
// counted by the client's address, and others are not counted.
func refusedRequests(t *testing.T, apps Apps) {
	for name, newApp := range apps.Impatient {
		t.Run(name, func(t *testing.T) {
			c := newCounter(t)
			s := Serve(t, newApp, c.lim)
			s.use(ours)
			var all sync.WaitGroup
			for i, r := range refusals() {
				proxy := fmt.Sprintf("10.0.1.%d", i) // each request comes through a proxy of its own
				conn := s.Dial(proxy + ":80")
				all.Go(func() {
					r.sendOn(conn)
					<-conn.served
					if n := c.used("ip:" + proxy); n != 0 {
						t.Errorf("%s: %d units were counted by the proxy's address, want 0", r.what, n)
					}
				})
			}
			all.Wait()
			c.counts("a valid request", "ip:203.0.113.9", false, func() int {
				conn := s.Dial(proxy)
				defer conn.Close()
				return conn.Send(Request{Header: []string{xff + "203.0.113.9"}}.raw())
			})
		})
	}
}

// refusedBehindProxies makes one client send, through real proxies, requests that servers refuse. If they were counted by
// the proxy's address, the proxy would be banned: its next health check would be denied, and all its clients would be cut
// off.
func refusedBehindProxies(t *testing.T, apps Apps) {
	const limit, attacks = 100, 130
	attacker, other := dialerFrom(t, "127.0.0.66"), dialerFrom(t, "127.0.0.77")
	byIP := ip(keyfunc.TrustedProxies("127.0.0.1"))
	for _, kind := range append(proxytest.Checking(), proxytest.Kinds()[1:]...) { // HAProxy without health checks would show nothing more
		for name, newApp := range apps.Impatient {
			t.Run(kind.Name+", "+name, func(t *testing.T) {
				t.Parallel()
				lim := core.MustNewMemory("client", core.FixedWindow(core.PerDay(limit)), core.Ban(time.Hour))
				var checks atomic.Int64
				address := kind.Start(t, listenTCP(t, newApp(lim, func(r keyfunc.Request) (string, error) {
					if r.Method() == http.MethodHead {
						checks.Add(1)
					}
					return byIP(r)
				})))[0]
				var all sync.WaitGroup
				for _, r := range refusals() {
					if strings.Contains(r.raw, "\r\n\r\n") { // proxies pass on only a complete head
						conn := dialFrom(t, attacker, address)
						all.Go(func() { r.sendOn(conn) })
					}
				}
				c := counter{t, lim}
				for range attacks {
					c.sendFrom(attacker, address, refusals()[0].raw)
				}
				all.Wait()
				if kind.Checks {
					enough := checks.Load() + 2 // after two more checks, at least one has been answered
					check.Eventually(t, "the proxy makes health checks", func() bool { return checks.Load() >= enough })
				} else if res, err := lim.Peek(t.Context(), "ip:127.0.0.1"); err != nil || res.Remaining != limit {
					t.Errorf("%d of %d units remain for the proxy's address, %v; want all", res.Remaining, limit, err)
				}
				for range 3 {
					if status := c.sendFrom(other, address, Request{}.raw()); status != http.StatusOK {
						t.Errorf("another client got status %d, want 200", status)
					}
				}
			})
		}
	}
}
