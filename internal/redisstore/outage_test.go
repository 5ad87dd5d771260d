package redisstore

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/health"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// After one timeout, the server is down for all stores over the client that have this timeout. No
// decision waits, and no decision serves as a probe. All stores are notified, and one of them logs. This
// is also true of a client that does not end calls with their contexts.
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
	a, b, other := f.store(time.Second), f.store(time.Second), f.store(2*time.Second)
	a.warm(t)
	other.warm(t)
	f.set(away)
	if took, err := a.decide(t.Context()); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
		t.Errorf("the first decision: %v after %v", err, took)
	}
	for range 100 {
		for _, s := range []*tested{a, b} {
			if took, err := s.decide(t.Context()); !errors.Is(err, health.ErrDown) || took != 0 {
				t.Errorf("a decision after it: %v after %v", err, took)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	if took, err := other.decide(t.Context()); !errors.Is(err, context.DeadlineExceeded) || took != 2*time.Second {
		t.Errorf("another timeout finds out by itself: %v after %v", err, took)
	}
	f.set(nil)
	for range 20 { // until calls that hang have ended
		_, _ = a.decide(t.Context())
		time.Sleep(2 * time.Second)
	}
	for _, s := range []*tested{a, b} {
		if _, err := s.decide(t.Context()); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		s.wantChanges(t, "down", "back")
	}
	if f.pings == 0 {
		t.Error("each probe that is not answered keeps a connection of the pool")
	}
	if len(a.logged)+len(b.logged) != 2 || len(a.errs)+len(b.errs) != 1 {
		t.Errorf("%v and %v are logged, want two lines in all; failed calls: %v, %v", a.logged, b.logged, a.errs, b.errs)
	}
}

// If decisions are made all the time, a server that is back is used within 200 ms, however long it was
// down. TestQuietOutage is about a server that no decision needs while it is down.
func TestServerIsBack(t *testing.T) {
	t.Parallel()
	for _, away := range []func(context.Context) error{silence, fails(errDial), fails(errMemory)} {
		for _, lasts := range []time.Duration{300 * time.Millisecond, 4 * time.Second, 12 * time.Second} {
			withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
				f.set(away)
				for range lasts / (10 * time.Millisecond) {
					_, _ = s.decide(t.Context())
					time.Sleep(10 * time.Millisecond)
				}
				f.set(nil)
				begun := time.Now()
				for _, err := s.decide(t.Context()); err != nil; _, err = s.decide(t.Context()) {
					time.Sleep(5 * time.Millisecond)
				}
				if took := time.Since(begun); took > 200*time.Millisecond {
					t.Errorf("after %v: back after %v", lasts, took)
				}
				s.wantChanges(t, "down", "back")
			})
		}
	}
}

// If no decisions are made while the server is down, it is probed rarely, and the first decision waits for
// a probe.
func TestQuietOutage(t *testing.T) {
	t.Parallel()
	withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
		f.set(fails(errMemory))
		_, _ = s.decide(t.Context())
		time.Sleep(2 * time.Second)
		f.sent()
		time.Sleep(time.Minute)
		if n := f.sent(); n != 12 {
			t.Errorf("%d probes in a minute in which nothing wants them, want one each five seconds", n)
		}
		if took, err := s.decide(t.Context()); !errors.Is(err, health.ErrDown) || took > 100*time.Millisecond {
			t.Errorf("while it is away: %v after %v", err, took)
		}
		time.Sleep(3 * time.Second)
		f.set(func(context.Context) error { time.Sleep(20 * time.Millisecond); return nil })
		if took, err := s.decide(t.Context()); err != nil || took != 40*time.Millisecond {
			t.Errorf("the first when it is back: %v after %v", err, took)
		}
		s.wantChanges(t, "down", "back")
	})
}

