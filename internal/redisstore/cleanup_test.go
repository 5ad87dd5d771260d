package redisstore

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// A freeing client counts the round trips. Each round trip takes as long as the field takes says.
type freeing struct {
	takes time.Duration
	sent  atomic.Int64
}

func (c *freeing) Process(_ context.Context, cmd redis.Cmder) error { return c.reply(cmd) }

func (c *freeing) reply(cmds ...redis.Cmder) error {
	c.sent.Add(1)
	time.Sleep(c.takes)
	for _, cmd := range cmds {
		if cmd.Args()[2].(int) > 128 {
			return errReply // a script that takes Redis too long
		}
		cmd.(interface{ SetVal(val []int64) }).SetVal(
			slices.Repeat([]int64{7, 1_800_000_000_000_000, 0, 0, 0, 0, 0, 0}, cmd.Args()[2].(int)))
	}
	return nil
}

// Pipeline returns a pipeline, which takes as long as one call.
func (c *freeing) Pipeline() redis.Pipeliner {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	client.AddHook(c)
	_ = client.Close() // it has no server
	return client.Pipeline()
}

func (c *freeing) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (c *freeing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook answers instead of a server.
func (c *freeing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return c.reply(cmds...) }
}

// leave returns a Store after callers have left calls behind whose replies are lost: each goroutine
// has left as many calls as each says.
func (c *freeing) leave(goroutines, each int) *Store {
	limit := algorithm.Limit{Kind: algorithm.InFlight, Evaluator: algorithm.InFlight.New(algorithm.Numbers{Burst: 10}), HoldDuration: 1e7}
	limits := NewLimits([]algorithm.Limit{limit}, []string{"x"}, nil)
	s := NewStore(c, Config{Prefix: "rl", Limiter: "x", Limits: limits, Timeout: time.Minute, MaxBatch: 1})
	check.Together(goroutines, func(int) {
		for range each {
			d := NewCall(limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1, HoldID: 7, Handles: make([]algorithm.Handle, 1)})
			s.freeUnclaimed(d, &batch.HookError{})
		}
	})
	return s
}

// TestLeftBehindOnce makes callers leave while other cleanups are being sent: each must be sent once.
func TestLeftBehindOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		client := &freeing{}
		client.leave(4, 100).Close()
		if n := client.sent.Load(); n != 400 {
			t.Fatalf("%d were freed, want 400", n)
		}
	}
}

// TestLeftBehindTogether sends cleanups that need one round trip each: several must be in flight at a time.
// Close must wait for them.
func TestLeftBehindTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &freeing{takes: 100 * time.Millisecond}
		begun := time.Now()
		client.leave(1, 50).Close()
		if n, took := client.sent.Load(), time.Since(begun); n != 50 || took < client.takes || took > 50*client.takes/3 {
			t.Errorf("%d were freed in %v", n, took)
		}
	})
}

// TestLeftBehindClosed makes a caller leave after Close: its cleanup must still be sent.
func TestLeftBehindClosed(t *testing.T) {
	t.Parallel()
	client := &freeing{}
	s := client.leave(0, 0)
	s.Close()
	d := NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1, HoldID: 7, Handles: make([]algorithm.Handle, 1)})
	s.freeUnclaimed(d, &batch.HookError{})
	s.Close()
	if n := client.sent.Load(); n != 1 {
		t.Errorf("%d were freed, want 1", n)
	}
}

// TestLeftInBatch closes a Store while a batch is in flight that a caller has left. Close must wait for the batch,
// but not for a call that its caller has left before the batch started.
func TestLeftInBatch(t *testing.T) {
	t.Parallel()
	const trip = 300 * time.Millisecond
	for leaves, want := range map[time.Duration]time.Duration{trip / 2: 0, trip * 3 / 2: trip / 2} {
		withFake(t, func(t *testing.T, f *fake) {
			f.set(func(context.Context) error { time.Sleep(trip); return nil })
			c := testConfig(time.Second)
			c.MaxBatch = 10
			s := &tested{Store: NewStore(f.client, c)}
			s.servers.ctxDeadlines = true
			s.servers.whole.sharding.state.Store(oneScript)
			s.servers.whole.health.Answered(time.Now(), true) // otherwise the lone calls count as left, too
			for range maxInFlight {
				go func() { _, _ = s.decide(t.Context()) }()
			}
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(leaves, cancel)
			if took, err := s.decide(ctx); !errors.Is(err, context.Canceled) || took != leaves {
				t.Errorf("got error %v after %v, want context.Canceled after %v", err, took, leaves)
			}
			begun := time.Now()
			s.Close()
			if took := time.Since(begun); took < want || took > want+10*time.Millisecond {
				t.Errorf("left after %v: Close took %v, want %v", leaves, took, want)
			}
		})
	}
}

