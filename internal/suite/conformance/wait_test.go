package conformance

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestFirstInLineGivesUp lets the first of several waiters, which would wait for an hour, give up. A caller that arrives
// while the next waiter asks Redis must wait, too. It must not be turned away because the first waiter would have waited
// past the caller's deadline. The test would notice if the time of the next attempt outlived the waiter that it belonged
// to.
func TestFirstInLineGivesUp(t *testing.T) {
	client := redistest.Server(t).Client(t)
	var g gate.Gate
	client.AddHook(&g)
	lim := core.MustNew(client, "line", core.FixedWindow(core.PerHour(10)), core.FailClosed(), core.DenyCache(0), core.Timeout(time.Minute))
	allowN(t, lim, "k", 5) // 5 units are left: the first waiter wants 10, and would wait for an hour

	first, leave := context.WithCancel(t.Context())
	defer leave()
	firstWaiter := check.NewWaiter(first)
	firstDone := wait(firstWaiter, lim, 10)
	check.Receive(t, "the first waiter is in line", firstWaiter.Waits())
	// Once the first waiter has asked Redis, a call with a deadline of a minute fails at once. Until then such a call waits
	// in line.
	check.Eventually(t, "the first waits for its next attempt", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		select {
		case err := <-wait(ctx, lim, 1):
			return errors.Is(err, context.DeadlineExceeded)
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	second := check.NewWaiter(t.Context())
	secondDone := wait(second, lim, 1)
	check.Receive(t, "the second waiter is in line", second.Waits())

	g.Hold(t)
	leave()
	if err := check.Receive(t, "the first returns", firstDone); !errors.Is(err, context.Canceled) {
		t.Errorf("the first waiter got error %v, want context.Canceled", err)
	}
	g.Await(t, 1) // the second waiter asks Redis
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	third := check.NewWaiter(ctx)
	thirdDone := wait(third, lim, 1)
	select {
	case <-third.Waits():
	case err := <-thirdDone:
		t.Fatalf("the third caller returned with error %v, want it to wait", err)
	}
	g.Open()
	for name, done := range map[string]<-chan error{"second": secondDone, "third": thirdDone} {
		if err := check.Receive(t, "the "+name+" is admitted", done); err != nil {
			t.Errorf("the %s waiter got error %v, want it admitted", name, err)
		}
	}
	remains(t, lim, "k", 3)
}

// wait calls WaitN for n units of "k" in a goroutine, and returns a channel that receives its error.
func wait(ctx context.Context, lim *core.Limiter, n int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := lim.WaitN(ctx, "k", n)
		done <- err
	}()
	return done
}
