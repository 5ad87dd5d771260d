package coalesce

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestFailedInBatchIsRetriedAlone checks that a decision that fails in a batch, while others of the batch succeed, is made
// once more on its own. The cause may be over by then: here Redis has memory again. The test would notice a decision that
// gets no second attempt.
func TestFailedInBatchIsRetriedAlone(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	lim := s.limiter(t, "retried", tenPerHour)
	c := s.caller(t, lim)
	charge, look := c.allow("k", 4), c.request(request{"k", 1, true})
	c.gather()
	s.do(t, "config", "set", "maxmemory", "1")
	s.gate.Release(t, 1)
	look.want(t, "the other call of the batch", true, 10)
	s.gate.Await(t, 1) // the second attempt
	s.do(t, "config", "set", "maxmemory", "0")
	s.gate.Open()
	charge.want(t, "the call that failed in the batch", true, 6)
	s.sent(t, 2, 1)
}

// TestRetriedAloneWithinTheTimeout checks that a decision that is made once more on its own only has the rest of its
// Timeout, not the whole Timeout again: here its batch is refused, and then Redis does not answer.
func TestRetriedAloneWithinTheTimeout(t *testing.T) {
	t.Parallel()
	for _, contextTimeout := range []bool{false, true} {
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", contextTimeout), func(t *testing.T) {
			t.Parallel()
			server := redistest.Server(t)
			check.Rounds(t, []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}, func(t *check.Round, timeout time.Duration) {
				client := redisclient.New(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: contextTimeout})
				s := newBackend(client, 1)
				s.findOut(t)
				t.Cleanup(func() { s.do(t, "acl", "setuser", "default", "allkeys") })
				lim := core.MustNew(client, "within", tenPerHour, core.FailClosed(), core.Timeout(timeout))
				s.awaitRedis(t, lim)
				c := s.caller(t, lim)
				begun := time.Now()
				a, b := c.allow("a", 1), c.allow("b", 1)
				c.gather()
				time.Sleep(timeout / 2)
				// The user may now touch only one of the keys, so the server refuses the whole batch.
				s.do(t, "acl", "setuser", "default", "resetkeys", "~rl:within:{a}*")
				s.gate.Release(t, 1)
				if !check.Within(t, timeout, "both calls are sent alone", func() bool { sent, _ := s.gate.Sent(); return len(sent) == maxInFlight+3 }) {
					return
				}
				server.Pause() // the calls get no reply
				defer server.Resume()
				s.gate.Open()
				a.wantUnavailable(t, "the first call")
				b.wantUnavailable(t, "the second call")
				if took := time.Since(begun); took > timeout*5/4 {
					t.Errorf("the calls waited for %v, want at most the Timeout of %v", took, timeout)
				}
			})
		})
	}
}

// TestNotSentWhenAway checks that a decision that waits for others is not sent any more, but fails at once, when these fail
// and Redis is known to be away. If the decision were sent, its reply might come too late, and the units would be charged
// for nothing.
func TestNotSentWhenAway(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	check.Rounds(t, []time.Duration{time.Second, 4 * time.Second, 16 * time.Second}, func(t *check.Round, timeout time.Duration) {
		s := newBackend(server.Client(t), 1)
		s.findOut(t)
		lim := core.MustNew(s.client, fmt.Sprint("away-", timeout), tenPerHour, core.FailClosed(), core.Timeout(timeout))
		s.awaitRedis(t, lim)
		c := s.caller(t, lim)
		time.Sleep(timeout / 2)
		begun, waits := time.Now(), c.allow("k", 1)
		waits.wantUnavailable(t, "the call that waited")
		known := waits.err == nil || strings.Contains(waits.err.Error(), "circuit breaker open") ||
			strings.Contains(waits.err.Error(), "no answer from redis") // a busy process probes the server first, and makes the call wait
		if took := time.Since(begun); !known || took > timeout*5/4 {
			t.Errorf("the call got error %v after %v, want one that says what it waited for, at the Timeout at the latest", waits.err, took)
		}
		s.gate.Open()
		s.awaitRedis(t, lim)
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 10 {
			t.Errorf("%d units remain, %v; want all 10, as the call was not sent", res.Remaining, err)
		}
	})
}
