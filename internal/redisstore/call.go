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

// A Call is about one key: what is asked, and where the reply is written. It outlives its caller,
// who may leave while Redis is asked.
type Call struct {
	Limits *Limits
	Key    string
	// HoldCall is what the call asks for. If Handles is not nil, the reply to a call that decides or
	// renews overwrites it.
	algorithm.HoldCall

	Answers []algorithm.Answer // of what decides; where the key was banned before, they say nothing

	next *Call // of those that are made together, by a Store of Together; or nil

	err    error               // its own, of a call that was made for several
	self   [1]*Call            // the members of a batch of one
	inline [1]algorithm.Answer // of most Answers, one allocation less; or the Ban, where the limiter has bans
}

// NewCall returns a Call.
func NewCall(l *Limits, k string, c algorithm.HoldCall) *Call {
	d := &Call{Limits: l, Key: k, HoldCall: c}
	d.self[0] = d
	if c.Op > algorithm.OpReserve {
		return d
	}
	if d.Answers = d.inline[:]; len(l.members) > len(d.inline) || l.bans != nil {
		d.Answers = make([]algorithm.Answer, len(l.members))
	}
	return d
}

// Ban returns that of the key. A field of its own would make each Call larger by 16 bytes.
func (d *Call) Ban() algorithm.Ban {
	if d.Limits.bans == nil {
		return algorithm.Ban{}
	}
	return d.inline[0].Ban()
}

// Decide evaluates each limit for the units of the call. If all admit them, it charges or holds
// them as the operation says. While the server is down the error is [health.ErrDown].
//
// A caller waits for the timeout at most, and of a server that cannot run the script once more, for
// its version. A caller with less time leaves it, with the error of ctx: what was held for the
// caller is freed when the reply comes.
func (s *Store) Decide(ctx context.Context, d *Call) error {
	if d.Handles != nil {
		d.M = algorithm.NewHoldID() // by which slots can be freed even if the reply is lost
	}
	return s.run(ctx, d, s.deadlines.timer())
}

// End carries out an OpSettle, OpRefund or OpRelease, at most once, and then calls ended, unless ended
// is nil. It does so even if ctx has ended: a ctx that ends before the timeout only bounds how long the
// caller waits.
//
// If such a caller comes while too many others have left calls behind, End returns ErrQueue at once. It
// then sends nothing and does not call ended. After any other error, including an ErrQueue of a call
// that waited for a batch, ended has been called or will be.
func (s *Store) End(ctx context.Context, d *Call, ended func()) error {
	sent := ctx
	if ctx.Done() != nil {
		sent = context.WithoutCancel(ctx)
	}
	if !s.hasLessTime(ctx) {
		return s.runTo(sent, d, ended)
	}
	if !s.cleanups.begin() {
		return ErrQueue
	}
	return batch.Beside(ctx, func() error {
		defer s.cleanups.end()
		return s.runTo(sent, d, ended)
	}, nil)
}

// runTo runs d, and then calls ended, unless that is nil.
func (s *Store) runTo(ctx context.Context, d *Call, ended func()) error {
	err := s.run(ctx, d, s.deadlines.timer())
	if ended != nil {
		ended()
	}
	return err
}

// Reset forgets what was charged to k, and keeps what is held.
func (s *Store) Reset(ctx context.Context, l *Limits, k string) error {
	return s.run(ctx, NewCall(l, k, algorithm.HoldCall{Op: algorithm.OpReset}), s.deadlines.timer())
}

// Block bans k for so many microseconds, or with atLeast until its ban ends if that is later; 0
// ends its ban, and the next one is the first again.
func (s *Store) Block(ctx context.Context, l *Limits, k string, lasts int64, atLeast bool) error {
	c := algorithm.HoldCall{Op: algorithm.OpBlock, N: lasts}
	if atLeast {
		c.M = 1
	}
	return s.run(ctx, NewCall(l, k, c), s.deadlines.timer())
}

