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

// TestFirstInLineGivesUp has the first of several waiters, which would wait for long, leave: whoever comes while the next
// one asks Redis waits too, and is not turned away because the first would have waited past its deadline. It would notice
// an instant of the next attempt that outlives the waiter whose it was.
func TestFirstInLineGivesUp(t *testing.T) {
	client := redistest.Server(t).Client(t)
	var g gate.Gate
	client.AddHook(&g)
	lim := core.MustNew(client, "line", core.FixedWindow(core.PerHour(10)), core.FailClosed(), core.DenyCache(0), core.Timeout(time.Minute))
	allowN(t, lim, "k", 5) // 5 are left: the first wants 10, and would wait for an hour

	first, leave := context.WithCancel(t.Context())
	defer leave()
	firstWaiter := check.NewWaiter(first)
	firstDone := wait(firstWaiter, lim, 10)
	check.Receive(t, "the first is in line", firstWaiter.Waits())
	// Once it has asked, another with a deadline of a minute need not even try. Until then such a one waits in line.
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
	check.Receive(t, "the second stands in line", second.Waits())

	g.Hold(t)
	leave()
	if err := check.Receive(t, "the first returns", firstDone); !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v, want context.Canceled", err)
	}
	g.Await(t, 1) // the second asks
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	third := check.NewWaiter(ctx)
	thirdDone := wait(third, lim, 1)
	select {
	case <-third.Waits():
	case err := <-thirdDone:
		t.Fatalf("the third does not wait: %v", err)
	}
	g.Open()
	for name, done := range map[string]<-chan error{"second": secondDone, "third": thirdDone} {
		if err := check.Receive(t, "the "+name+" is admitted", done); err != nil {
			t.Errorf("the %s: %v", name, err)
		}
	}
	remains(t, lim, "k", 3)
}

// wait waits for n units of "k" in a goroutine.
func wait(ctx context.Context, lim *core.Limiter, n int64) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := lim.WaitN(ctx, "k", n)
		done <- err
	}()
	return done
}
