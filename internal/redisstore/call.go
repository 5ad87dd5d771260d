package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
)

// A Call is one call about one key: its operation, and the memory for the reply. A Call may outlive its
// caller, which may leave before the reply comes.
type Call struct {
	Limits *Limits
	Key    string
	// Operation is what the call asks for. If Handles is not nil, the reply may overwrite its elements: with
	// new handles if the call decides or renews. The handle of a limit with slots is always overwritten, and
	// is zero unless the call has taken or renewed slots.
	algorithm.Operation

	// Answers has one answer for each limit, which the reply to a call that decides fills in. If the key
	// was banned before the call, no limit has decided, and the answers are meaningless. The same is true
	// if several limiters decide together, and the key of another one was banned.
	Answers []algorithm.Answer

	next *Call // the call for the next limiter if several decide together; otherwise nil

	err    error               // the error of this call alone; valid after a round trip that succeeded
	self   [1]*Call            // the call itself, so that sending it alone allocates no slice
	inline [1]algorithm.Answer // room for one answer, which spares an allocation; or the Ban, if the limiter has bans
}

// NewCall returns a Call about the user's key k.
func NewCall(l *Limits, k string, operation algorithm.Operation) *Call {
	d := &Call{Limits: l, Key: k, Operation: operation}
	d.self[0] = d
	if operation.Op > algorithm.OpReserve {
		return d
	}
	if d.Answers = d.inline[:]; len(l.limits) > len(d.inline) || l.bans != nil {
		d.Answers = make([]algorithm.Answer, len(l.limits))
	}
	return d
}

// Ban returns the ban that a decision has found or begun. The ban is stored in inline, because a field of
// its own would make each Call 24 bytes larger.
func (d *Call) Ban() algorithm.Ban {
	if d.Limits.bans == nil {
		return algorithm.Ban{}
	}
	return d.inline[0].Ban()
}

// Decide evaluates each limit for the units of the call. If all limits admit the units, Decide charges or
// holds them, depending on the operation. If the server is down, the error is [health.ErrDown].
//
// Decide returns after the timeout at the latest. If the server cannot run the script, Decide may take
// up to one timeout more to ask the server for its version. If ctx has an earlier deadline, Decide
// returns the error of ctx then, and the units and slots that the call holds are freed when the reply
// comes. If ctx is canceled, Decide may do the same, or wait for the reply. Decide may send a call
// although ctx has already ended: a caller that does not want this must check ctx first.
func (s *Store) Decide(ctx context.Context, d *Call) error {
	if d.Handles != nil {
		d.HoldID = algorithm.NewHoldID() // slots can be freed by this id even if the reply is lost
	}
	return s.doWhenUp(ctx, d, s.deadlines.timer())
}

// End carries out an OpSettle, OpRefund or OpRelease, at most once, and then calls onEnd, unless onEnd
// is nil. It sends the call even if ctx has ended. A ctx that has ended, or has a deadline before the end
// of the timeout, only bounds how long the caller waits.
//
// With such a ctx, the call needs a goroutine. If there are too many such goroutines, End returns ErrQueue
// at once, sends nothing and does not call onEnd. In all other cases, onEnd has been called or will be,
// even if End returns ErrQueue for another reason: because too many calls wait for batches, or because the
// call has waited for its batch for too long.
func (s *Store) End(ctx context.Context, d *Call, onEnd func()) error {
	sent := ctx
	if ctx.Done() != nil {
		sent = context.WithoutCancel(ctx)
	}
	if !s.hasLessTime(ctx) {
		return s.doThen(sent, d, onEnd)
	}
	if !s.cleanups.begin() {
		return ErrQueue
	}
	return batch.Beside(ctx, func() error {
		defer s.cleanups.end()
		return s.doThen(sent, d, onEnd)
	}, nil)
}

// doThen sends d, and then calls onEnd, unless onEnd is nil.
func (s *Store) doThen(ctx context.Context, d *Call, onEnd func()) error {
	if onEnd != nil {
		defer onEnd() // even if a hook of the client ends the goroutine
	}
	return s.doWhenUp(ctx, d, s.deadlines.timer())
}

// Reset forgets everything that was charged to k, and keeps the units and slots that are held.
func (s *Store) Reset(ctx context.Context, l *Limits, k string) error {
	return s.doWhenUp(ctx, NewCall(l, k, algorithm.Operation{Op: algorithm.OpReset}), s.deadlines.timer())
}

// Block bans k for lasts microseconds. If atLeast is set, a ban that would end later than the new one
// stays as it is. If lasts is 0, Block ends the ban, and the next ban counts as the first.
func (s *Store) Block(ctx context.Context, l *Limits, k string, lasts int64, atLeast bool) error {
	operation := algorithm.Operation{Op: algorithm.OpBlock, N: lasts, AtLeast: atLeast}
	return s.doWhenUp(ctx, NewCall(l, k, operation), s.deadlines.timer())
}

// hasLessTime reports whether ctx has ended, or has a deadline before the end of the timeout of a call
// that begins now.
func (s *Store) hasLessTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return (ok && time.Until(deadline) < s.Timeout) || ctx.Err() != nil
}