// hasLessTime reports whether ctx ends before a call that begins now.
func (s *Store) hasLessTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < s.Timeout || ctx.Err() != nil
}

// run has d be decided: at once if its server is up, else when it is, until the caller's timer.
// What the server did not get, or did not carry out, is sent again.
func (s *Store) run(ctx context.Context, d *Call, until *sharedTimer) error {
	sv, err := s.servers.of(ctx, s, d.Key), errNotUp
	if sv.up() {
		err = s.ask(ctx, sv, d, until, false)
	}
	for pause := time.Millisecond; err != nil; pause = min(2*pause, 20*time.Millisecond) {
		switch {
		case errors.Is(err, batch.ErrRetryAlone):
		case again(err):
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			case <-until.done:
				return s.failed(ctx, sv, d, err, until.since)
			}
		case !isUnsent(err):
			return err
		case sv.await(ctx, d.Key, until.done):
			sv = s.servers.of(ctx, s, d.Key)
		case isClosed(until.done):
			return cmp.Or(ctx.Err(), s.timeoutError())
		default:
			return cmp.Or(ctx.Err(), err)
		}
		err = s.ask(ctx, sv, d, until, again(err))
	}
	return nil
}

// again reports whether the call of an error is to be sent again, alone: it was not carried out, or
// a hash slot that is moving has only some of its keys.
func again(err error) bool {
	return errors.Is(err, batch.ErrRetryAlone) || diagnose.HasCode(err, "TRYAGAIN")
}

// ask has sv decide: alone, or with others if it may wait for them. The caller waits until its
// timer.
func (s *Store) ask(ctx context.Context, sv *Server, d *Call, until *sharedTimer, alone bool) error {
	way, place := batch.Alone, batch.Place[*Call]{}
	if b := s.batcher(sv); b != nil && !alone {
		place, way = b.Enter(ctx, d)
	}
	switch way {
	case batch.Full:
		return ErrQueue
	case batch.Alone:
		return s.send(ctx, sv, d.self[:], place, until)
	case batch.Batched:
	}
	sv.checkSharding(ctx, s)
	abandoned, err := place.Wait(ctx, until.done)
	switch {
	case errors.Is(err, batch.ErrTimeout):
		return s.tooLate(abandoned, until.since)
	case err != nil:
		return err
	}
	return d.err
}

// The errors of decisions that waited in this process, beside ErrQueue.
var (
	// ErrSentLate says that one waited for most of its time before it was sent. That is not the
	// server's fault, either.
	ErrSentLate = errors.New("too many decisions are waiting in this process: this one was sent late")
	// errHeldUp is the server's fault, though nothing was sent.
	errHeldUp = errors.New("not sent: redis does not answer what was sent before")
)

// tooLate returns the error of a decision that has waited since an instant for as long as it may,
// by what took most of that: this process, if others were answered meanwhile, or the server.
func (s *Store) tooLate(a batch.Abandoned, since time.Time) error {
	answers := a.LastReply.Sub(since) > s.Timeout/4
	switch unsent := a.Started.IsZero(); {
	case unsent && answers:
		return ErrQueue
	case unsent:
		return errHeldUp
	case answers && a.Started.Sub(since) > s.Timeout/2:
		return ErrSentLate
	}
	return s.timeoutError()
}

// wrote reports whether d, which is answered, has charged or held units.
func (d *Call) wrote() bool {
	charges := d.Op == algorithm.OpCharge || d.Op == algorithm.OpReserve
	for o := d; charges && o != nil; o = o.next {
		charges = o.Admitted()
	}
	return charges && d.N > 0
}

// Admitted reports whether all limits of d admit.
func (d *Call) Admitted() bool {
	return !slices.ContainsFunc(d.Answers, func(a algorithm.Answer) bool { return !a.Admits })
}

// plain reports whether d is a decision that holds nothing: the script has a quick way for it.
func (d *Call) plain() bool { return d.Op <= algorithm.OpCharge && !d.Limits.hasSlots }