// A closed store sends its decisions, and so finds out whether the server answers. Its decisions must
// not be left to the outage policy forever, and no probes may run.
func TestClosedStoreDecides(t *testing.T) {
	t.Parallel()
	withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
		s.warm(t)
		s.Close()
		for _, fault := range []error{errMemory, errDial, io.EOF} {
			f.set(fails(fault))
			for range 3 {
				if _, err := s.decide(t.Context()); err == nil {
					t.Errorf("%v: a decision", fault)
				}
			}
			synctest.Wait()
			f.sent()
			time.Sleep(time.Minute)
			if n := f.sent(); n != 0 {
				t.Errorf("%v: %d probes of a closed store", fault, n)
			}
			f.set(nil)
			if _, err := s.decide(t.Context()); err != nil {
				t.Errorf("%v is over: %v", fault, err)
			}
		}
		s.wantChanges(t)
	})
}

// A store that is made at the moment when the last one closes may be notified of an outage. It must then
// also be notified of the end, even if it makes no decisions.
func TestStoresReplaced(t *testing.T) {
	t.Parallel()
	for range 20 {
		withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
			f.set(fails(errMemory))
			_, _ = s.decide(t.Context())
			synctest.Wait()
			s.Close()
			late := f.store(500 * time.Millisecond)
			synctest.Wait()
			f.set(nil)
			time.Sleep(time.Minute)
			s.wantChanges(t, "down", "back")
			if len(late.changes)%2 != 0 {
				t.Errorf("notified of %q", late.changes)
			}
		})
	}
}

// If one of several stores over a Cluster closes, the others must not be notified of the end of an outage.
func TestStoresOfClusterClose(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		a, b := f.store(500*time.Millisecond), f.store(500*time.Millisecond)
		a.servers.cluster = redis.NewClusterClient(&redis.ClusterOptions{
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, errDial },
		})
		defer func() { _ = a.servers.cluster.Close() }()
		a.warm(t)
		f.set(fails(errMemory))
		_, _ = b.decide(t.Context())
		_, _ = a.decide(t.Context())
		synctest.Wait()
		a.Close()
		a.wantChanges(t, "down", "back")
		b.wantChanges(t, "down")
		f.set(nil)
		time.Sleep(10 * time.Second) // no decision is needed: the other store probes
		b.wantChanges(t, "down", "back")
		a.wantChanges(t, "down", "back")
	})
}

// If a client is closed before its limiters, this is an outage. It is reported and logged once, and ends
// when the limiters are closed.
func TestClientCloses(t *testing.T) {
	t.Parallel()
	withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
		f.set(fails(redis.ErrClosed))
		for range 1000 {
			_, _ = s.decide(t.Context())
			time.Sleep(10 * time.Millisecond)
		}
		s.wantChanges(t, "down")
		if want := []string{"down 0s"}; !slices.Equal(s.logged, want) {
			t.Errorf("logged %q, want %q", s.logged, want)
		}
		s.Close()
		s.wantChanges(t, "down", "back")
	})
}

// A dead connection says nothing about the server if a new connection can be made: decisions wait for the
// new connection.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		dead    int // how many connections are dead; the pool has four
		then    error
		changes []string
	}{
		"one": {1, nil, nil}, "all": {4, nil, nil}, "always": {1000, nil, []string{"down"}}, "and it has gone": {3, errDial, []string{"down"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
				left := test.dead
				f.set(func(context.Context) error {
					f.mu.Lock()
					defer f.mu.Unlock()
					if left--; left >= 0 {
						return io.EOF
					}
					return test.then
				})
				if _, err := s.decide(t.Context()); !errors.Is(err, io.EOF) {
					t.Errorf("the first: %v", err)
				}
				if _, err := s.decide(t.Context()); (err == nil) != (test.changes == nil) {
					t.Errorf("the second: %v", err)
				}
				s.wantChanges(t, test.changes...)
			})
		})
	}
}

// A command that could not be sent is sent again. A command whose reply is lost is not.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]int{"write": 3, "read": 1} {
		withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
			f.sent()
			first := true
			f.set(func(context.Context) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				if first {
					first = false
					return &net.OpError{Op: op, Err: errors.New("connection reset by peer")}
				}
				return nil
			})
			if _, err := s.decide(t.Context()); (err == nil) != (op == "write") {
				t.Errorf("%s: %v", op, err)
			}
			if n := f.sent(); n < want {
				t.Errorf("%s: sent %d times, want it, a probe and it again", op, n)
			}
			s.wantChanges(t)
		})
	}
}

