package health_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/health"
)

// TestTimeouts checks which timeouts of a request mean that the server is down. The others may be the
// fault of a new connection or of this process, and are only a reason to probe.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run  func(*testing.T, func(*fixture))
		took time.Duration
		want health.State
	}{
		"of a server that answers fast":        {runNear, timeout, health.Down},
		"noticed only a little late":           {runNear, timeout + timeout/4, health.Down},
		"noticed late":                         {runNear, timeout + timeout/4 + 1, health.Doubted},
		"of a server that has never been fast": {run, timeout, health.Doubted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t, func(f *fixture) {
				began := time.Now()
				time.Sleep(c.took)
				f.monitor.Failed(health.TimedOut, began, timeout, errorOf(health.TimedOut))
				f.wantState(c.want)
			})
		})
	}
}

// TestFirstAnswer checks that the first answer of all ends a doubt although its request began before the
// doubt: the answer was late only because of the connection. A later answer of this kind says how things
// were, and is ignored.
func TestFirstAnswer(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		for _, want := range []health.State{health.Up, health.Doubted} {
			began := time.Now()
			time.Sleep(timeout)
			f.fail(health.TimedOut)
			f.wantState(health.Doubted)
			time.Sleep(timeout)
			f.monitor.Answered(began, true)
			f.wantState(want)
		}
	})
}

// TestFirstAnswerThatChangedNothing checks that an answer is the first one even if the request changed
// nothing.
func TestFirstAnswerThatChangedNothing(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.monitor.Answered(time.Now(), false)
		began := time.Now()
		time.Sleep(time.Millisecond)
		f.fail(health.ConnectionLost)
		f.monitor.Answered(began, true)
		f.wantState(health.Doubted)
	})
}

// TestAnswersInAnOutage checks that a request ends an outage only if it made the server change
// something: a server that is full or read-only answers all other requests.
func TestAnswersInAnOutage(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		began := time.Now()
		time.Sleep(time.Millisecond)
		f.fail(health.Unavailable)
		f.monitor.Answered(began, true)
		f.wantState(health.Down)
		f.monitor.Answered(time.Now(), false)
		f.wantState(health.Down)
		f.monitor.Answered(time.Now(), true)
		f.wantState(health.Up)
	})
}

// TestProbeTimes checks when a server is probed, and how long each probe may take: the timeout of a
// request, or 5 seconds if it may have to connect.
func TestProbeTimes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run    func(*testing.T, func(*fixture))
		script []reply
		test   func(f *fixture)
		want   string
	}{
		"a broken connection": {
			runNear, []reply{{outcome: health.Answered}}, func(f *fixture) { f.fail(health.ConnectionLost) }, "0s:500ms",
		},
		"a broken connection to a server that is slow to connect to": {
			run, []reply{{outcome: health.Answered}}, func(f *fixture) { f.fail(health.ConnectionLost) }, "0s:5s",
		},
		"one after the other for each connection of the pool, the last one is new": {
			runNear, []reply{{outcome: health.ConnectionLost}, {outcome: health.ConnectionLost}, {outcome: health.Rejected}},
			func(f *fixture) { f.fail(health.ConnectionLost) }, "0s:500ms 0s:500ms 0s:500ms",
		},
		"every 100 ms in a doubt while they say nothing, for example because the pool is exhausted": {
			runNear, []reply{{outcome: health.Inconclusive}, {outcome: health.Inconclusive}, {outcome: health.Answered}},
			func(f *fixture) {
				f.fail(health.ConnectionLost)
				time.Sleep(250 * time.Millisecond)
			}, "0s:500ms 100ms:500ms 200ms:500ms",
		},
		"a probe that this process was too busy to end in time is repeated with more time": {
			runNear, []reply{{health.TimedOut, 2 * timeout, true}, {outcome: health.Answered}}, func(f *fixture) {
				f.fail(health.ConnectionLost)
				time.Sleep(3 * timeout)
			}, "0s:500ms 1s:5s",
		},
		"one at a time while the server is doubted": {
			runNear, []reply{{after: never}}, func(f *fixture) {
				f.fail(health.ConnectionLost)
				go f.await()
				time.Sleep(timeout - time.Millisecond)
			}, "0s:500ms",
		},
		"for a second after the last request, then every 5 seconds": {
			runNear, []reply{{outcome: health.Rejected}}, func(f *fixture) {
				f.fail(health.Unavailable)
				time.Sleep(15 * time.Second)
			}, "0s:5s 100ms:5s 200ms:5s 300ms:5s 400ms:5s 500ms:5s 600ms:5s 700ms:5s 800ms:5s 900ms:5s 1s:5s 1.1s:5s 6.1s:5s 11.1s:5s",
		},
		"at once when a request comes after a quiet second": {
			runNear, []reply{{outcome: health.Rejected}}, func(f *fixture) {
				f.fail(health.Unavailable)
				time.Sleep(3333 * time.Millisecond)
				f.restart()
				_ = f.await()
			}, "0s:5s 100ms:5s",
		},
		"only one of those in flight has the time to connect": {
			runNear, []reply{{outcome: health.Rejected, after: 4950 * time.Millisecond}, {after: never}}, func(f *fixture) {
				f.fail(health.Unavailable)
				f.requests(4750 * time.Millisecond)
				f.restart()
				f.requests(400 * time.Millisecond)
			}, "50ms:500ms 150ms:500ms 250ms:5s 350ms:500ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t, func(f *fixture) {
				f.follow(c.script...)
				c.test(f)
				f.wantCalls(c.want)
			})
		})
	}
}

