package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/health"
)

// The errors of calls that were not made.
var (
	// ErrQueue says that too many decisions wait in this process. That is not the server's fault.
	ErrQueue = errors.New("too many decisions are waiting in this process")
)

// errNotUp is that of a decision that was not sent: run has it wait until its server is up, or
// known to be down.
var errNotUp error = unsentError{health.ErrDown}

// errPanicked is that of a call whose caller is to recover.
var errPanicked = errors.New("a hook of the client panicked")

// outcome returns what the error of a call says about its server, and the error to show. The call was
// given so long and began at an instant.
func (s *Store) outcome(err error, given time.Duration, began time.Time) (health.Outcome, error) {
	var reply redis.Error
	switch {
	case isTimeout(err):
		return health.TimedOut, s.timeoutError(err, time.Since(began), given)
	case errors.Is(err, ErrUnsupported), decidesNothing(err):
		return health.Unavailable, err
	case errors.As(err, &reply), errors.Is(err, algorithm.ErrPartly), errors.Is(err, algorithm.ErrReply):
		return health.Rejected, err // a reply that cannot be read is the fault of one key
	case errors.Is(err, redis.ErrPoolExhausted):
		return health.Inconclusive, err
	case isBroken(err):
		return health.ConnectionLost, err
	}
	return health.Unavailable, err
}

// isBroken reports whether err is that of a connection that had been made, and then failed.
func isBroken(err error) bool {
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.As(err, &op) && (op.Op == "read" || op.Op == "write")
}

// An unsentError is that of a command that the server did not get.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

func isUnsent(err error) bool { return err != nil && errors.As(err, new(unsentError)) }

// unsent marks the error of a single command of which not all could be sent.
func unsent(err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "write" {
		return unsentError{err}
	}
	return err
}

// isTimeout reports whether err is of a deadline: of a context, a connection or the client's pool.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, redis.ErrPoolTimeout)
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

// timeoutError returns the error of a call that was given so long and took so long without an answer.
// It names the option of the client that ended the call sooner, and says if it was the client's pool
// that was waited for.
func (s *Store) timeoutError(err error, took, given time.Duration) error {
	if option, value := s.servers.endedBy(err, took, given); option != "" {
		return fmt.Errorf("no answer from redis within %v: the client's %s of %v ended the call, which may take %v: raise it, or lower core.Timeout: %w",
			took.Round(time.Millisecond), option, value, given.Round(time.Microsecond), context.DeadlineExceeded)
	}
	pool := ""
	if c, ok := s.servers.client.(*redis.Client); ok {
		stats, size := c.PoolStats(), c.Options().PoolSize
		if errors.Is(err, redis.ErrPoolTimeout) || stats.IdleConns == 0 && int(stats.TotalConns) >= size {
			pool = fmt.Sprintf(" (all %d connections of the client's pool are in use)", size)
		}
	}
	return fmt.Errorf("no answer from redis within %v%s: %w", given.Round(time.Microsecond), pool, context.DeadlineExceeded)
}

// failed records that a call for d failed that was begun at an instant, and returns its error for
// the caller. ctx gives the hooks its values.
func (s *Store) failed(ctx context.Context, sv *Server, d *Call, err error, begun time.Time) error {
	err = s.explain(ctx, err)
	o, err := s.outcome(err, s.Timeout, begun)
	if reply := redis.Error(nil); d.Op > algorithm.OpReserve && errors.As(err, &reply) {
		o = health.Rejected // a server that decides may refuse what ends a hold
	}
	sv.noteKey(d.Key)
	sv.health.Failed(o, begun, s.Timeout, err)
	if s.Hooks.CallFailed != nil && (!moving(err) || s.servers.stuck(time.Now())) {
		s.Hooks.CallFailed(context.WithoutCancel(ctx), err, o == health.Rejected || o == health.Inconclusive)
	}
	return err
}

// moving reports whether err is of a hash slot that is being moved, or that no node has.
func moving(err error) bool { return hasCode(err, "TRYAGAIN", "CLUSTERDOWN Hash slot not served") }

// stuck takes an error of a hash slot that is being moved. It reports whether there have been such
// errors for too long.
func (s *Servers) stuck(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.movingLast) > movingPause {
		s.movingSince = now
	}
	s.movingLast = now
	return now.Sub(s.movingSince) >= slotsStuckAfter
}

const (
	// slotsStuckAfter is how long errors of moving hash slots go on before they are reported.
	slotsStuckAfter = 3 * time.Second
	// movingPause is the time without such an error after which the next one begins a new move.
	movingPause = time.Minute
)