// A distant server answers in time once there are connections, although a new connection takes longer than
// a decision may.
func TestFarServer(t *testing.T) {
	t.Parallel()
	for _, ctxDeadlines := range []bool{false, true} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(time.Second)
			s.servers.ctxDeadlines = ctxDeadlines
			idle := 0
			f.set(func(ctx context.Context) error {
				f.mu.Lock()
				takes := 1600 * time.Millisecond
				if idle > 0 {
					idle--
					takes = 400 * time.Millisecond
				}
				f.mu.Unlock()
				if ctxDeadlines {
					select {
					case <-time.After(takes):
					case <-ctx.Done():
						return ctx.Err()
					}
				} else {
					time.Sleep(takes)
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				idle++
				return nil
			})
			var asked, failed int
			check.Together(4, func(int) {
				for begun := time.Now(); time.Since(begun) < 20*time.Second; {
					took, err := s.decide(t.Context())
					if took > time.Second {
						t.Errorf("a decision took %v", took)
					}
					f.mu.Lock()
					asked++
					if err != nil && time.Since(begun) > 5*time.Second { // by then there are connections
						failed++
					}
					f.mu.Unlock()
				}
			})
			if failed > 0 || asked < 150 {
				t.Errorf("%d of %d decisions failed", failed, asked)
			}
			s.wantChanges(t)
		})
	}
}

// If the first answer comes after its caller has left, it shows that the server is up: the next decision
// need not wait for a probe.
func TestFirstAnswerIsSlow(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s, begun := f.store(time.Second), time.Now()
		f.set(func(context.Context) error {
			if time.Since(begun) < 1500*time.Millisecond {
				time.Sleep(1600 * time.Millisecond) // includes the time for a new connection
			}
			return nil
		})
		if _, err := s.decide(t.Context()); err == nil {
			t.Error("the first decision did not fail")
		}
		time.Sleep(700 * time.Millisecond)
		if took, err := s.decide(t.Context()); err != nil || took > 0 {
			t.Errorf("after the first answer: %v after %v", err, took)
		}
		s.wantChanges(t)
	})
}

// A server that has answered within a tenth of the timeout is near. A lone call to it needs no goroutine,
// so a caller that cancels gets the reply when it comes.
func TestNearServer(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		s.servers.ctxDeadlines = true
		takes := 50 * time.Millisecond
		f.set(func(context.Context) error {
			time.Sleep(takes)
			return nil
		})
		s.warm(t)
		takes = 300 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if took, err := s.decide(ctx); err != nil || took != 300*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A new connection to a server that is back may take longer than a decision may. One probe at a time is
// given that long. The server is up if a round trip over the new connection then takes less than the
// timeout.
func TestFarServerIsBack(t *testing.T) {
	t.Parallel()
	for _, ctxDeadlines := range []bool{false, true} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(time.Second)
			s.servers.ctxDeadlines = ctxDeadlines
			s.warm(t)
			f.set(fails(errDial))
			_, _ = s.decide(t.Context())
			connected := false
			f.set(func(ctx context.Context) error {
				f.mu.Lock()
				takes := 3600 * time.Millisecond
				if connected {
					takes = 900 * time.Millisecond
				}
				f.mu.Unlock()
				select {
				case <-time.After(takes):
				case <-ctx.Done():
					return ctx.Err()
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				connected = true
				return nil
			})
			time.Sleep(5 * time.Second)
			if _, err := s.decide(t.Context()); err != nil {
				t.Error(err)
			}
			s.wantChanges(t, "down", "back")
		})
	}
}

// A limiter that is made while the server is down is notified of the outage, and of its end.
func TestToldLater(t *testing.T) {
	t.Parallel()
	withStore(t, 500*time.Millisecond, func(t *testing.T, f *fake, s *tested) {
		f.set(fails(errMemory))
		_, _ = s.decide(t.Context())
		s.wantChanges(t, "down")
		later := f.store(500 * time.Millisecond)
		for range 10 {
			_, _ = later.decide(t.Context())
			time.Sleep(100 * time.Millisecond)
		}
		later.wantChanges(t, "down")
		f.set(nil)
		time.Sleep(10 * time.Second)
		later.wantChanges(t, "down", "back")
		s.wantChanges(t, "down", "back")
	})
}

