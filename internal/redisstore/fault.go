package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
	"github.com/redislimit/redislimit/internal/health"
)

var (
	// ErrQueue says that too many calls wait in this process. The call was not sent, and the server is
	// not at fault.
	ErrQueue = errors.New("too many decisions are waiting in this process")
	// ErrSentLate says that a call waited in this process for most of its time before it was sent, and
	// was not answered in the time that was left. It may have been carried out. The server is not at fault.
	ErrSentLate = errors.New("too many decisions are waiting in this process: this one was sent late")
	// errHeldUp says that a call was not sent because the server has not answered earlier ones within the
	// timeout of this call. The server is at fault. Usually one of the earlier calls fails before that and opens
	// the circuit breaker, so that the calls that wait get errNotUp.
	errHeldUp = errors.New("not sent: redis has not answered the calls before it")
	// errNotUp is the error of a call that was not sent because its server is not up. doWhenUp makes the
	// call wait until the server is up, or known to be down. In the latter case, the caller gets errNotUp,
	// which wraps health.ErrDown.
	errNotUp error = unsentError{health.ErrDown}
)

// outcome returns what the error of a call says about its server, and the error for the caller. began is
// when the call began, and allowed is how long it was allowed to take. A reply that cannot be read, or that
// says that a script failed halfway, says nothing bad about the server, because it concerns only one key.
func (s *Store) outcome(err error, allowed time.Duration, began time.Time) (health.Outcome, error) {
	if errors.Is(err, algorithm.ErrPartly) || errors.Is(err, algorithm.ErrReply) {
		return health.Rejected, err
	}
	o := diagnose.Outcome(err)
	if o == health.TimedOut {
		err = diagnose.Timeout(s.servers.client, s.servers.options, err, time.Since(began), allowed)
	}
	return o, err
}

// explain adds to err what an operator can do about it. If the server lacks what the scripts need, explain
// also asks the server for its version, which may take one timeout.
func (s *Store) explain(ctx context.Context, err error) error {
	return diagnose.Explain(err, s.servers.cluster != nil, func() string {
		info := redis.NewStringCmd(ctx, "info", "server")
		if s.process(ctx, s.Timeout, info) != nil {
			return ""
		}
		return info.Val()
	})
}

// timeoutError returns the error for a caller that has waited for the whole timeout.
func (s *Store) timeoutError() error {
	return diagnose.Timeout(s.servers.client, s.servers.options, context.DeadlineExceeded, s.Timeout, s.Timeout)
}

// An unsentError is the error of a command that the server has not received.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// isUnsent reports whether err is the error of a command that the server has not received.
func isUnsent(err error) bool { return err != nil && errors.As(err, new(unsentError)) }

// unsent marks the error of a single command that could not be sent completely, so that the command is
// sent again.
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

// failed records the failure of d, or of several calls of which d is one, and returns the error for the
// callers. began is when the round trip began. The functions in s.Hooks receive the values of ctx. If a hook
// of the client panicked or ended the goroutine, only HookPanicked is called, because such an error says
// nothing about the server.
func (s *Store) failed(ctx context.Context, n *node, d *Call, err error, began time.Time) error {
	if hook := (*batch.HookError)(nil); errors.As(err, &hook) {
		if s.Hooks.HookPanicked != nil {
			s.Hooks.HookPanicked(context.WithoutCancel(ctx), hook)
		}
		return err
	}
	err = s.explain(ctx, err)
	o, err := s.outcome(err, s.Timeout, began)
	if reply := redis.Error(nil); d.Op > algorithm.OpReserve && errors.As(err, &reply) {
		o = health.Rejected // a server that refuses to end a hold may still be able to decide
	}
	n.noteKey(d.Key)
	n.health.Failed(o, began, s.Timeout, err)
	if s.Hooks.CallFailed != nil && (!diagnose.SlotMoving(err) || s.servers.noteMoving(time.Now())) {
		s.Hooks.CallFailed(context.WithoutCancel(ctx), err, o == health.Rejected || o == health.Inconclusive)
	}
	return err
}

// noteMoving records an error of a hash slot that is being moved. It reports whether the move has caused
// errors for too long.
func (s *Servers) noteMoving(now time.Time) (tooLong bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.movingLast) > movingPause {
		s.movingSince = now
	}
	s.movingLast = now
	return now.Sub(s.movingSince) >= slotsStuckAfter
}

const (
	// slotsStuckAfter is how long a move of hash slots may cause errors before they are reported.
	slotsStuckAfter = 3 * time.Second
	// movingPause is how long such errors must stop before the next one counts as the error of a new
	// move.
	movingPause = time.Minute
)
