package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A fakeClient answers each command by calling a function of the test.
type fakeClient func(cmd redis.Cmder) error

func (f fakeClient) Process(_ context.Context, cmd redis.Cmder) error {
	err := f(cmd)
	cmd.SetErr(err)
	return err
}

// redisError is an error reply of the server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

const errNoScript redisError = "NOSCRIPT No matching script."

// TestWrongRepliesAdmitNobody checks replies that no script of this module returns: each must be an error, and none may admit
// a request.
func TestWrongRepliesAdmitNobody(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(cmd redis.Cmder) error{
		"nothing":     func(redis.Cmder) error { return nil },
		"nil":         func(redis.Cmder) error { return redis.Nil },
		"too short":   func(cmd redis.Cmder) error { return set(cmd, 1, 1, 1, 1) },
		"too long":    func(cmd redis.Cmder) error { return set(cmd, 1, 1, 1, 1, 1, 1) },
		"no time":     func(cmd redis.Cmder) error { return set(cmd, 1, -1, 0, 0, 0) },
		"no verdict":  func(cmd redis.Cmder) error { return set(cmd, 7, 1, 0, 0, 0) },
		"an error":    func(redis.Cmder) error { return errors.New("READONLY") },
		"script gone": func(redis.Cmder) error { return errNoScript },
	} {
		lim := MustNew(fakeClient(answer), "api", TokenBucket(PerMinute(100)), FailClosed())
		if res, err := lim.Allow(context.Background(), "k"); !errors.Is(err, ErrUnavailable) || res != (Result{}) {
			t.Errorf("%s: got %+v, %v; want ErrUnavailable", name, res, err)
		}
	}
}

// TestUnexpectedReply checks a server that gives wrong replies for one key. Each wrong reply is an error of its own call, at
// most one line per minute is logged, and other keys are not affected: the circuit breaker must not open.
func TestUnexpectedReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		client := fakeClient(func(cmd redis.Cmder) error {
			if strings.Contains(fmt.Sprint(cmd.Args()...), "planted") {
				return set(cmd, 1, 1, 1<<62, 1<<62, 0)
			}
			return set(cmd, 1, 1_800_000_000_000_000, 0, 0, 0)
		})
		lim := MustNew(client, "api", TokenBucket(PerMinute(100)), FailClosed(), Logger(slog.New(slog.NewTextHandler(&log, nil))))
		for minute := 1; minute <= 2; minute++ {
			for range 20 {
				for range 5 {
					if res, err := lim.Allow(t.Context(), "planted"); !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "breaker") {
						t.Errorf("got %+v, %v; want ErrUnavailable because of the reply, not because of the breaker", res, err)
					}
				}
				if res, err := lim.Allow(t.Context(), "k"); err != nil || !res.Allowed {
					t.Errorf("another key: got %+v, %v; want it admitted", res, err)
				}
				time.Sleep(time.Second)
			}
			if lines := strings.Count(log.String(), "\n"); lines != minute {
				t.Errorf("%d lines are logged in %d minutes, want one per minute: %s", lines, minute, log.String())
			}
			time.Sleep(time.Minute)
		}
	})
}

// set stores an array of integers as the reply to a command.
func set(cmd redis.Cmder, reply ...int64) error {
	cmd.(interface{ SetVal(val []int64) }).SetVal(reply)
	return nil
}

// TestSentOnce checks which commands are sent for one decision: the digest of the script, and the source only if Redis does not
// know the digest. go-redis must not repeat either of them, because a repetition could charge twice.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	var sent []string
	lim := MustNew(fakeClient(func(cmd redis.Cmder) error {
		sent = append(sent, cmd.Name())
		if !cmd.NoRetry() {
			t.Errorf("go-redis may repeat %s, want NoRetry", cmd.Name())
		}
		if cmd.Name() == "evalsha" {
			return errNoScript
		}
		return set(cmd, 1, 1_800_000_000_000_000, 0, 0, 0)
	}), "api", TokenBucket(PerMinute(100)), FailClosed())
	res, err := lim.Allow(context.Background(), "k")
	if err != nil || !res.Allowed || res.Remaining != 99 || res.Source != SourceRedis {
		t.Errorf("got %+v, %v; want it admitted by Redis with 99 left", res, err)
	}
	if !slices.Equal(sent, []string{"evalsha", "eval"}) {
		t.Errorf("the commands %v were sent, want evalsha and eval", sent)
	}
}