// TestLeftTogether closes the Stores of a joint decision that is in flight and whose caller has left. The Close of
// each of them must wait for the decision.
func TestLeftTogether(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		var parts []Part
		for _, limiter := range []string{"a", "b"} {
			c := testConfig(time.Second)
			c.Limiter = limiter
			s := NewStore(f.client, c)
			parts = append(parts, Part{s, NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1})})
		}
		parts[0].Store.servers.whole.sharding.state.Store(oneScript)
		joint, err := Together(t.Context(), parts)
		if err != nil {
			t.Fatal(err)
		}
		f.set(func(context.Context) error { time.Sleep(300 * time.Millisecond); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begun := time.Now()
		if err := joint.DecideAll(ctx, parts); !errors.Is(err, context.Canceled) || time.Since(begun) > 0 {
			t.Errorf("got error %v after %v, want context.Canceled at once", err, time.Since(begun))
		}
		check.Together(len(parts), func(i int) {
			parts[i].Store.Close()
			if took := time.Since(begun); took < 300*time.Millisecond {
				t.Errorf("the Close of Store %d took %v, want 300ms", i, took)
			}
		})
	})
}

// TestLaterPanics checks a hook of the client that panics in a background goroutine, where nothing else
// recovers: the panic must become an error. Close must wait for the goroutine.
func TestLaterPanics(t *testing.T) {
	t.Parallel()
	s := (&freeing{}).leave(0, 0)
	var ended atomic.Bool
	s.Later(func() error { panic("of a hook") }, func(err error) {
		time.Sleep(10 * time.Millisecond)
		ended.Store(errors.As(err, new(*batch.HookError)))
	})
	if s.Close(); !ended.Load() {
		t.Error("no error of a panic when Close has returned")
	}
}

// TestLaterBounded checks that Later refuses if there are too many background goroutines.
func TestLaterBounded(t *testing.T) {
	t.Parallel()
	s := (&freeing{}).leave(0, 0)
	s.cleanups.sending = maxCleanups
	if s.Later(func() error { return nil }, func(error) {}) {
		t.Error("more runs in the background than there may")
	}
}

// TestRenewalsInTime renews the slots of 20,000 requests on a server 200 ms away. All must be renewed
// before any of them expires. They are due after a third of their 10 s.
func TestRenewalsInTime(t *testing.T) {
	t.Parallel()
	const renewals, left = 20_000, 10 * time.Second * 2 / 3
	synctest.Test(t, func(t *testing.T) {
		s := (&freeing{takes: 200 * time.Millisecond}).leave(0, 0)
		s.MaxBatch = 128
		s.init()
		s.single = s.newBatcher(s.servers.whole)
		s.servers.whole.sharding.state.Store(oneScript)
		var ended atomic.Int64
		calls := make([]Background, renewals)
		for i := range calls {
			handles := []algorithm.Handle{{A: 7, B: 8}}
			calls[i] = Background{
				Limits: s.Limits, Key: "k",
				Begin: func() (algorithm.Operation, bool) {
					return algorithm.Operation{Op: algorithm.OpRenew, N: 1, Handles: handles}, true
				},
				End: func(_ []algorithm.Handle, err error) {
					if err == nil {
						ended.Add(1)
					}
				},
			}
		}
		begun := time.Now()
		s.SendAll(t.Context(), calls)
		if took := time.Since(begun); ended.Load() != renewals || took > left/2 {
			t.Errorf("%d renewed, in %v, of which half is for a busy machine: want all in %v", ended.Load(), took, left/2)
		}
		s.Close()
	})
}

