package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
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
		s.MaxBatch = 128
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

// TestEachFails has a pipeline of two scripts fail. Its error is that of what was sent last, by which the
// breaker goes, and by which slots are freed; that of the pipeline counts where it is the only one.
func TestEachFails(t *testing.T) {
	t.Parallel()
	errWrite := &net.OpError{Op: "write", Err: errors.New("broken pipe")}
	noScript := redisError("NOSCRIPT No matching script.")
	for name, c := range map[string]struct {
		first, each error // of the pipeline, and of its commands
		want        error
	}{
		"NOSCRIPT":                {noScript, noScript, nil}, // each is sent again, alone
		"a hook tells Exec alone": {errDial, nil, errDial},
		"not all could be sent":   {errWrite, errWrite, errWrite}, // but some may have been
	} {
		withFake(t, func(t *testing.T, f *fake) {
			f.pipeline = func(cmds []redis.Cmder) error {
				for _, cmd := range cmds {
					cmd.SetErr(c.each)
				}
				return c.first
			}
			s := f.store(time.Second)
			plain := &member{Call: NewDecision(s.Limits, "k", algorithm.HoldCall{Op: algorithm.OpCharge, N: 1})}
			held := &member{Call: NewDecision(s.Limits, "k", algorithm.HoldCall{Op: algorithm.OpReserve, N: 1})}
			err := s.runEach(t.Context(), s.servers.whole, [][]*member{{plain}, {held}})
			if !errors.Is(err, c.want) || errors.Is(held.Err, batch.ErrRetryAlone) != (c.want == nil) || held.Err == nil || plain.Err == nil {
				t.Errorf("%s: %v, want %v; of each %v and %v", name, err, c.want, plain.Err, held.Err)
			}
			if isUnsent(err) || isUnsent(plain.Err) || isUnsent(held.Err) {
				t.Errorf("%s: it would be sent again: %v, %v, %v", name, err, plain.Err, held.Err)
			}
		})
	}
}

// TestBatchAllocates bounds what a plain decision allocates in a batch: itself, and for each limit a key and its argument.
func TestBatchAllocates(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		s.servers.whole.sharding.state.Store(keysTogether)
		const callers = 64
		batch := func(size int) float64 {
			members := make([]*member, size)
			for i := range members {
				members[i] = &member{}
			}
			return testing.AllocsPerRun(100, func() {
				for _, m := range members {
					m.Call = NewDecision(s.Limits, "alice@example.com@192.0.2.17:8080", algorithm.HoldCall{Op: algorithm.OpCharge, N: 1})
				}
				if err := s.runBatch(t.Context(), s.servers.whole, members); err != nil {
					t.Fatal(err)
				}
			})
		}
		if n := (batch(2*callers) - batch(callers)) / callers; n > 3 {
			t.Errorf("%.2f allocations a decision, want 3", n)
		}
	})
}
