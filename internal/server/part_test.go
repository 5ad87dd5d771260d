package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
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

// TestParts has a batch of two scripts fail: its error is that of what was sent last, by which the
// breaker goes, and what is freed. It has none if one of them got a reply.
func TestParts(t *testing.T) {
	t.Parallel()
	noScript := redisError("NOSCRIPT No matching script.")
	for name, c := range map[string]struct {
		err      error                       // of the pipeline
		alone    bool                        // and not of its commands
		answer   func(context.Context) error // to what is sent after the pipeline
		want     error
		wantEach error // of what needs the script hold
	}{
		"silent after NOSCRIPT":   {noScript, false, silence, context.DeadlineExceeded, context.DeadlineExceeded},
		"refused after NOSCRIPT":  {noScript, false, fails(errMemory), errMemory, errMemory},
		"one answered":            {noScript, false, failsEverySecond(errMemory), nil, errMemory},
		"a hook tells Exec alone": {errDial, true, nil, errDial, errDial},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFake(t, func(t *testing.T, f *fake) {
				f.pipeline = func(cmds []redis.Cmder) error {
					for _, cmd := range cmds {
						if !c.alone {
							cmd.SetErr(c.err)
						}
					}
					return c.err
				}
				f.set(c.answer)
				s := f.store(time.Second)
				var parts []part
				for _, op := range []algorithm.Op{algorithm.OpCharge, algorithm.OpReserve} {
					d := NewDecision(s.limits, "k", algorithm.HoldCall{Op: op, N: 1})
					parts = append(parts, part{needsHold: op == algorithm.OpReserve, members: []*member{{Call: d}}})
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := s.runParts(ctx, s.servers.whole, parts)
				if !errors.Is(err, c.want) || c.want == nil && parts[0].members[0].Err != nil {
					t.Errorf("%v, want %v", err, c.want)
				}
				var of *partError
				if got := parts[1].members[0].Err; !errors.As(got, &of) || !errors.Is(of.error, c.wantEach) {
					t.Errorf("of the second %v, want %v", got, c.wantEach)
				}
			})
		})
	}
}

// failsEverySecond is the answer of a server that replies with err to each second script.
func failsEverySecond(err error) func(context.Context) error {
	n := 0
	return func(context.Context) error {
		if n++; n%2 == 0 {
			return err
		}
		return nil
	}
}