// TestRenewalThatFails checks renewals that fail. If Redis has certainly renewed nothing, the renewal may
// be tried again. Otherwise the valid handles are unknown. End is called even if a hook of the client ends the
// goroutine.
func TestRenewalThatFails(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]error{
		redisError("READONLY You can't write against a read only replica."): nil,
		redisError("OOM command not allowed; other limits have changed"):    redisError("OOM command not allowed; other limits have changed"),
		errDial:  nil,
		errReply: errReply,
	} {
		withFake(t, func(t *testing.T, f *fake) {
			f.set(fails(err))
			s := f.store(time.Second)
			call := algorithm.Operation{Op: algorithm.OpRenew, N: 1, Handles: []algorithm.Handle{{A: 7, B: 8}}}
			s.SendAll(t.Context(), []Background{{
				Limits: s.Limits, Key: "k",
				Begin: func() (algorithm.Operation, bool) { return call, true },
				End: func(handles []algorithm.Handle, got error) {
					if !errors.Is(got, want) || want == nil && handles != nil {
						t.Errorf("%v: %v, %v; want %v", err, handles, got, want)
					}
				},
			}})
		})
	}
	withStore(t, time.Second, func(t *testing.T, f *fake, s *tested) {
		s.servers.ctxDeadlines = true
		f.set(func(context.Context) error { runtime.Goexit(); return nil })
		ended := 0
		s.SendAll(t.Context(), []Background{{
			Limits: s.Limits, Key: "k",
			Begin: func() (algorithm.Operation, bool) {
				return algorithm.Operation{Op: algorithm.OpRenew, N: 1, Handles: []algorithm.Handle{{A: 7, B: 8}}}, true
			},
			End: func(_ []algorithm.Handle, err error) {
				if ended++; !errors.As(err, new(*batch.HookError)) {
					t.Errorf("a hook ends the goroutine: %v", err)
				}
			},
		}})
		if ended != 1 {
			t.Errorf("a hook ends the goroutine: ended %d times", ended)
		}
	})
}

// TestRenewalThatFailsTogether makes a hook of the client end the goroutine that sends several renewals. If they
// share a script, the replies to all of them are lost. If the server has refused the script, they are sent alone,
// and only the reply to the one that was in flight is lost: the others are carried out.
func TestRenewalThatFailsTogether(t *testing.T) {
	t.Parallel()
	const renewals = 3
	for name, c := range map[string]struct {
		refuses error
		exits   int // which script the hook ends
		sent    int
		lost    []bool
	}{
		"together": {nil, 1, 1, []bool{true, true, true}},
		"alone":    {redisError("CROSSSLOT Keys in request don't hash to the same slot"), 2, 4, []bool{true, false, false}},
	} {
		withFake(t, func(t *testing.T, f *fake) {
			config := testConfig(time.Second)
			config.MaxBatch = 10
			s := &tested{Store: NewStore(f.client, config)}
			defer s.Close()
			s.warm(t)
			s.servers.ctxDeadlines = true
			s.servers.whole.sharding.state.Store(oneScript)
			f.refusesBatches = c.refuses
			sent := 0
			f.set(func(context.Context) error {
				if sent++; sent == c.exits {
					runtime.Goexit()
				}
				return nil
			})
			lost := make([]bool, renewals)
			calls := make([]Background, renewals)
			for i := range calls {
				calls[i] = Background{
					Limits: s.Limits, Key: "k",
					Begin: func() (algorithm.Operation, bool) { // a plain decision stands for the renewal: fake answers nothing else
						return algorithm.Operation{Op: algorithm.OpEvaluate, N: 1, Handles: make([]algorithm.Handle, 1)}, true
					},
					End: func(_ []algorithm.Handle, err error) {
						if lost[i] = err != nil; lost[i] && !errors.As(err, new(*batch.HookError)) {
							t.Errorf("%s: got error %v of call %d, want a HookError", name, err, i)
						}
					},
				}
			}
			s.SendAll(t.Context(), calls)
			if !slices.Equal(lost, c.lost) || sent != c.sent {
				t.Errorf("%s: lost %v after %d scripts, want %v after %d", name, lost, sent, c.lost, c.sent)
			}
		})
	}
}