// TestProbeThatConnects checks a probe whose answer came too late for a request. It must make a second
// call over the connection that the first call has made, and the outcome of the second call must count.
func TestProbeThatConnects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		second health.Outcome
		want   health.State
		slow   bool
	}{
		"the connection is fast": {health.Answered, health.Up, true},
		"the server is full":     {health.Unavailable, health.Down, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runNear(t, func(f *fixture) {
				f.follow(reply{outcome: health.Answered, after: 2 * timeout}, reply{outcome: c.second}, reply{after: never})
				f.monitor.Failed(health.TimedOut, time.Now().Add(-2*timeout), timeout, errorOf(health.TimedOut))
				time.Sleep(2 * timeout)
				f.wantState(c.want)
				f.mu.Lock()
				if f.causes[0] == nil || f.causes[1] != nil {
					t.Errorf("causes %v, want one for the first call alone", f.causes)
				}
				f.calls = f.calls[:2]
				f.mu.Unlock()
				f.wantCalls("0s:5s 1s:500ms")
				if slow := f.monitor.SlowToConnect(); slow != c.slow {
					t.Errorf("SlowToConnect is %v", slow)
				}
			})
		})
	}
}

// TestProbeOfAnEarlierDoubt checks that a server that comes into doubt a second time is probed once,
// whatever the outcome of a probe that began in the first doubt.
func TestProbeOfAnEarlierDoubt(t *testing.T) {
	t.Parallel()
	run(t, func(f *fixture) {
		f.follow(reply{health.TimedOut, 2200 * time.Millisecond, true}, reply{after: never})
		f.fail(health.TimedOut)
		f.monitor.Answered(time.Now(), true)
		f.wantState(health.Up)
		time.Sleep(2 * time.Second)
		f.fail(health.ConnectionLost)
		time.Sleep(timeout - time.Millisecond)
		f.wantState(health.Doubted)
		f.wantCalls("0s:5s 2s:500ms")
	})
}

// TestCannotProbe checks that probing stops if a probe cannot be made, until a request needs the server.
// The probes in flight are then canceled. They must not become the cause of the outage or make another
// probe begin.
func TestCannotProbe(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.follow(reply{after: never}, reply{after: never}, reply{outcome: health.NotProbed})
		f.fail(health.Unavailable)
		time.Sleep(3 * time.Second)
		f.wantCalls("0s:5s 100ms:500ms 200ms:500ms")
		if cause := f.monitor.Snapshot().Cause; !errors.Is(cause, errorOf(health.Unavailable)) {
			t.Errorf("the cause is %v", cause)
		}
		f.refresh()
		f.wantCalls("")
		f.follow(reply{outcome: health.Answered})
		f.wantAwait("0s: true")

		f.restart()
		f.follow(reply{outcome: health.NotProbed}, reply{outcome: health.Answered})
		f.fail(health.ConnectionLost)
		f.wantState(health.Down)
		f.monitor.Answered(time.Now(), true)
		f.wantState(health.Up)
		f.fail(health.ConnectionLost)
		f.wantCalls("0s:500ms 0s:500ms")
		f.wantState(health.Up)
	})
}

