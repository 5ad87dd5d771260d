// Package limittest makes limiters for the tests of services that use redislimit: one that allows, one
// that denies, and one that is unavailable. They answer without Redis and without waiting, always give
// the same answer, and record their calls; see [Calls].
//
//	handler := newServer(limittest.Deny(30 * time.Second))
//	w := httptest.NewRecorder()
//	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
//	// w.Code is 429, and its Retry-After is "30"
//
// These limiters work wherever a [core.Limiter] does: under the middleware of each framework, with all
// its options, and in code that calls the limiter itself. To test that a limit really limits, use
// [core.NewMemory] with testing/synctest: it decides as Redis does.
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

// The bounds of the argument of Deny.
const (
	minRetryAfter = time.Microsecond
	maxRetryAfter = 400 * 24 * time.Hour
)

// Allow returns a limiter that admits everything: at each decision, the full limit of the key is
// available.
//
// opts are options of [core.New], most often limits, which then appear in the headers and in the
// [core.Result]: with core.FixedWindow(core.PerMinute(100)), X-RateLimit-Limit is 100, and a cost above
// 100 is denied, as by any limiter. Without a limit, the limit is 1e9 per minute. The name of the
// limiter is "limittest", and At is always the beginning of the year 2000, in UTC. Options about Redis
// have no effect. Allow panics if an option is invalid.
func Allow(opts ...core.Option) *core.Limiter { return newLimiter(0, nil, opts) }

// Deny returns a limiter that denies everything except a cost of 0. Nothing remains for any key.
// RetryAfter and ResetAfter are retryAfter, which is from 1 microsecond to 400 days. For
// [core.InFlight], ResetAfter is 0. For a cost above the capacity, RetryAfter is [core.Never]. Wait
// never succeeds: it fails when its context ends, or as soon as the deadline of its context is less
// than retryAfter away. opts are as for [Allow]. Deny panics if retryAfter or an option is invalid.
func Deny(retryAfter time.Duration, opts ...core.Option) *core.Limiter {
	if retryAfter < minRetryAfter || retryAfter > maxRetryAfter {
		panic(fmt.Sprintf("limittest: Deny(%v): allowed is %v to 400 days", retryAfter, minRetryAfter))
	}
	return newLimiter((retryAfter + time.Microsecond - 1).Truncate(time.Microsecond), nil, opts)
}

// Unavailable returns a limiter that cannot decide, like a limiter with [core.FailClosed] while Redis
// does not answer: decisions and Reset return [core.ErrUnavailable], and the middleware answers with
// 503. opts are as for [Allow].
func Unavailable(opts ...core.Option) *core.Limiter {
	return newLimiter(0, errors.New("limittest.Unavailable"), opts)
}

// A Call is a call of a method of a limiter; see [Calls].
type Call struct {
	// Method is the method, under one name for all methods of the same kind:
	//
	//	"AllowN"   Allow, AllowN, AllowUpTo, Wait and WaitN; also AllowAll of a single key
	//	"Acquire"  Acquire and AcquireWait; also Wait and WaitN of a limiter with a LeakyBucket, and
	//	           requests that wait because of guard.WaitUpTo
	//	"Reserve"  Reserve and ReserveWait; also AllowAll of several keys, AcquireAll and ReserveAll, for
	//	           each of their keys
	//	"Settle"   Settle and Cancel of a Reservation, Release and Cancel of a Permit; also the end of
	//	           what AllowAll has reserved
	//	"Peek"     Peek; also the decision of AllowUpTo that asks when the rest would be admitted
	//	"Reset"    Reset
	Method string
	// Key is the key of the call. For "Settle" it is the key of the Permit or Reservation.
	Key string
	// Cost is how many units the call was for. For "Settle" it is how many units are charged in the
	// end, which is 0 for Cancel. For "Peek" it is 1, and for "Reset" it is 0.
	Cost int64
}

// Calls returns the calls of lim, and of the limiters that [core.Limiter.With] derived from it, in their
// order. A call that does nothing is not included: the second end of a Permit or Reservation, the
// Release of a Permit of Acquire that has no slots, and a decision whose context had already ended. The
// calls are kept in memory as long as lim is. Calls panics if lim was not made by this package.
func Calls(lim *core.Limiter) []Call {
	s, ok := inside.Core.Stub(lim).(*stub)
	if !ok {
		panic(fmt.Sprintf("limittest: Calls: the limiter %q is not of this package", lim.Name()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// A stub answers for a limiter instead of Redis.
type stub struct {
	retryAfter time.Duration // positive if the limiter denies
	err        error         // not nil if the limiter is unavailable

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

// Call records a call and answers it. It implements coreaccess.Stub.
func (s *stub) Call(method, key string, cost int64) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, Call{method, key, cost})
	return s.retryAfter, s.err
}