// A caller with less time than the timeout leaves with the error of its context, which says nothing
// about the server. The call continues until its own timeout, which does say something.
func TestCallIsNotItsCaller(t *testing.T) {
	t.Parallel()
	for _, ctxDeadlines := range []bool{false, true} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(time.Second)
			s.servers.ctxDeadlines = ctxDeadlines
			s.warm(t)
			f.set(silence)
			for range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if took, err := s.decide(ctx); !errors.Is(err, context.DeadlineExceeded) || took != 200*time.Millisecond {
					t.Errorf("a deadline of 200 ms: %v after %v", err, took)
				}
				cancel()
			}
			s.wantChanges(t)
			time.Sleep(250 * time.Millisecond) // until the first call has ended
			s.wantChanges(t, "down")
			time.Sleep(100 * time.Millisecond)
			_, _ = s.decide(t.Context()) // the first decision after it waits for a probe
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if took, err := s.decide(ctx); !errors.Is(err, health.ErrDown) || took != 0 {
				t.Errorf("while it is open: %v after %v", err, took)
			}
			s.mu.Lock() // the other calls are still in flight
			defer s.mu.Unlock()
			if len(s.errs) == 0 {
				t.Error("no failed call was reported")
			}
		})
	}
}

// A check ends in time, even if the client ignores contexts.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		f.set(deaf)
		begun := time.Now()
		if _, err := s.Check(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != checkTime {
			t.Errorf("%v after %v, want a timeout after %v", err, time.Since(begun), checkTime)
		}
	})
}

// TestPanicInCheck checks servers over clients with a hook that panics during a command that only Check sends. The
// hooks of a Ring and of a Cluster run in goroutines of go-redis.
func TestPanicInCheck(t *testing.T) {
	t.Parallel()
	var panics atomic.Int32
	newClient := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		c.AddHook(&fake{other: func(cmd redis.Cmder) error {
			if cmd.Name() == "info" {
				panics.Add(1)
				panic("a hook's own mistake")
			}
			return nil
		}})
		return c
	}
	slots := func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
	}
	for name, client := range map[string]redis.UniversalClient{
		"a single server": newClient(&redis.Options{Addr: "127.0.0.1:1"}),
		"a Ring":          redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}, NewClient: newClient}),
		"a Cluster":       redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, NewClient: newClient}),
	} {
		s := NewStore(client, testConfig(time.Second))
		s.servers.ctxDeadlines = true
		s.adviceOnServers(t.Context())
		if err := client.Close(); panics.Swap(0) != 1 || err != nil {
			t.Errorf("%s: the hook was not called once; %v", name, err)
		}
	}
}

// TestPanicInRights checks a server over a client with a hook that panics or ends the goroutine during the script that
// finds out which rights are missing. Check then says nothing about rights.
func TestPanicInRights(t *testing.T) {
	t.Parallel()
	for _, end := range []func(){func() { panic("a hook's own mistake") }, runtime.Goexit} {
		for _, ctxDeadlines := range []bool{false, true} {
			withFake(t, func(t *testing.T, f *fake) {
				s := f.store(time.Second)
				s.servers.ctxDeadlines = ctxDeadlines
				f.pipeline = func([]redis.Cmder) error { return errReply }
				asked := 0
				f.other = func(cmd redis.Cmder) error {
					if cmd.Name() == "eval" {
						asked++
						end()
					}
					return nil
				}
				advice, err := s.Check(t.Context())
				if err != nil || asked != 1 || slices.ContainsFunc(advice, func(line string) bool { return strings.Contains(line, "may not run") }) {
					t.Errorf("got %q, %v after %d scripts; want no error, and nothing about rights after 1", advice, err, asked)
				}
			})
		}
	}
}

// errTooLarge is the reply of Redis to a script that does not compile.
const errTooLarge = redisError("ERR Error compiling script (new function): user_script:1146: function at line 133 has more than 200 local variables")

// tairRefuses is the reply of the proxy of a Tair to every script.
const tairRefuses = "bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, and KEYS should not be in expression"

