// Package limittest makes limiters for tests of services that use redislimit: one that allows, one
// that denies and one that is unavailable. They answer without Redis and without waiting, the same
// each time, and remember what they were asked.
//
//	handler := newServer(limittest.Deny(30 * time.Second))
//	w := httptest.NewRecorder()
//	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
//	// w.Code is 429, and its Retry-After is "30"
//
// They go wherever a [core.Limiter] goes: under the middleware of each framework, with all its
// options, and into code that calls the limiter itself. To test that a limit really limits, use
// [core.NewMemory] with testing/synctest: that decides as Redis does.
//
// [Replay] says what limits would have done to the requests of a log.
package limittest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
)

// The bounds of what Deny takes.
const (
	minRetryAfter = time.Microsecond
	maxRetryAfter = 400 * 24 * time.Hour
)

// Allow returns a limiter that admits everything: at each decision the full limit of the key is
// available.
//
// opts are those of [core.New], most often limits, which the headers and the [core.Result] then
// have: with core.FixedWindow(core.PerMinute(100)), X-RateLimit-Limit is 100, and a cost above 100
// is denied, as by any limiter. Without a limit it is 1e9 a minute. The limiter's name is
// "limittest", and At is always the first instant of the year 2000, in UTC. Options about Redis
// have no effect. Allow panics if an option is wrong.
func Allow(opts ...core.Option) *core.Limiter { return newLimiter(0, nil, opts) }

// Deny returns a limiter that denies everything but a cost of 0. Nothing remains for any key, and
// RetryAfter and ResetAfter (0 for [core.InFlight]) are retryAfter, which is from 1 microsecond to
// 400 days. Wait ends only with its context. Options are as for [Allow].
func Deny(retryAfter time.Duration, opts ...core.Option) *core.Limiter {
	if retryAfter < minRetryAfter || retryAfter > maxRetryAfter {
		panic(fmt.Sprintf("limittest: Deny(%v): allowed is %v to 400 days", retryAfter, minRetryAfter))
	}
	return newLimiter((retryAfter + time.Microsecond - 1).Truncate(time.Microsecond), nil, opts)
}

// Unavailable returns a limiter that cannot decide, like one with [core.FailClosed] while Redis
// does not answer: decisions and Reset return [core.ErrUnavailable], and the middleware answers
// 503. Options are as for [Allow].
func Unavailable(opts ...core.Option) *core.Limiter {
	return newLimiter(0, errors.New("limittest.Unavailable"), opts)
}

// A Call is a call of a limiter's method; see [Calls].
type Call struct {
	// Method is "AllowN" (of Allow, AllowN, Wait and WaitN), "Peek", "Acquire" (also of
	// AcquireWait, of Wait and WaitN where there is a LeakyBucket, and of a request that WaitUpTo
	// has wait), "Reserve" (also of ReserveWait), "Settle" (also of Cancel and Release) or "Reset".
	Method string
	// Key is the key that was decided on: of Settle that of the Permit or Reservation.
	Key string
	// Cost is the units that were asked for; of Settle what is charged in their place, 0 for
	// Cancel. It is 1 for Peek and 0 for Reset.
	Cost int64
}

// Calls returns the calls of lim so far, in their order, and those of limiters that
// [core.Limiter.With] derived from it. A call that does nothing is not among them: the second end
// of a Permit or Reservation, the Release of what Acquire charged without slots, and a decision whose context
// had ended. All are kept as long as lim is. Calls panics if lim is not a limiter of this
// package.
func Calls(lim *core.Limiter) []Call {
	s, ok := inside.Core.Stub(lim).(*stub)
	if !ok {
		panic(fmt.Sprintf("limittest: Calls: the limiter %q is not of this package", lim.Name()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// A stub answers for a limiter.
type stub struct {
	retryAfter time.Duration // positive if it denies
	err        error         // not nil if it is unavailable

	mu    sync.Mutex
	calls []Call
}

func newLimiter(retryAfter time.Duration, unavailable error, opts []core.Option) *core.Limiter {
	s := &stub{retryAfter: retryAfter, err: unavailable}
	lim, err := inside.Core.NewStub("limittest", opts, s)
	if err != nil {
		panic(fmt.Sprintf("limittest: %v", err))
	}
	return lim
}

// Call implements hook.Stub.
func (s *stub) Call(method, key string, cost int64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{method, key, cost})
	return s.retryAfter, s.err
}