// TestUnsupportedServer checks a server that lacks something that the scripts need. The error must say so and name the versions,
// and must differ from the error of an outage.
func TestUnsupportedServer(t *testing.T) {
	t.Parallel()
	for reply, unsupported := range map[string]bool{
		"ERR syntax error": true,
		"ERR Error running script (call to f_1): @user_script:1: ERR unknown command 'X'":                  true,
		"ERR Write commands not allowed after non deterministic commands. Call redis.replicate_commands()": true,
		"ERR This Redis command is not allowed from script script: 53aa7d, on @user_script:13.":            true, // some servers say this about TIME
		"OOM command not allowed when used memory > 'maxmemory'.":                                          false,
		"LOADING Redis is loading the dataset in memory":                                                   false,
		"READONLY You can't write against a read only replica.":                                            false,
	} {
		var log strings.Builder
		observed := make(chan struct{})
		lim := MustNew(fakeClient(func(cmd redis.Cmder) error {
			if cmd.Name() == "info" {
				cmd.(*redis.StringCmd).SetVal("# Server\r\nredis_version:3.2.1\r\n")
				return nil
			}
			return redisError(reply)
		}), "api", TokenBucket(PerMinute(100)), FailClosed(), Logger(slog.New(slog.NewTextHandler(&log, nil))), Observe(func(_ context.Context, e Event) {
			if e.Kind == EventFallbackOn {
				close(observed)
			}
		}))
		var err error
		for range 4 {
			if _, e := lim.Allow(context.Background(), "k"); err == nil {
				err = e
			}
		}
		<-observed // a background goroutine notifies the observer after the outage is logged
		_ = lim.Close()
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnsupported) != unsupported {
			t.Errorf("%s: got error %v, want ErrUnavailable, and ErrUnsupported: %t", reply, err, unsupported)
		}
		if unsupported && (!strings.Contains(err.Error(), "Redis 6.0 or newer") || !strings.Contains(err.Error(), "redis 3.2.1")) {
			t.Errorf("%s: got error %v, want one that names the versions", reply, err)
		}
		if strings.Contains(log.String(), "redis cannot be used") != unsupported || strings.Count(log.String(), "level=WARN") != 1 {
			t.Errorf("%s: want one warning, with \"redis cannot be used\": %t; got %s", reply, unsupported, log.String())
		}
	}
}

// TestOtherNumbers makes two Limiters with the same name. If their limits are stored under the same key but have different
// numbers, that is a mistake, and a warning is logged.
func TestOtherNumbers(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	for name, c := range map[string]struct {
		client Client
		opts   []Option
		want   int // how many warnings are logged
	}{
		"the same":         {client, []Option{TokenBucket(PerMinute(10))}, 0},
		"other numbers":    {client, []Option{TokenBucket(PerMinute(11))}, 1},
		"another period":   {client, []Option{TokenBucket(PerHour(11))}, 0},
		"another prefix":   {client, []Option{TokenBucket(PerMinute(11)), Prefix("other")}, 0},
		"another client":   {redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), []Option{TokenBucket(PerMinute(11))}, 0},
		"another limit":    {client, []Option{TokenBucket(PerMinute(10)), FixedWindow(PerDay(10))}, 0},
		"another kind":     {client, []Option{SlidingWindowLog(PerMinute(10), LimitName("token-1m"))}, 0},
		"other at another": {client, []Option{FixedWindow(PerDay(10)), TokenBucket(PerMinute(9))}, 1},
	} {
		var log bytes.Buffer
		lim := MustNew(client, "twice", TokenBucket(PerMinute(10)))
		other := MustNew(c.client, "twice", append(c.opts, Logger(slog.New(slog.NewTextHandler(&log, nil))))...)
		if n := strings.Count(log.String(), "has other numbers"); n != c.want {
			t.Errorf("%s: %d warnings, want %d: %s", name, n, c.want, log.String())
		}
		_, _ = lim.Close(), other.Close()
	}
}

