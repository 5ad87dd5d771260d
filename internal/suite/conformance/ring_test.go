package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestRing lets go-redis distribute the keys over two servers: all limits of a key are on the same server, and each key is
// counted once.
func TestRing(t *testing.T) {
	servers := []*redistest.Instance{redistest.Server(t), redistest.Server(t)}
	ring := redisclient.NewRing(t, &redis.RingOptions{Addrs: map[string]string{"one": servers[0].Addr, "two": servers[1].Addr}})
	defer func() { _ = ring.Close() }()
	lim := core.MustNew(ring, "ring", core.GCRA(slow), core.FixedWindow(slow), core.SlidingWindowLog(slow), core.FailClosed(), core.Timeout(time.Minute))
	const keys = 40
	for i := range keys {
		key := fmt.Sprint("k", i)
		charged := acquire(t, lim, key, 10)
		if res := allowN(t, lim, key, 1); !charged.Allowed || res.Allowed {
			t.Errorf("key %s: got %+v and then %+v, want the first call allowed and the second denied", key, charged.Result, res)
		}
		if i%2 > 0 {
			continue
		}
		cancel(t, charged)
		if res := peek(t, lim, key); res.Remaining != 10 {
			t.Errorf("key %s after a Cancel: got %+v, want 10 remaining", key, res)
		}
	}
	stored := 0
	for _, server := range servers {
		n := len(server.Client(t).Keys(t.Context(), "rl:ring:*").Val())
		if n == 0 || n%3 != 0 {
			t.Errorf("one server has %d keys, want a multiple of 3 and not 0: the keys of a decision belong on one server", n)
		}
		stored += n
	}
	if stored != 3*keys/2 {
		t.Errorf("%d keys are stored, want %d", stored, 3*keys/2)
	}
}
