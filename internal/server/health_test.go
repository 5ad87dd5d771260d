package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A fake is a server in the place of Redis, in a bubble with a clock of its own.
type fake struct {
	client *redis.Client
	stores []*tested

	pipeline func(cmds []redis.Cmder) error // answers pipelines, if it is not nil

	mu     sync.Mutex
	answer func(ctx context.Context) error // nil: it decides
	asked  []time.Time
}

var (
	errReply  = errors.New("an error of some kind")
	errDial   = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errMemory = redisError("OOM command not allowed when used memory > 'maxmemory'.")
)

// redisError is an error that a server replies.
type redisError string

func (e redisError) Error() string { return string(e) }

// RedisError makes it a redis.Error.
func (redisError) RedisError() {}

// silence is the answer of a server that does not answer.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// deaf is the answer of a server that does not answer, through a client that does not look at contexts.
func deaf(context.Context) error {
	time.Sleep(30 * time.Second)
	return errReply
}

// fails is the answer of a server that replies with err.
func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// DialHook changes nothing: no connection is made.
func (f *fake) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook answers in the place of a server.
func (f *fake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		once, decision := cmd.(onceCmd)
		if !decision {
			return nil
		}
		f.mu.Lock()
		answer := f.answer
		f.asked = append(f.asked, time.Now())
		f.mu.Unlock()
		if answer != nil {
			if err := answer(ctx); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		const now, minute = 1_800_000_000_000_000, 60_000_000
		once.SetVal([]int64{1, now, 0, now, minute})
		return nil
	}
}

// ProcessPipelineHook answers pipelines, if it is to.
func (f *fake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.pipeline == nil {
			return next(ctx, cmds)
		}
		return f.pipeline(cmds)
	}
}

// set sets the answer from now on.
func (f *fake) set(answer func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// sent returns how often the server was asked since the last call of sent.
func (f *fake) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.asked)
	f.asked = nil
	return n
}

// A tested is a Store and what it reported.
type tested struct {
	*Store

	mu      sync.Mutex
	changes []string
	logged  int
	errs    []error
}

// withFake runs test in a bubble with a server that decides.
func withFake(t *testing.T, test func(*testing.T, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})}
		f.client.AddHook(f)
		test(t, f)
		for _, s := range f.stores {
			s.Close() // ends the probes
		}
		time.Sleep(time.Minute) // for calls that were abandoned
		_ = f.client.Close()
	})
}

// testConfig is that of a Store of one limit, in which no decisions share.
func testConfig(timeout time.Duration) Config {
	limit := algorithm.Numbers{Count: 100, Period: 60_000_000}
	return Config{
		Prefix: "rl", Limiter: "test", Timeout: timeout, MaxBatch: 1,
		Limits: NewLimits([]algorithm.Member{{Kind: algorithm.FixedWindow, Evaluator: algorithm.FixedWindow.New(limit)}}, []string{"fixed"}),
	}
}

func (f *fake) store(timeout time.Duration) *tested {
	s := &tested{}
	c := testConfig(timeout)
	c.Hooks = Hooks{
		CallFailed: func(_ context.Context, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errs = append(s.errs, err)
		},
		BreakerChange: func(_ context.Context, c Change) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if c.From != BreakerClosed && c.To != BreakerClosed {
				return // a probe
			}
			s.changes = append(s.changes, c.To.String())
			if c.Log {
				s.logged++
			}
		},
	}
	s.Store = NewStore(f.client, c)
	f.stores = append(f.stores, s)
	return s
}

// decide makes a decision, and returns how long it took.
func (s *tested) decide(ctx context.Context) (took time.Duration, err error) {
	start := time.Now()
	err = s.Decide(ctx, NewDecision(s.limits, "k", algorithm.HoldCall{Op: algorithm.OpCharge, N: 1}))
	return time.Since(start), err
}

// wantChanges checks to which states the breaker has changed, without the probes.
func (s *tested) wantChanges(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.changes, want) {
		t.Errorf("the breaker is %q, want %q; failures: %v", s.changes, want, s.errs)
	}
}