// TestMistakesAtStart makes Limiters that New accepts with a warning: there are more processes than a limit has units.
func TestMistakesAtStart(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	for name, c := range map[string]struct {
		opts []Option
		want int // how many warnings are logged
	}{
		"a share of each":  {[]Option{TokenBucket(PerMinute(50)), InFlight(50), Processes(50)}, 0},
		"none of a window": {[]Option{FixedWindow(PerMinute(49)), Processes(50)}, 1},
		"none of slots":    {[]Option{FixedWindow(PerMinute(500)), InFlight(49), Processes(50)}, 1},
		"none of a rate":   {[]Option{TokenBucket(PerMinute(49), Burst(500)), Processes(50)}, 1},
		"none of a burst":  {[]Option{TokenBucket(PerMinute(500), Burst(49)), Processes(50)}, 1},
		"one process":      {[]Option{LeakyBucket(PerMinute(1))}, 0},
	} {
		var log bytes.Buffer
		_ = MustNew(client, "start", append(c.opts, Logger(slog.New(slog.NewTextHandler(&log, nil))))...).Close()
		if n := strings.Count(log.String(), "level=WARN"); n != c.want || strings.Count(log.String(), "Processes(50) is more than a limit has units") != n {
			t.Errorf("%s: %d warnings, want %d: %s", name, n, c.want, log.String())
		}
	}
}

// TestLimiterForEachRequest makes a Limiter for each request, as a faulty service would: one warning is logged, and none if each
// Limiter is closed.
func TestLimiterForEachRequest(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{true, false} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		kept := MustNew(client, "kept", FixedWindow(PerMinute(10)))
		var log bytes.Buffer
		for range manyOpen + 10 {
			lim := MustNew(client, "each", FixedWindow(PerMinute(10)), Logger(slog.New(slog.NewTextHandler(&log, nil))))
			if closes {
				_ = lim.Close()
			}
		}
		if n, want := strings.Count(log.String(), "\n"), map[bool]int{false: 1}[closes]; n != want || strings.Count(log.String(), "make each once") != n {
			t.Errorf("closed %t: %d warnings are logged, want %d: %s", closes, n, want, log.String())
		}
		_ = kept.Close()
	}
}

// TestWithAfterClose calls With for other algorithms after Close, while Redis does not answer: nothing probes Redis, and no observer is
// notified of the outage.
func TestWithAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls, events atomic.Int64
		down := fakeClient(func(redis.Cmder) error {
			calls.Add(1)
			return redisError("LOADING Redis is loading the dataset in memory")
		})
		lim := MustNew(down, "api", FixedWindow(PerMinute(10)), FailClosed(), Logger(slog.New(slog.DiscardHandler)), Observe(func(_ context.Context, e Event) {
			if e.Kind == EventBreaker {
				events.Add(1)
			}
		}))
		_ = lim.Close()
		other, err := lim.With(TokenBucket(PerMinute(10)))
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := other.Allow(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
				t.Errorf("got error %v, want ErrUnavailable", err)
			}
		}
		synctest.Wait()
		before := calls.Load()
		time.Sleep(time.Minute)
		if probes := calls.Load() - before; probes != 0 || events.Load() != 0 {
			t.Errorf("%d probes and %d events of the circuit breaker after Close, want none", probes, events.Load())
		}
		_ = lim.Close()
	})
}
