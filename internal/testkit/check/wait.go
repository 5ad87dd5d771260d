// Package check has the helpers with which tests of several packages wait and judge. It does not depend on the library.
package check

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Patience is how long a test waits for something that must happen. It serves only to end tests that hang: a test that
// passes on a busy machine never needs all of it.
const Patience = 30 * time.Second

const pollEvery = 5 * time.Millisecond

// OK fails the test if err is not nil.
func OK(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

// Need is like [OK], but also ends the test.
func Need(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// Together calls f n times at once, and waits until all calls have returned.
func Together(n int, f func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// Until waits until a condition holds, and returns the error of ctx if ctx ends first.
func Until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
	return nil
}

// Eventually waits up to [Patience] for a condition that must come to hold without the test's help. It reports whether the
// condition holds; if not, the test has failed.
func Eventually(tb testing.TB, what string, holds func() bool) bool {
	tb.Helper()
	return Within(tb, Patience, what, holds)
}

// Within is like [Eventually], with a limit of its own.
func Within(tb testing.TB, limit time.Duration, what string, holds func() bool) bool {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), limit)
	defer cancel()
	err := Until(ctx, holds)
	switch {
	case err == nil:
		return true
	case errors.Is(err, context.DeadlineExceeded):
		tb.Errorf("waited %v in vain for: %s", limit, what)
	default:
		tb.Errorf("the test ended while it waited for: %s", what)
	}
	return false
}

// Receive waits up to [Patience] until c has a value or is closed, and ends the test if that does not happen.
func Receive[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		tb.Fatalf("waited %v in vain for: %s", Patience, what)
		panic("unreachable")
	}
}

// A Waiter is the context of a call, and notices when a goroutine begins to wait for its end.
type Waiter struct {
	context.Context

	once  sync.Once
	waits chan struct{}
}

// NewWaiter returns a Waiter that ends with ctx.
func NewWaiter(ctx context.Context) *Waiter { return &Waiter{Context: ctx, waits: make(chan struct{})} }

// Waits returns a channel that is closed when a goroutine calls Done.
func (w *Waiter) Waits() <-chan struct{} { return w.waits }

// Done is called by a goroutine that begins to wait.
func (w *Waiter) Done() <-chan struct{} {
	w.once.Do(func() { close(w.waits) })
	return w.Context.Done()
}

// NoGoroutineLeft checks that all goroutines that were started after base was counted have ended.
func NoGoroutineLeft(tb testing.TB, base int) {
	tb.Helper()
	const tolerated = 2 // goroutines of the runtime and of the test itself
	if !Eventually(tb, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= base+tolerated }) {
		stacks := make([]byte, 1<<20)
		tb.Logf("%d goroutines, %d before:\n%.20000s", runtime.NumGoroutine(), base, stacks[:runtime.Stack(stacks, true)])
	}
}