// Errors of a server that cannot decide at all mean that it is down. Errors of a single call do not.
func TestErrorsThatOpen(t *testing.T) {
	t.Parallel()
	for err, opens := range map[error]bool{
		errDial: true, errMemory: true, redisError("READONLY You can't write"): true, redisError("LOADING dataset"): true,
		redisError("MISCONF errors writing"): true, redisError("NOREPLICAS not enough"): true, redisError("MASTERDOWN link"): true,
		redisError("ERR unknown command"): true, errReply: true, redisError("NOPERM no permission to run the 'evalsha' command"): true,
		redisError("NOPERM no permission for this key"): false, redisError("BUSY script"): true,
		redisError("CLUSTERDOWN Hash slot not served"): false, redisError("WRONGTYPE Operation against a key"): false,
		redisError("ERR user_script:9: attempt to compare nil with number"): false, errTooLarge: false,
		redisError("ERR Error compiling script (new function): <string> line:1(column:2) near '42':   syntax error "): false,
		algorithm.ErrReply: false, redisError("MOVED 1 127.0.0.1:7000"): false, redisError("ERR DB index is out of range"): true,
		redisError("ERR Protocol error: unauthenticated multibulk length"): true, redisError("ERR " + tairRefuses): true,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			t.Parallel()
			withStore(t, time.Second, func(t *testing.T, f *fake, s *tested) {
				f.set(fails(err))
				for range 5 {
					_, got := s.decide(t.Context())
					if !errors.Is(got, err) && (!opens || !errors.Is(got, health.ErrDown)) {
						t.Errorf("%v, want %v", got, err)
					}
				}
				if !opens {
					s.wantChanges(t)
					return
				}
				s.wantChanges(t, "down")
			})
		})
	}
}

// A server that refuses to end a hold may still be able to decide: its Redis user may lack a right that only this needs, or its
// memory may be full. This is one error, and not an outage.
func TestEndRefused(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"NOPERM no permission to run zrem", "OOM command not allowed when used memory > 'maxmemory'.",
	} {
		withStore(t, time.Second, func(t *testing.T, f *fake, s *tested) {
			f.set(fails(redisError(refusal)))
			d := NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpRelease, N: 1, Handles: make([]algorithm.Handle, 1)})
			if err := s.End(t.Context(), d, nil); err == nil || !strings.Contains(err.Error(), refusal) {
				t.Errorf("got error %v, want %s", err, refusal)
			}
			s.wantChanges(t)
			if len(s.errs) != 1 {
				t.Errorf("%s: %d failed calls, want 1", refusal, len(s.errs))
			}
		})
	}
}

// A timeout that is noticed late, as in a busy process, does not mean that the server is down. A probe
// finds out whether the server answers.
func TestLateTimeout(t *testing.T) {
	t.Parallel()
	for answers, changes := range map[bool][]string{true: nil, false: {"down"}} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(500 * time.Millisecond)
			s.servers.ctxDeadlines = true
			s.warm(t)
			f.set(func(context.Context) error {
				time.Sleep(time.Second)
				if answers {
					f.set(nil)
				}
				return context.DeadlineExceeded
			})
			_, _ = s.decide(t.Context())
			time.Sleep(6 * time.Second)
			s.wantChanges(t, changes...)
		})
	}
}

// Any reply, even an error of a single call, ends the doubt about the server: decisions do not wait for a
// probe.
func TestReplyEndsDoubt(t *testing.T) {
	t.Parallel()
	withStore(t, time.Second, func(t *testing.T, f *fake, s *tested) {
		dead := true
		f.set(func(context.Context) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if dead {
				dead = false
				return io.EOF
			}
			return redisError("TRYAGAIN Multiple keys request during rehashing of slot")
		})
		_, _ = s.decide(t.Context())
		synctest.Wait()
		if !s.servers.whole.up() {
			t.Error("it is doubted though it replied")
		}
		s.wantChanges(t)
	})
}

// A probe in which a hook of the client panics or ends the goroutine has failed.
func TestPanicInProbe(t *testing.T) {
	t.Parallel()
	probesEnd(t, errDial, func(f *fake, end func()) {
		f.set(func(context.Context) error { end(); return nil })
	})
}

