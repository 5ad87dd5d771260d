package redisstore

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
	"github.com/redislimit/redislimit/internal/diagnose"
	"github.com/redislimit/redislimit/internal/health"
)

// A fake stands for Redis. It runs in a synctest bubble.
type fake struct {
	client *redis.Client
	stores []*tested

	pipeline       func(cmds []redis.Cmder) error // if not nil, answers pipelines
	other          func(cmd redis.Cmder) error    // if not nil, answers commands that are part of no decision
	refusesBatches error                          // if not nil, the error of scripts with the keys of several decisions

	mu     sync.Mutex
	answer func(ctx context.Context) error // if not nil, runs before a decision and may make it fail
	asked  []time.Time

	dialing func() // if not nil, called before a connection is made
	refuses bool   // whether connections are refused
	dialed  int
	pings   int
}

var (
	errReply  = errors.New("an error of some kind")
	errDial   = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errMemory = redisError("OOM command not allowed when used memory > 'maxmemory'.")
)

// redisError is an error that a server replies.
type redisError string

func (e redisError) Error() string { return string(e) }

// RedisError makes redisError a redis.Error.
func (redisError) RedisError() {}

// silence is the answer of a server that never answers.
func silence(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// deaf is the answer of a server that never answers, through a client that ignores contexts.
func deaf(context.Context) error {
	time.Sleep(30 * time.Second)
	return errReply
}

// fails is the answer of a server that replies with err.
func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// dial makes a connection. Decisions do not need one, but package redisstore makes some itself.
func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dialed++
	if f.dialing != nil {
		f.dialing()
	}
	if f.refuses {
		return nil, errDial
	}
	conn, end := net.Pipe()
	go f.pong(end)
	return conn, nil
}

// pong answers a PING, unless a decision would time out.
func (f *fake) pong(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	ping := make([]byte, len("PING\r\n"))
	if _, err := conn.Read(ping); err != nil {
		return
	}
	f.mu.Lock()
	f.pings++
	answer := f.answer
	f.mu.Unlock()
	if answer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), checkTime)
		defer cancel()
		if diagnose.IsTimeout(answer(ctx)) {
			_, _ = conn.Read(ping) // until the connection is closed
			return
		}
	}
	_, _ = conn.Write([]byte("+PONG\r\n"))
}

// DialHook changes nothing: the client makes no connections.
func (f *fake) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook answers instead of a server.
func (f *fake) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		once, decision := cmd.(onceCmd)
		if !decision && cmd.Name() != "del" {
			if f.other != nil {
				return f.other(cmd)
			}
			return nil
		}
		f.mu.Lock()
		answer := f.answer
		if decision {
			f.asked = append(f.asked, time.Now())
		}
		f.mu.Unlock()
		if answer != nil {
			if err := answer(ctx); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		if !decision {
			return nil
		}
		if err := f.refusesBatches; err != nil && cmd.Args()[2] != 1 {
			cmd.SetErr(err)
			return err
		}
		const now, minute = 1_800_000_000_000_000, 60_000_000
		once.SetVal(slices.Repeat([]int64{1, now, 0, now, minute}, cmd.Args()[2].(int))) // one reply for each key
		return nil
	}
}

// ProcessPipelineHook answers pipelines if the test has set pipeline.
func (f *fake) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.pipeline == nil {
			return next(ctx, cmds)
		}
		return f.pipeline(cmds)
	}
}

// set sets the answer to all later calls.
func (f *fake) set(answer func(ctx context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// sent returns how many scripts the server has received since the previous call of the method sent.
func (f *fake) sent() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.asked)
	f.asked = nil
	return n
}

// A tested is a Store with everything that was reported to its Hooks.
type tested struct {
	*Store

	mu      sync.Mutex
	changes []string
	logged  []string
	errs    []error
}

// withFake runs test in a synctest bubble, with a server that decides.
func withFake(t *testing.T, test func(*testing.T, *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, Dialer: f.dial, PoolSize: 4})
		f.client.AddHook(f)
		test(t, f)
		for _, s := range f.stores {
			s.Close() // stops the probes
		}
		time.Sleep(time.Minute) // until abandoned calls have ended
		_ = f.client.Close()
	})
}

// withStore is like withFake, with a Store that the server has already answered, so that it does not count
// as distant.
func withStore(t *testing.T, timeout time.Duration, test func(*testing.T, *fake, *tested)) {
	t.Helper()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(timeout)
		s.warm(t)
		test(t, f, s)
	})
}

// testConfig returns the Config of a Store with one limit, whose decisions never share a script.
func testConfig(timeout time.Duration) Config {
	limit := algorithm.Numbers{Count: 100, Period: 60_000_000}
	return Config{
		Prefix: "rl", Limiter: "test", Timeout: timeout, MaxBatch: 1,
		Limits: NewLimits([]algorithm.Limit{{Kind: algorithm.FixedWindow, Evaluator: algorithm.FixedWindow.New(limit)}}, []string{"fixed"}, nil),
	}
}

// store returns a new Store over the client.
func (f *fake) store(timeout time.Duration) *tested {
	s := &tested{}
	c := testConfig(timeout)
	c.Hooks = &Hooks{
		CallFailed: func(_ context.Context, err error, _ bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.errs = append(s.errs, err)
		},
		ServerChanged: func(_ context.Context, c health.Change) {
			s.mu.Lock()
			defer s.mu.Unlock()
			name := [...]string{"down", "still", "back", "replaced"}[c.Event]
			if c.Event != health.StillDown {
				s.changes = append(s.changes, name)
			}
			if c.Log {
				s.logged = append(s.logged, fmt.Sprint(name, " ", c.Lasted.Round(time.Second)))
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
	err = s.Decide(ctx, NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1}))
	return time.Since(start), err
}

// warm makes a first decision, so that the server does not count as distant.
func (s *tested) warm(t *testing.T) {
	t.Helper()
	if _, err := s.decide(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantChanges checks which changes of the server's state were reported.
func (s *tested) wantChanges(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.changes, want) {
		t.Errorf("notified of %q, want %q; failures: %v", s.changes, want, s.errs)
	}
}
