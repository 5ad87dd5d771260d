package alert_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/_examples/recipes/alert"
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/mini"
)

// pages records the calls of Page.
type pages struct {
	mu    sync.Mutex
	began time.Time
	all   []string
}

func (p *pages) page(server string, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, fmt.Sprintf("%v %s %v", time.Since(p.began), server, cause))
}

func (p *pages) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.all
	p.all = nil
	return taken
}

// TestPages passes events to a Pager, and checks when it calls Page: "+" means that a server goes down for a limiter, and "-" that it
// comes back.
func TestPages(t *testing.T) {
	for name, c := range map[string]struct {
		events string // each is a second, a limiter, + or -, and a server
		want   []string
	}{
		"long":             {"0 api+a, 90 api-a", []string{"1m0s a refused", "2m0s a <nil>"}},
		"short":            {"0 api+a, 20 api-a", nil},
		"several limiters": {"0 api+a, 1 login+a, 2 jobs+a, 90 login-a, 100 api-a, 110 jobs-a", []string{"1m0s a refused", "2m20s a <nil>"}},
		"one comes back":   {"0 api+a, 0 login+a, 1 api-a, 200 login-a", []string{"1m0s a refused", "3m50s a <nil>"}},
		"one name twice":   {"0 api+a, 0 api+a, 1 api-a, 200 api-a", []string{"1m0s a refused", "3m50s a <nil>"}},
		"flaps": {
			"0 api+a, 5 api-a, 10 api+a, 35 api-a, 40 api+a, 45 api-a, 50 api+a, 70 api-a, 99 api+a, 100 api-a, 400 api+a, 401 api-a",
			[]string{"1m0s a refused", "2m10s a <nil>"},
		},
		"calm, and again": {"0 api+a, 70 api-a, 101 api+a, 170 api-a", []string{"1m0s a refused", "1m40s a <nil>", "2m41s a refused", "3m20s a <nil>"}},
		"two servers":     {"0 api+a, 20 api+b, 90 api-b, 100 api-a", []string{"1m0s a refused", "1m20s b refused", "2m0s b <nil>", "2m10s a <nil>"}},
		"failover":        {"0 api+a, 0 login+a, 10 api-b, 10 login-b, 300 api+b, 301 api-b", nil},
		"long failover":   {"0 api+a, 0 login+a, 70 api-b, 71 login-b", []string{"1m0s a refused", "1m41s a <nil>"}},
		"only the end":    {"0 api-a, 10 api+a, 80 api-a", []string{"1m10s a refused", "1m50s a <nil>"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := &pages{began: time.Now()}
				pager := &alert.Pager{After: time.Minute, Calm: 30 * time.Second, Page: got.page}
				pager.Observe(t.Context(), core.Event{Kind: core.EventDecision, Limiter: "api"})
				for step := range strings.SplitSeq(c.events, ", ") {
					var second int
					var what string
					if _, err := fmt.Sscan(step, &second, &what); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Until(got.began.Add(time.Duration(second) * time.Second)))
					e := core.Event{Kind: core.EventFallbackOn, Err: errors.New("refused")}
					var ok bool
					if e.Limiter, e.Server, ok = strings.Cut(what, "+"); !ok {
						e = core.Event{Kind: core.EventFallbackOff}
						e.Limiter, e.Server, _ = strings.Cut(what, "-")
					}
					pager.Observe(t.Context(), e)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if all := got.take(); !slices.Equal(all, c.want) {
					t.Errorf("got the pages %q, want %q", all, c.want)
				}
			})
		})
	}
}

// TestPagesInOrder makes the first page take so long that the outage is over meanwhile: the second page must wait for the first one.
func TestPagesInOrder(t *testing.T) {
	t.Parallel()
	begun, all := make(chan bool), make(chan string, 2)
	pager := &alert.Pager{After: 20 * time.Millisecond, Calm: 10 * time.Millisecond, Page: func(server string, cause error) {
		if cause != nil {
			close(begun)
			time.Sleep(200 * time.Millisecond) // the pager's service is slow
		}
		all <- fmt.Sprint(server, " ", cause)
	}}
	pager.Observe(t.Context(), core.Event{Kind: core.EventFallbackOn, Limiter: "api", Server: "a", Err: errors.New("refused")})
	check.Receive(t, "the first page begins", begun)
	pager.Observe(t.Context(), core.Event{Kind: core.EventFallbackOff, Limiter: "api", Server: "a"})
	for _, want := range []string{"a refused", "a <nil>"} {
		if got := check.Receive(t, "a page", all); got != want {
			t.Errorf("got the page %q, want %q", got, want)
		}
	}
}

// TestServerGoesAway stops a Redis that three limiters use, and starts it again: there must be one page when the server is down, and one
// when it is back.
func TestServerGoesAway(t *testing.T) {
	t.Parallel()
	server := mini.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	got := &pages{began: time.Now()}
	pager := &alert.Pager{After: 100 * time.Millisecond, Calm: 50 * time.Millisecond, Page: got.page}
	var limiters []*core.Limiter
	for _, name := range []string{"api", "login", "jobs"} {
		lim := core.MustNew(client, name, core.TokenBucket(core.PerMinute(100)), core.Observe(pager.Observe),
			core.Logger(slog.New(slog.DiscardHandler)))
		t.Cleanup(func() { _ = lim.Close() })
		limiters = append(limiters, lim)
	}
	var all []string
	until := func(what string, enough int) {
		t.Helper()
		check.Eventually(t, what, func() bool {
			for _, lim := range limiters {
				_, _ = lim.Allow(context.Background(), "k")
			}
			all = append(all, got.take()...)
			return len(all) >= enough
		})
	}
	server.Close()
	until("a page", 1)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	until("a page that the server is back", 2)
	_, port, _ := net.SplitHostPort(server.Addr())
	if len(all) != 2 || !strings.Contains(all[0], port) || !strings.HasSuffix(all[1], server.Addr()+" <nil>") {
		t.Errorf("got the pages %q, want one for the outage of port %s, and one for its end", all, port)
	}
}
