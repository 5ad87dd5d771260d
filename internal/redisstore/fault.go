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
	// ErrQueue says that too many decisions wait in this process. The decision was not sent, and the server
	// is not at fault.
	ErrQueue = errors.New("too many decisions are waiting in this process")
	// ErrSentLate says that a decision waited in this process for most of its time before it was sent. The
	// server is not at fault.
	ErrSentLate = errors.New("too many decisions are waiting in this process: this one was sent late")
	// errHeldUp says that a decision was not sent because the server has not answered those before. That is
	// the server's fault.
	errHeldUp = errors.New("not sent: redis does not answer what was sent before")
	// errNotUp is the error of a decision that was not sent because its server is not up. doWhenUp makes the
	// decision wait until the server is up, or known to be down.
	errNotUp error = unsentError{health.ErrDown}
)

// outcome returns what the error of a call says about its server, and the error to show. The call was
// given so long and began at an instant. A reply that cannot be read is the fault of one key.
func (s *Store) outcome(err error, given time.Duration, began time.Time) (health.Outcome, error) {
	if errors.Is(err, algorithm.ErrPartly) || errors.Is(err, algorithm.ErrReply) {
		return health.Rejected, err
	}
	o := diagnose.Outcome(err)
	if o == health.TimedOut {
		err = diagnose.Timeout(s.servers.client, s.servers.options, err, time.Since(began), given)
	}
	return o, err
}

// explain adds to an error what a person can do about it. It may ask the server for its version.
func (s *Store) explain(ctx context.Context, err error) error {
	return diagnose.Explain(err, s.servers.cluster != nil, func() string {
		info := redis.NewStringCmd(ctx, "info", "server")
		_ = s.call(ctx, s.Timeout, func(ctx context.Context) error { return s.servers.client.Process(ctx, info) })
		return info.Val()
	})
}

// timeoutError returns the error of a caller who has waited for the whole timeout.
func (s *Store) timeoutError() error {
	return diagnose.Timeout(s.servers.client, s.servers.options, context.DeadlineExceeded, s.Timeout, s.Timeout)
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

// failed records that a call for d failed that was begun at an instant, and returns its error for
// the caller. ctx gives the hooks its values. A hook of the client that panicked says nothing about
// the server.
func (s *Store) failed(ctx context.Context, sv *Server, d *Call, err error, begun time.Time) error {
	if hook := (*batch.HookError)(nil); errors.As(err, &hook) {
		if s.Hooks.HookPanicked != nil {
			s.Hooks.HookPanicked(context.WithoutCancel(ctx), hook)
		}
		return err
	}
	err = s.explain(ctx, err)
	o, err := s.outcome(err, s.Timeout, begun)
	if reply := redis.Error(nil); d.Op > algorithm.OpReserve && errors.As(err, &reply) {
		o = health.Rejected // a server that decides may refuse what ends a hold
	}
	sv.noteKey(d.Key)
	sv.health.Failed(o, begun, s.Timeout, err)
	if s.Hooks.CallFailed != nil && (!diagnose.SlotMoving(err) || s.servers.stuck(time.Now())) {
		s.Hooks.CallFailed(context.WithoutCancel(ctx), err, o == health.Rejected || o == health.Inconclusive)
	}
	return err
}

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
