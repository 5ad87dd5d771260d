package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// The errors of calls that were not made.
var (
	// ErrBreakerOpen says that the server is down, and was not asked.
	ErrBreakerOpen = errors.New("circuit breaker open")
	// ErrQueue says that too many decisions wait in this process. That is not the
	// server's fault.
	ErrQueue = errors.New("too many decisions are waiting in this process")
)

// errPanicked is that of a call whose caller is to recover.
var errPanicked = errors.New("a hook of the client panicked")

// call makes a call in the background and waits for it no longer than d.
func (s *Store) call(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	if s.servers.ctxDeadlines {
		return f(bounded)
	}
	return batch.Beside(bounded, func() error { return f(bounded) }, nil)
}

// A failure is a call that a server did not answer well.
type failure struct {
	err     error
	begun   time.Time
	given   time.Duration // how long the server had
	timeout bool
	certain bool // one is enough to know that the server is down
	ignore  bool // it says nothing about the server
	late    bool // this process was too busy to notice a reply in time
	partly  bool // the server answers, and has carried out some of the call: that is no outage for others
}

// classify returns what the error of a call that was begun at an instant says about
// the server, which was given so long.
func (s *Store) classify(err error, given time.Duration, begun time.Time) *failure {
	f := &failure{err: err, begun: begun, given: given, timeout: isTimeout(err)}
	switch {
	case f.timeout:
		f.err = s.timeoutError(err, given)
		f.late = time.Since(begun) > given+max(given/4, 50*time.Millisecond) || processBusy()
	case errors.Is(err, ErrUnsupported), isDial(err), hasCode(err, "LOADING", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN"):
		f.certain = true
	case errors.Is(err, algorithm.ErrPartly):
		f.partly = true
	case hasCode(err, "TRYAGAIN", "CLUSTERDOWN Hash slot not served"):
		f.ignore = true
	}
	return f
}

// processBusy reports whether goroutines wait long for a processor: the reply of a
// server may then be there, and nobody has seen it.
func processBusy() bool { return schedulingDelay() > busyDelay }

const busyDelay = time.Millisecond

// schedulingDelay returns how long a goroutine that can run waits for a processor.
func schedulingDelay() time.Duration {
	longest := time.Duration(0)
	for range 4 {
		begun := time.Now()
		runtime.Gosched() // goes behind all goroutines that can run
		if longest = max(longest, time.Since(begun)); longest > busyDelay {
			break // a caller may be waiting
		}
	}
	return longest
}

// isTimeout reports whether err is of a deadline, of a context or a connection.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// isDial reports whether no connection could be made.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func hasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// timeoutError says for how long the server was waited for, and whether it was the
// client's pool that was waited for instead.
func (s *Store) timeoutError(err error, given time.Duration) error {
	pool := ""
	if c, ok := s.servers.client.(*redis.Client); ok {
		stats, size := c.PoolStats(), c.Options().PoolSize
		if errors.Is(err, redis.ErrPoolTimeout) || stats.IdleConns == 0 && int(stats.TotalConns) >= size {
			pool = fmt.Sprintf(" (all %d connections of the client's pool are in use)", size)
		}
	}
	return fmt.Errorf("no answer from redis within %v%s: %w", given.Round(time.Microsecond), pool, context.DeadlineExceeded)
}

// finish records how a call on k ended that was begun at an instant, and returns
// its error for the caller. ctx gives the hooks its values.
func (s *Store) finish(ctx context.Context, sv *Server, k string, err error, begun time.Time) error {
	if err == nil {
		sv.succeeded()
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	f := s.classify(s.explain(ctx, err), s.timeout, begun)
	sv.failed(ctx, s, k, f)
	if s.hooks.CallFailed != nil && !f.ignore {
		s.hooks.CallFailed(ctx, f.err)
	}
	return f.err
}
