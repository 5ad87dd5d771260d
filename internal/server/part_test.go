package server

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestBatchEndsInTime has two callers share a batch that no server answers, of which
// one has waited for long when it starts: neither waits for longer than the timeout.
func TestBatchEndsInTime(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		const timeout, busy = 500 * time.Millisecond, 300 * time.Millisecond
		begun := time.Now()
		f.set(func(ctx context.Context) error {
			if time.Since(begun) >= busy {
				return silence(ctx)
			}
			time.Sleep(busy - time.Since(begun))
			return nil
		})
		s := f.store(timeout)
		s.maxBatch = 128
		s.single = s.newBatcher(s.servers.whole)
		s.servers.whole.sharding.state.Store(keysTogether)
		var callers sync.WaitGroup
		for range 4 { // in flight alone
			callers.Go(func() { _, _ = s.decide(t.Context()) })
		}
		for _, after := range []time.Duration{10 * time.Millisecond, 290 * time.Millisecond} {
			time.Sleep(after - time.Since(begun))
			callers.Go(func() {
				if took, err := s.decide(t.Context()); took > timeout || err == nil {
					t.Errorf("a caller from %v waited for %v: %v; want at most %v, and an error", after, took, err, timeout)
				}
			})
		}
		callers.Wait()
		if n := f.sent(); n < 5 {
			t.Errorf("%d scripts were sent, want 4 alone and a batch", n)
		}
	})
}
