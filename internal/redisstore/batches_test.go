package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// TestBatchEndsInTime checks a batch that is never answered. It has two callers, one of which has
// waited for a long time before the batch starts. Neither may wait longer than the timeout.
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
		s.servers.whole.sharding.state.Store(oneScript)
		var callers sync.WaitGroup
		for range 4 { // these calls are sent alone, so that later ones wait for a batch
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

// TestParts checks a pipeline of two scripts that fails. Its error must be the error of the script that was
// sent last, because this one decides about health and about freeing slots. The error of the pipeline
// counts only if there is no other.
func TestParts(t *testing.T) {
	t.Parallel()
	errWrite := &net.OpError{Op: "write", Err: errors.New("broken pipe")}
	noScript := redisError("NOSCRIPT No matching script.")
	for name, c := range map[string]struct {
		first, each error                       // the errors of the pipeline and of its commands
		then        func(context.Context) error // the answer to commands after the pipeline
		want        error
	}{
		"silent after NOSCRIPT":   {noScript, noScript, silence, context.DeadlineExceeded},
		"one answered":            {noScript, noScript, nil, nil}, // the other reply is too short
		"a hook tells Exec alone": {errDial, nil, nil, errDial},
		"not all could be sent":   {errWrite, errWrite, nil, errWrite}, // but some commands may have been sent
	} {
		withFake(t, func(t *testing.T, f *fake) {
			f.pipeline = func(cmds []redis.Cmder) error {
				for _, cmd := range cmds {
					cmd.SetErr(c.each)
				}
				return c.first
			}
			f.set(c.then)
			s := f.store(time.Second)
			var calls []*Call // two for each script
			for _, op := range []algorithm.Op{algorithm.OpCharge, algorithm.OpCharge, algorithm.OpReserve, algorithm.OpReserve} {
				calls = append(calls, NewCall(s.Limits, "k", algorithm.Operation{Op: op, N: 1}))
			}
			plain, held := calls[0], calls[3]
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := s.sendPipelined(ctx, s.servers.whole, 2, calls)
			if !errors.Is(err, c.want) || held.err == nil || (plain.err == nil) != (c.want == nil) {
				t.Errorf("%s: %v, want %v; of each %v and %v", name, err, c.want, plain.err, held.err)
			}
			if isUnsent(err) || isUnsent(plain.err) || isUnsent(held.err) {
				t.Errorf("%s: it would be sent again: %v, %v, %v", name, err, plain.err, held.err)
			}
		})
	}
}

// TestPartFailsOnce makes one of two scripts fail, each with several renewals: that is one failure of the
// server.
func TestPartFailsOnce(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		const perScript = 8
		s := f.store(time.Second)
		s.perScript = perScript
		s.servers.whole.sharding.state.Store(oneScript)
		f.pipeline = func(cmds []redis.Cmder) error {
			renewed := []int64{7, 1_800_000_000_000_000, 0, 0, 0, 0, 0, 0}
			cmds[0].(onceCmd).SetVal(slices.Repeat(renewed, perScript))
			cmds[1].SetErr(errReply)
			return errReply
		}
		calls := make([]*Call, 2*perScript)
		for i := range calls {
			calls[i] = NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpRenew, N: 1, Handles: make([]algorithm.Handle, 1)})
		}
		if err := s.send(t.Context(), s.servers.whole, calls, batch.Place[*Call]{}, nil); err != nil {
			t.Fatal(err)
		}
		for i, d := range calls {
			if failed := i >= perScript; failed != errors.Is(d.err, errReply) {
				t.Errorf("renewal %d: %v", i, d.err)
			}
		}
		if len(s.errs) != 1 {
			t.Errorf("%d failures are reported, want one", len(s.errs))
		}
	})
}

// TestRefusedTogether checks a server that refuses each script with several keys. The calls that shared a
// script must be decided after one more round trip, however many they are. If the server refuses because
// the keys have several hash slots, it must not get such scripts again.
func TestRefusedTogether(t *testing.T) {
	t.Parallel()
	for refused, always := range map[error]bool{
		redisError("NOPERM no permission for this key"): false,
		errCrossSlot: true,
	} {
		withFake(t, func(t *testing.T, f *fake) {
			const callers, roundTrip = 100, 10 * time.Millisecond
			s := f.store(time.Second)
			s.MaxBatch = 128
			s.single = s.newBatcher(s.servers.whole)
			s.servers.whole.sharding.state.Store(oneScript)
			f.refusesBatches = refused
			f.set(func(context.Context) error { time.Sleep(roundTrip); return nil })
			for round := range 2 {
				f.sent()
				check.Together(callers, func(int) {
					if took, err := s.decide(t.Context()); err != nil || took > 4*roundTrip {
						t.Errorf("%v: decided after %v: %v", refused, took, err)
					}
				})
				if n, again := f.sent(), round == 0 || !always; (n > callers) != again {
					t.Errorf("%v: %d scripts for %d callers, round %d", refused, n, callers, round)
				}
			}
		})
	}
}

// TestBatchAllocates bounds the allocations of a plain decision in a batch: the Call and, for each limit, a
// key and its argument.
func TestBatchAllocates(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		s.servers.whole.sharding.state.Store(oneScript)
		const callers = 64
		batch := func(size int) float64 {
			calls := make([]*Call, size)
			return testing.AllocsPerRun(100, func() {
				for i := range calls {
					calls[i] = NewCall(s.Limits, "alice@example.com@192.0.2.17:8080", algorithm.Operation{Op: algorithm.OpCharge, N: 1})
				}
				if err := s.send(t.Context(), s.servers.whole, calls, batch.Place[*Call]{}, nil); err != nil {
					t.Fatal(err)
				}
			})
		}
		if n := (batch(2*callers) - batch(callers)) / callers; n > 3 {
			t.Errorf("%.2f allocations a decision, want 3", n)
		}
	})
}

// TestUndoneAlone checks the reply that makes a call of a batch be sent again. For a lone call,
// this reply is an error, so that the call is not sent again forever.
func TestUndoneAlone(t *testing.T) {
	t.Parallel()
	limit := algorithm.Limit{Kind: algorithm.FixedWindow, Evaluator: algorithm.FixedWindow.New(algorithm.Numbers{Count: 10, Period: 60_000_000, Burst: 10})}
	limits := NewLimits([]algorithm.Limit{limit}, []string{"x"}, nil)
	reply := []int64{2, 1, 0, 0, 0}
	if err := NewCall(limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1}).decode(reply, nil, len(reply), true); !errors.Is(err, algorithm.ErrReply) {
		t.Errorf("alone: %v", err)
	}
	if err := NewCall(limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1}).decode(reply, nil, len(reply), false); !errors.Is(err, batch.ErrRetryAlone) {
		t.Errorf("one of several: %v", err)
	}
}
