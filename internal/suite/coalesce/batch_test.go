package coalesce

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// In a batch of decisions that all cost the same, some charge and some only look. It would notice a batch that is sent
// with one cost for all because their costs are alike, though only some are to be charged: the first of the batch would
// decide for all whether they are.
func TestPeeksAmongCharges(t *testing.T) {
	t.Parallel()
	allow, peek := request{key: "k", n: 1}, request{key: "k", n: 1, peek: true}
	for on, open := range backends() {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			for name, requests := range map[string][]request{
				"peek-first":   {peek, allow, peek, allow, allow},
				"charge-first": {allow, peek, allow, peek, peek, allow},
				"peeks":        {peek, peek, peek},
			} {
				lim := s.limiter(t, name, tenPerHour)
				left := int64(10)
				for i, a := range s.batch(t, lim, requests) {
					if !requests[i].peek {
						left--
					}
					a.want(t, fmt.Sprintf("%s: decision %d", name, i), true, left)
				}
				if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != left {
					t.Errorf("%s: %d remain afterwards, %v; want %d", name, res.Remaining, err, left)
				}
			}
		})
	}
}

// A decision that fails inside a batch, while others of it succeed, is made once more on its own. Its trouble may be over
// by then: here Redis has memory again. It would notice one that gets no second attempt.
func TestFailedInBatchIsRetriedAlone(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	lim := s.limiter(t, "retried", tenPerHour)
	busy := s.occupy(t, lim)
	charge := enqueue(t.Context(), t, lim, request{key: "k", n: 4})
	look := enqueue(t.Context(), t, lim, request{key: "k", n: 1, peek: true})
	s.gate.Release(t, len(busy))
	s.gate.Await(t, 1) // the batch
	s.do(t, "config", "set", "maxmemory", "1")
	s.gate.Release(t, 1)
	look.want(t, "the other of the batch", true, 10)
	s.gate.Await(t, 1) // the second attempt
	s.do(t, "config", "set", "maxmemory", "0")
	s.gate.Open()
	charge.want(t, "the one that failed in the batch", true, 6)
	s.sent(t, 2, 1)
}

// A decision that is made once more on its own has what is left of its Timeout, and not all of it again. It would notice
// a caller that waits for up to twice the Timeout: once in a batch that is refused, and once alone.
func TestRetriedAloneWithinTheTimeout(t *testing.T) {
	t.Parallel()
	const timeout, held = time.Minute, 500 * time.Millisecond
	for _, contextTimeout := range []bool{false, true} {
		t.Run(fmt.Sprint("ContextTimeoutEnabled ", contextTimeout), func(t *testing.T) {
			server := redistest.Server(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: contextTimeout})
			defer func() { _ = client.Close() }()
			s := newBackend(client, 1)
			var seen deadlines
			client.AddHook(&seen)
			lim := s.limiter(t, "within", tenPerHour) // with a Timeout of a minute
			busy := s.occupy(t, lim)
			first := enqueue(t.Context(), t, lim, request{key: "a", n: 1})
			second := enqueue(t.Context(), t, lim, request{key: "b", n: 1})
			s.gate.Release(t, len(busy))
			for _, a := range busy {
				a.await(t)
			}
			s.gate.Await(t, 1) // the batch
			time.Sleep(held)
			// The keys of both, but not both in one script: the server refuses the batch as a whole.
			s.do(t, "acl", "setuser", "default", "resetkeys", "~rl:within:{a}*")
			refused := time.Now()
			s.gate.Open()
			first.want(t, "the one that is permitted", true, 9)
			second.wantUnavailable(t, "the other one")
			alone := seen.after(refused)
			if len(alone) != 3 { // the batch, and two attempts
				t.Fatalf("%d scripts were sent, want 3", len(alone))
			}
			for _, deadline := range alone {
				if late := deadline.Sub(refused.Add(timeout - held)); late > held/2 {
					t.Errorf("a call may last until %v after the Timeout of its caller", late)
				}
			}
		})
	}
}

// deadlines is a hook that notes until when each script may take.
type deadlines struct {
	mu  sync.Mutex
	all []deadline
}

type deadline struct{ sent, until time.Time }

// after returns the deadlines of the scripts that were sent after an instant.
func (d *deadlines) after(start time.Time) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []time.Time
	for _, each := range d.all {
		if each.sent.After(start) {
			all = append(all, each.until)
		}
	}
	return all
}

// DialHook changes nothing.
func (d *deadlines) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (d *deadlines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook notes the deadline of a script; one without any counts as one that never ends.
func (d *deadlines) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" || cmd.Name() == "eval" {
			until, ok := ctx.Deadline()
			if !ok {
				until = time.Now().Add(24 * time.Hour)
			}
			d.mu.Lock()
			d.all = append(d.all, deadline{time.Now(), until})
			d.mu.Unlock()
		}
		return next(ctx, cmd)
	}
}