// A probe asks a server that lacks what the scripts need for its version. If a hook of the client panics or ends the
// goroutine then, the probe has failed like any other.
func TestPanicInInfoOfProbe(t *testing.T) {
	t.Parallel()
	probesEnd(t, redisError("ERR unknown command 'evalsha'"), func(f *fake, end func()) {
		f.other = func(redis.Cmder) error { end(); return nil }
	})
}

// probesEnd begins an outage with an error. In the outage, each probe calls a function that panics or ends the
// goroutine; hook sets up the fake for that. The server must be down, and up again when it answers.
func probesEnd(t *testing.T, outage error, hook func(f *fake, end func())) {
	t.Helper()
	for how, end := range map[string]func(){"panic": func() { panic("a hook's own mistake") }, "exit": runtime.Goexit} {
		for _, ctxDeadlines := range []bool{false, true} {
			withFake(t, func(t *testing.T, f *fake) {
				s := f.store(time.Second)
				s.servers.ctxDeadlines = ctxDeadlines
				f.set(fails(outage))
				_, _ = s.decide(t.Context())
				hook(f, end)
				for range 50 {
					if _, err := s.decide(t.Context()); !errors.Is(err, health.ErrDown) {
						t.Errorf("while probes %s: got error %v, want ErrDown", how, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				f.set(nil)
				time.Sleep(time.Second)
				if _, err := s.decide(t.Context()); err != nil {
					t.Errorf("after probes that %s: got error %v, want none", how, err)
				}
				s.wantChanges(t, "down", "back")
			})
		}
	}
}

// TestDialerIgnoresContext has a Dialer that hangs whatever its context says. The listeners are notified all the same,
// and the server is up again as soon as it can be reached, although the first probes still hang.
func TestDialerIgnoresContext(t *testing.T) {
	t.Parallel()
	for _, ctxDeadlines := range []bool{false, true} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(500 * time.Millisecond)
			s.servers.ctxDeadlines = ctxDeadlines
			s.servers.whole.addr = failoverAddr
			hangs := atomic.Bool{}
			hangs.Store(true)
			f.client.Options().Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hangs.Load() {
					time.Sleep(30 * time.Second)
				}
				return f.dial(ctx, network, addr)
			}
			f.set(fails(&net.OpError{Op: "dial", Err: errors.New("no master")}))
			_, _ = s.decide(t.Context())
			time.Sleep(addressTime + dialGrace)
			s.wantChanges(t, "down")
			for range 100 {
				_, _ = s.decide(t.Context())
				time.Sleep(100 * time.Millisecond)
			}
			hangs.Store(false)
			f.set(nil)
			begun := time.Now()
			for _, err := s.decide(t.Context()); err != nil && time.Since(begun) < time.Minute; _, err = s.decide(t.Context()) {
				time.Sleep(5 * time.Millisecond)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("ctxDeadlines %v: back after %v, want at most 1s", ctxDeadlines, took)
			}
			s.wantChanges(t, "down", "back")
		})
	}
}

// TestPanicInDialer finds out the address of the master behind Sentinel with a Dialer that panics or ends the
// goroutine. The listeners are notified all the same.
func TestPanicInDialer(t *testing.T) {
	t.Parallel()
	for _, end := range []func(){func() { panic("the Dialer's own mistake") }, runtime.Goexit} {
		withFake(t, func(t *testing.T, f *fake) {
			s := f.store(time.Second)
			s.servers.whole.addr, f.dialing = failoverAddr, end
			f.set(fails(redisError("LOADING Redis is loading the dataset in memory")))
			_, _ = s.decide(t.Context())
			s.wantChanges(t, "down")
			f.set(nil)
			time.Sleep(time.Second)
			_, _ = s.decide(t.Context())
			s.wantChanges(t, "down", "back")
		})
	}
}

// If all connections of the pool are in use, the error says so, although the client gives up before the
// timeout.
func TestPoolIsUsedUp(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		s.warm(t)
		f.set(fails(redis.ErrPoolTimeout))
		if _, err := s.decide(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "of the client's pool are in use") {
			t.Errorf("%v", err)
		}
	})
}