// doWhenUp sends d at once if its server is up, and otherwise as soon as the server is up. If the server
// is down and does not soon come up (see [health.Monitor.Await]), the error is [health.ErrDown], or the error
// with which d could not be sent. doWhenUp sends d again only if the server did not receive d, or did not
// carry it out, so d is carried out at most once. The caller waits until callerEnd.
func (s *Store) doWhenUp(ctx context.Context, d *Call, callerEnd *sharedTimer) error {
	n := s.servers.of(ctx, s, d.Key)
	err := errNotUp
	if n.up() {
		err = s.attempt(ctx, n, d, callerEnd, false)
	}
	for pause := minRetryPause; err != nil; pause = min(2*pause, maxRetryPause) {
		unbatched := notDone(err)
		if err = s.beforeRetry(ctx, n, d, err, pause, callerEnd); err != nil {
			return err
		}
		if !unbatched {
			n = s.servers.of(ctx, s, d.Key) // another node may have the key now
		}
		err = s.attempt(ctx, n, d, callerEnd, unbatched)
	}
	return nil
}

// A call that waits for a hash slot to move is sent again after minRetryPause, and then after
// pauses twice as long each time, up to maxRetryPause.
const (
	minRetryPause = time.Millisecond
	maxRetryPause = 20 * time.Millisecond
)

// beforeRetry waits until d can be sent again, and then returns nil. lastError is the error with which d
// failed. If d must not be sent again, or cannot be sent in time, beforeRetry returns the error for the
// caller.
func (s *Store) beforeRetry(ctx context.Context, n *node, d *Call, lastError error, pause time.Duration, callerEnd *sharedTimer) error {
	switch {
	case errors.Is(lastError, batch.ErrRetryAlone):
		return nil // d is sent again at once, because it will be alone in its script
	case notDone(lastError):
		select {
		case <-time.After(pause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-callerEnd.done:
			return s.failed(ctx, n, d, lastError, callerEnd.began)
		}
	case !isUnsent(lastError):
		return lastError
	case n.awaitUp(ctx, d.Key, callerEnd.done):
		return nil
	case isClosed(callerEnd.done):
		return cmp.Or(ctx.Err(), s.timeoutError())
	}
	return cmp.Or(ctx.Err(), lastError)
}

// notDone reports whether err says that a call was not carried out although the server is well: because the
// call could not share a script or a round trip with others, or because a hash slot is being moved and the
// server has only some of the keys. Such a call must be sent again, alone.
func notDone(err error) bool {
	return errors.Is(err, batch.ErrRetryAlone) || diagnose.HasCode(err, "TRYAGAIN")
}

// attempt sends d once: in a batch if d must wait because of the calls in flight, and otherwise
// alone. If unbatched is set, or if the server has no batcher, attempt always sends d alone. If too many
// calls wait for batches, attempt does not send d, and returns ErrQueue. The caller waits until callerEnd.
func (s *Store) attempt(ctx context.Context, n *node, d *Call, callerEnd *sharedTimer, unbatched bool) error {
	b := s.batcher(n)
	if b == nil || unbatched {
		return s.send(ctx, n, d.self[:], batch.Place[*Call]{}, callerEnd)
	}
	place, way := b.Enter(ctx, d)
	switch way {
	case batch.Full:
		return ErrQueue
	case batch.Alone:
		return s.send(ctx, n, d.self[:], place, callerEnd)
	case batch.Batched: // below
	}
	switch abandoned, err := place.Wait(ctx, callerEnd.done); {
	case errors.Is(err, batch.ErrTimeout):
		return s.tooLate(abandoned, callerEnd.began)
	case err != nil:
		return err
	}
	return d.err
}

// tooLate returns the error of a decision that began at the given time, and whose time was over before
// its batch had ended. The error says what took most of that time: this process, if it was late to send
// the batch although the server has answered other batches, and otherwise the server.
func (s *Store) tooLate(a batch.Abandoned, began time.Time) error {
	answers := a.LastReply.Sub(began) > s.Timeout/4
	switch unsent := a.Started.IsZero(); {
	case unsent && answers:
		return ErrQueue
	case unsent:
		return errHeldUp
	case answers && a.Started.Sub(began) > s.Timeout/2:
		return ErrSentLate
	}
	return s.timeoutError()
}

// wrote reports whether d is a decision that has charged or held units. Redis must have replied to d.
func (d *Call) wrote() bool {
	charges := d.Op == algorithm.OpCharge || d.Op == algorithm.OpReserve
	for o := d; charges && o != nil; o = o.next {
		charges = o.Admitted()
	}
	return charges && d.N > 0
}

// Admitted reports whether all limits of d admit its units.
func (d *Call) Admitted() bool {
	return !slices.ContainsFunc(d.Answers, func(a algorithm.Answer) bool { return !a.Admits })
}

// plain reports whether d is a plain decision: it holds nothing, and no limit has slots. (A decision that
// only evaluates is not plain either if a limit has slots.) Scripts make plain decisions faster than all
// other calls.
func (d *Call) plain() bool { return d.Op <= algorithm.OpCharge && !d.Limits.hasSlots }