// One timeout opens the breaker for all stores over the client; no decision waits
// after it, and none is a probe. One of the stores logs, all are notified. It is the same with a client
// that does not end a call with its context.
func TestHealthIsShared(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) error{"silent": silence, "deaf": deaf} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withFake(t, func(t *testing.T, f *fake) { healthIsShared(t, f, away) })
		})
	}
}

func healthIsShared(t *testing.T, f *fake, away func(context.Context) error) {
	a, b := f.store(time.Second), f.store(time.Second)
	f.set(away)
	if took, err := a.decide(t.Context()); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
		t.Errorf("the first decision: %v after %v", err, took)
	}
	for range 100 {
		for _, s := range []*tested{a, b} {
			if took, err := s.decide(t.Context()); !errors.Is(err, ErrBreakerOpen) || took != 0 {
				t.Errorf("a decision after it: %v after %v", err, took)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	f.set(nil)
	time.Sleep(longestPause + time.Second)
	for _, s := range []*tested{a, b} {
		if _, err := s.decide(t.Context()); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		s.wantChanges(t, "open", "closed")
	}
	if a.logged+b.logged != 2 || len(a.errs)+len(b.errs) != 1 {
		t.Errorf("%d and %d log lines, want two in all; failed calls: %v, %v", a.logged, b.logged, a.errs, b.errs)
	}
}

// The pause between probes grows from a quarter of a second to five seconds. They
// end when no decision wants them, and at once with the last store.
func TestPausesOfProbes(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s, other := f.store(time.Second), f.store(time.Second)
		f.set(fails(errDial))
		_, _ = s.decide(t.Context())
		for range 400 {
			_, _ = s.decide(t.Context())
			time.Sleep(50 * time.Millisecond)
		}
		f.mu.Lock()
		var pauses []time.Duration
		for i := 2; i < len(f.asked); i++ { // the first is the decision
			pauses = append(pauses, f.asked[i].Sub(f.asked[i-1]))
		}
		f.mu.Unlock()
		const ms = time.Millisecond
		if want := []time.Duration{250 * ms, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 5000 * ms, 5000 * ms}; !slices.Equal(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		time.Sleep(time.Minute)
		f.sent()
		time.Sleep(time.Hour)
		if n := f.sent(); n != 0 {
			t.Errorf("%d probes though no decision wants them", n)
		}
		_, _ = s.decide(t.Context())
		synctest.Wait()
		if n := f.sent(); n != 1 {
			t.Errorf("%d probes for a decision, want one", n)
		}
		s.Close()
		s.Close()
		if !s.servers.whole.probing.Load() {
			t.Error("the probes have ended though a store needs them")
		}
		other.Close()
		synctest.Wait()
		if s.servers.whole.probing.Load() {
			t.Error("the probes go on without a store")
		}
	})
}

// Stores with different timeouts share health, not patience.
func TestPatience(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		hasty, usual, patient := f.store(200*time.Millisecond), f.store(400*time.Millisecond), f.store(2*time.Second)
		f.set(silence)
		_, _ = hasty.decide(t.Context())
		if took, err := usual.decide(t.Context()); !errors.Is(err, ErrBreakerOpen) || took != 0 {
			t.Errorf("twice as much patience: %v after %v", err, took)
		}
		if took, err := patient.decide(t.Context()); !errors.Is(err, context.DeadlineExceeded) || took != 2*time.Second {
			t.Errorf("ten times as much patience: %v after %v", err, took)
		}
		if took, err := patient.decide(t.Context()); !errors.Is(err, ErrBreakerOpen) || took != 0 {
			t.Errorf("once it has waited itself: %v after %v", err, took)
		}
		patient.wantChanges(t, "open")
	})
}

// A caller with less time than the timeout leaves with the error of its context: that says nothing
// about the server, and the call goes on until its own end, which does.
func TestCallIsNotItsCaller(t *testing.T) {
	t.Parallel()
	for _, ctxDeadlines := range []bool{false, true} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(time.Second)
			s.servers.ctxDeadlines = ctxDeadlines
			f.set(silence)
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if took, err := s.decide(ctx); !errors.Is(err, context.DeadlineExceeded) || took != 200*time.Millisecond {
					t.Errorf("a deadline of 200 ms: %v after %v", err, took)
				}
				cancel()
			}
			s.wantChanges(t)
			time.Sleep(250 * time.Millisecond) // the first call ends
			s.wantChanges(t, "open")
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if took, err := s.decide(ctx); !errors.Is(err, ErrBreakerOpen) || took != 0 {
				t.Errorf("while it is open: %v after %v", err, took)
			}
			if len(s.errs) == 0 {
				t.Error("no failed call was reported")
			}
		})
	}
}