// TestAwait checks how long a request waits.
func TestAwait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome health.Outcome // of a request before
		quiet   time.Duration  // how long no request came after that
		reply   reply
		want    string
	}{
		"until a doubt has ended":                {health.ConnectionLost, 0, reply{health.Answered, 200 * time.Millisecond, false}, "200ms: true"},
		"until the server is down":               {health.ConnectionLost, 0, reply{health.Unavailable, 200 * time.Millisecond, false}, "200ms: false"},
		"in doubt for 3 seconds at most":         {health.ConnectionLost, 0, reply{health.Answered, never, true}, "3s: false"},
		"not while it is down":                   {health.Unavailable, 0, reply{after: never}, "0s: false"},
		"not if requests have come all the time": {health.Unavailable, time.Second, reply{after: never}, "0s: false"},
		"for 100 ms after a quiet second":        {health.Unavailable, time.Second + 1, reply{after: never}, "100ms: false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runNear(t, func(f *fixture) {
				f.follow(c.reply)
				f.fail(c.outcome)
				time.Sleep(c.quiet)
				f.wantAwait(c.want)
			})
		})
	}
}

// TestAwaitInTheNextOutage checks that the first request after a quiet second waits for the answer to a probe that
// begins at once, and that no request waits in the next outage because of that.
func TestAwaitInTheNextOutage(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.fail(health.Unavailable)
		time.Sleep(3333 * time.Millisecond)
		f.follow(reply{outcome: health.Answered, after: 20 * time.Millisecond}, reply{after: never})
		f.wantAwait("20ms: true")
		f.fail(health.Unavailable)
		f.wantAwait("0s: false")
	})
}

// TestAwaitEndsEarly checks that a request stops waiting when its context ends or its other channel is
// closed.
func TestAwaitEndsEarly(t *testing.T) {
	t.Parallel()
	hung := time.AfterFunc(20*time.Second, func() { panic("Await does not end") }) // by the real clock, because time may stand still in the bubble
	defer hung.Stop()
	runNear(t, func(f *fixture) {
		f.fail(health.ConnectionLost)
		ctx, cancel := context.WithTimeout(f.Context(), 100*time.Millisecond)
		defer cancel()
		until := make(chan struct{})
		time.AfterFunc(50*time.Millisecond, func() { close(until) })
		began := time.Now()
		if f.monitor.Await(ctx, until) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("with a channel that is closed after 50 ms: ends after %v", time.Since(began))
		}
		if f.monitor.Await(ctx, nil) || time.Since(began) != 100*time.Millisecond {
			t.Errorf("with a context that ends after 100 ms: ends after %v", time.Since(began))
		}
	})
}

// TestNotedRequests checks that, while the server is down, a request is not noted if another one was
// noted less than 20 ms before. If the server comes into doubt in these 20 ms, a request must be noted
// nevertheless.
func TestNotedRequests(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.fail(health.Unavailable)
		f.wantAwait("0s: false")
		time.Sleep(19 * time.Millisecond)
		f.wantAwait("0s: false") // is not noted
		time.Sleep(982 * time.Millisecond)
		f.wantAwait("100ms: false") // comes 1.001 s after the request that was noted
	})
	runNear(t, func(f *fixture) {
		f.fail(health.Unavailable)
		f.wantAwait("0s: false")
		f.monitor.Answered(time.Now(), true)
		f.wantState(health.Up)
		f.follow(reply{outcome: health.Answered, after: 5 * time.Millisecond})
		f.fail(health.ConnectionLost)
		f.wantAwait("5ms: true")
	})
}