// Errors that leave no doubt open the breaker at once, others after the third in a
// row, and those of a slot that moves or of one call never.
func TestErrorsThatOpen(t *testing.T) {
	t.Parallel()
	for err, after := range map[error]int{
		errDial: 1, errMemory: 1, redisError("READONLY You can't write"): 1, redisError("LOADING dataset"): 1,
		redisError("MISCONF errors writing"): 1, redisError("NOREPLICAS not enough"): 1, redisError("MASTERDOWN link"): 1,
		redisError("ERR unknown command"): 1, errReply: 3, redisError("NOPERM no permission"): 3, redisError("BUSY script"): 3,
		redisError("CLUSTERDOWN Hash slot not served"): 0, redisError("WRONGTYPE Operation against a key"): 0, algorithm.ErrReply: 0,
		redisError("ERR user_script:9: attempt to compare nil with number"): 0,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			withFake(t, func(t *testing.T, f *fake) {
				s := f.store(time.Second)
				for range 3 { // two in a row, with a success after them, are none
					f.set(fails(err))
					for i := range min(after-1, 2) {
						if _, got := s.decide(t.Context()); !errors.Is(got, err) {
							t.Errorf("failure %d: %v, want %v", i, got, err)
						}
					}
					f.set(nil)
					if _, got := s.decide(t.Context()); got != nil {
						t.Errorf("a success: %v", got)
					}
				}
				s.wantChanges(t)
				f.set(fails(err))
				for range max(after, 5*(1-after)) {
					if _, got := s.decide(t.Context()); !errors.Is(got, err) {
						t.Errorf("%v, want %v", got, err)
					}
				}
				if after == 0 {
					s.wantChanges(t)
					return
				}
				s.wantChanges(t, "open")
				if _, got := s.decide(t.Context()); !errors.Is(got, ErrBreakerOpen) {
					t.Errorf("once it is open: %v", got)
				}
			})
		})
	}
}

// A call from before the server was found well again says nothing of it after.
func TestFailureFromBefore(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		hasty, patient := f.store(200*time.Millisecond), f.store(5*time.Second)
		f.set(silence)
		ended := make(chan error)
		go func() {
			_, err := patient.decide(t.Context())
			ended <- err
		}()
		synctest.Wait()
		_, _ = hasty.decide(t.Context())
		f.set(nil)
		time.Sleep(time.Second)
		if _, err := hasty.decide(t.Context()); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the call whose reply was lost: %v", err)
		}
		if _, err := patient.decide(t.Context()); err != nil {
			t.Errorf("after that: %v", err)
		}
		hasty.wantChanges(t, "open", "closed")
	})
}

// A probe in a hash slot that moves says nothing about the server: it stays up.
func TestProbeThatSaysNothing(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		f.set(fails(redisError("TRYAGAIN Multiple keys request during rehashing of slot")))
		s.servers.whole.want(s.Store, "k") // as after a reply that this process was too busy to see
		time.Sleep(time.Minute)
		if n := f.sent(); n == 0 {
			t.Error("there was no probe")
		}
		s.wantChanges(t)
	})
}

// A hook of the client that panics in a probe has made it fail.
func TestPanicInProbe(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		f.set(fails(errDial))
		_, _ = s.decide(t.Context())
		f.set(func(context.Context) error { panic("a hook's own mistake") })
		for range 50 {
			if _, err := s.decide(t.Context()); !errors.Is(err, ErrBreakerOpen) {
				t.Errorf("while probes panic: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		f.set(nil)
		time.Sleep(longestPause)
		if _, err := s.decide(t.Context()); err != nil {
			t.Errorf("after that: %v", err)
		}
		s.wantChanges(t, "open", "closed")
	})
}

// A server that is down says so as what it is.
func TestStates(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(BreakerClosed, BreakerHalfOpen, BreakerOpen); got != "closed half-open open" {
		t.Error(got)
	}
}
