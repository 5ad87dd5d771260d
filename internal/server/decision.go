package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Decision is one call about one key: what is asked, and where the reply is written. Not all of
// them decide, but all are called so. It outlives its caller, who may leave while Redis is asked.
type Decision struct {
	Limits *Limits
	Key    string
	// HoldCall is what is asked. Of what decides, Handles, unless they are nil, are where the
	// handles of what is held or charged are written.
	algorithm.HoldCall

	Answers  []algorithm.Answer // of what decides; where the key was banned before, they say nothing
	Exchange *Exchange          // what is done besides, or nil

	next *Decision // of those that are made together, by a Store of Together; or nil

	place  interface{ Leave() } // where it is one of the calls in flight, or nil
	left   atomic.Bool          // it is no longer
	inline [1]algorithm.Answer  // of most Answers: one allocation less
}

// NewDecision returns the Decision of a call.
func NewDecision(l *Limits, k string, c algorithm.HoldCall) *Decision {
	d := &Decision{Limits: l, Key: k, HoldCall: c}
	if c.Op > algorithm.OpReserve {
		return d
	}
	if d.Answers = d.inline[:]; len(l.members) > len(d.inline) || l.bans != nil {
		d.Answers = make([]algorithm.Answer, len(l.members), len(l.members)+1)
	}
	return d
}

// Ban returns that of the key. It is kept behind the Answers: without bans a Decision is no larger for it.
func (d *Decision) Ban() algorithm.Ban {
	if d.Limits.bans == nil {
		return algorithm.Ban{}
	}
	return d.Answers[:len(d.Answers)+1][len(d.Answers)].Ban()
}

// Decide evaluates each limit for the units of the call. If all admit them, it charges or holds them
// as the operation says. While the server is down the error is [ErrBreakerOpen].
//
// With an Exchange the same run of the script settles one lease and takes another.
//
// A call takes the timeout at most. A caller with less time leaves it, with the error of ctx: what
// was held for the caller is freed when the reply comes.
func (s *Store) Decide(ctx context.Context, d *Decision) error {
	if d.Handles != nil {
		d.M = algorithm.NewHoldID() // by which slots can be freed even if the reply is lost
	}
	x := d.Exchange
	err := s.run(ctx, d)
	if err != nil && x != nil && x.Held > 0 && !replyLost(err) && !x.settled { // an abandoned call still writes to d and x
		s.leave(d, x.settlement(), time.Duration(x.Duration)*time.Microsecond)
	}
	return err
}

// End does what an OpSettle, OpRefund or OpRelease says, and then calls ended, unless that is nil.
// It is sent once, even if ctx has ended: that bounds only the waiting.
func (s *Store) End(ctx context.Context, d *Decision, ended func()) error {
	sent := ctx
	if ctx.Done() != nil {
		sent = context.WithoutCancel(ctx)
	}
	if !s.hasLessTime(ctx) {
		return s.runTo(sent, d, ended)
	}
	if !s.leftovers.begin() {
		return ErrQueue
	}
	return batch.Beside(ctx, func() error {
		defer s.leftovers.end()
		return s.runTo(sent, d, ended)
	}, nil)
}

// runTo runs d, and then calls ended, unless that is nil.
func (s *Store) runTo(ctx context.Context, d *Decision, ended func()) error {
	err := s.run(ctx, d)
	if ended != nil {
		ended()
	}
	return err
}

// Reset forgets what was charged to k, and keeps what is held.
func (s *Store) Reset(ctx context.Context, l *Limits, k string) error {
	return s.run(ctx, NewDecision(l, k, algorithm.HoldCall{Op: algorithm.OpReset}))
}

// Block bans k for so many microseconds, or with atLeast until its ban ends if that is later; 0 ends its ban, and the levels.
func (s *Store) Block(ctx context.Context, l *Limits, k string, lasts int64, atLeast bool) error {
	c := algorithm.HoldCall{Op: algorithm.OpBlock, N: lasts}
	if atLeast {
		c.M = 1
	}
	return s.run(ctx, NewDecision(l, k, c))
}

// hasLessTime reports whether ctx ends before a call that begins now.
func (s *Store) hasLessTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < s.Timeout || ctx.Err() != nil
}

// run has d be decided, until the timeout: at once if its server is up, else when it is. What could not
// be sent is sent again.
func (s *Store) run(ctx context.Context, d *Decision) error {
	sv, over := s.servers.of(ctx, s, d.Key), s.deadlines.timer()
	err := errNotUp
	if sv.up() {
		err = s.ask(ctx, sv, d, over, true)
	}
	for isUnsent(err) && sv.await(ctx, s, d.Key, over.done) {
		sv = s.servers.of(ctx, s, d.Key)
		err = s.ask(ctx, sv, d, over, false)
	}
	switch {
	case !isUnsent(err):
	case ctx.Err() != nil:
		return ctx.Err()
	case ended(over.done):
		return s.timeoutError(context.DeadlineExceeded, s.Timeout)
	}
	return err
}

// ask has sv decide. The caller waits until over; of a first call that is its whole timeout.
func (s *Store) ask(ctx context.Context, sv *Server, d *Decision, over *sharedTimer, first bool) error {
	b, how := s.batcher(sv), batch.Alone
	var place batch.Place[*Decision]
	if b != nil {
		place, how = b.Enter(ctx, d)
	}
	switch {
	case how == batch.Full:
		return ErrQueue
	case how != batch.Alone:
		return s.askInBatch(ctx, sv, d, place, over)
	}
	if b != nil {
		d.place = b
		d.left.Store(false)
	}
	if !first {
		return s.askUntil(ctx, sv, d, over)
	}
	return s.askAlone(ctx, sv, d, over)
}

// askInBatch waits for the batch that has d, until over at most.
func (s *Store) askInBatch(ctx context.Context, sv *Server, d *Decision, place batch.Place[*Decision], over *sharedTimer) error {
	sv.checkSharding(ctx, s)
	left, err := place.Wait(ctx, over.done)
	switch {
	case errors.Is(err, batch.ErrRetryAlone):
		return s.askUntil(ctx, sv, d, over)
	case errors.Is(err, batch.ErrOver):
		return s.tooLate(left, over.since)
	}
	return err
}

// The errors of decisions that waited in this process, beside ErrQueue.
var (
	// ErrSentLate says that one waited for most of its time before it was sent. That is not the server's fault, either.
	ErrSentLate = errors.New("too many decisions are waiting in this process: this one was sent late")
	// errHeldUp is the server's fault, though nothing was sent.
	errHeldUp = errors.New("not sent: redis does not answer what was sent before")
)

// tooLate returns the error of a decision that has waited since an instant for as long as it may, by what took most of that:
// this process, if others were answered meanwhile, or the server.
func (s *Store) tooLate(left batch.Left, since time.Time) error {
	answers := left.Answered.Sub(since) > s.Timeout/4
	switch unsent := left.Started.IsZero(); {
	case unsent && answers:
		return ErrQueue
	case unsent:
		return errHeldUp
	case answers && left.Started.Sub(since) > s.Timeout/2:
		return ErrSentLate
	}
	return s.timeoutError(context.DeadlineExceeded, s.Timeout)
}

// askUntil makes a call for d alone, whose caller has waited before: only until over. The call may take
// its whole timeout beside that.
func (s *Store) askUntil(ctx context.Context, sv *Server, d *Decision, over *sharedTimer) error {
	alone := func() error { return s.askAlone(context.WithoutCancel(ctx), sv, d, s.deadlines.timer()) }
	asked := batch.Go(alone, func(err error) { s.abandoned(d, err) })
	select {
	case <-asked.Done():
	case <-over.done:
	case <-ctx.Done():
		return asked.Take(ctx.Err())
	}
	return asked.Take(s.timeoutError(context.DeadlineExceeded, s.Timeout))
}

// leavePlace has another call begin in the place of d, if it has one.
func (d *Decision) leavePlace() {
	if d.place != nil && !d.left.Swap(true) {
		d.place.Leave()
	}
}

// askAlone makes a call for d alone, which may have a place among those in flight.
// A client that ends a call with its context's deadline is waited for: a caller that cancels is
// noticed when it returns, because to wait beside a goroutine, even one that is parked for it, took
// a lone call 39 % longer. Any other client is waited for in a goroutine, which is abandoned after
// the timeout; it holds a connection of the client's pool until the read timeout, so that there
// are at most as many of them as the pool has connections. So is a server that is far: the
// connection is made although its first caller has left.
func (s *Store) askAlone(ctx context.Context, sv *Server, d *Decision, over *sharedTimer) error {
	bounded := deadlineContext{ctx, over}
	switch {
	case !s.servers.ctxDeadlines || sv.far.Load():
		return s.askBeside(bounded, sv, d)
	case s.hasLessTime(ctx):
		return batch.Beside(ctx, func() error { return s.askInline(bounded, sv, d) }, func(err error) { s.abandoned(d, err) })
	}
	return s.askInline(bounded, sv, d)
}

func (s *Store) askInline(ctx deadlineContext, sv *Server, d *Decision) error {
	return s.ends(ctx.Context, sv, d, time.Now(), func() error { return s.evaluate(ctx, d) })
}

// ends waits for a call for d that was begun at an instant, records how it ended, and has another begin. One that does not
// return has panicked, in a hook of the client: its reply is lost.
func (s *Store) ends(ctx context.Context, sv *Server, d *Decision, begun time.Time, call func() error) error {
	returned := false
	defer func() {
		d.leavePlace()
		if !returned {
			s.leftBehind(d, errPanicked)
		}
	}()
	err := s.answered(ctx, sv, d, call(), begun)
	returned = true
	return err
}

func (s *Store) askBeside(bounded deadlineContext, sv *Server, d *Decision) error {
	begun, ctx := time.Now(), bounded.Context
	asked := batch.Go(func() error { return s.evaluate(s.callContext(ctx, sv), d) }, func(err error) {
		if err == nil {
			sv.answered(s, begun, d)
		}
		s.leftBehind(d, err)
	})
	end := func() error {
		return s.ends(ctx, sv, d, begun, func() error { return asked.Take(context.DeadlineExceeded) })
	}
	select {
	case <-asked.Done():
	case <-bounded.Done():
	case <-ctx.Done():
		go func() { // the rest of the timeout, for others: is the server well?
			select {
			case <-asked.Done():
			case <-bounded.Done():
			}
			s.abandoned(d, batch.Catch(end))
		}()
		return ctx.Err()
	}
	return end()
}

// callContext returns the context of a call to sv, which goes on for longer than its caller waits where
// a new connection may take longer.
func (s *Store) callContext(ctx context.Context, sv *Server) context.Context {
	if sv.far.Load() {
		return s.farDeadlines.with(ctx)
	}
	return s.deadlines.with(ctx)
}

// wrote reports whether d has changed something, once it is answered.
func (d *Decision) wrote() bool {
	charges := d.Op == algorithm.OpCharge || d.Op == algorithm.OpReserve
	for o := d; charges && o != nil; o = o.next {
		charges = o.Admitted()
	}
	return charges && d.N > 0
}

// Admitted reports whether all limits of d admit.
func (d *Decision) Admitted() bool {
	return !slices.ContainsFunc(d.Answers, func(a algorithm.Answer) bool { return !a.Admits })
}

// answered records how a call for d ended that was begun at an instant, and returns its error for
// the caller.
func (s *Store) answered(ctx context.Context, sv *Server, d *Decision, err error, begun time.Time) error {
	if err == nil && s.servers.cluster != nil {
		s.servers.topologyKnown.Store(true)
	}
	if err = s.finish(ctx, sv, d, err, begun); err != nil {
		s.leftBehind(d, err)
	}
	return err
}

// evaluate runs the script for one decision. While a hash slot moves and has only
// some of the keys, the server says so, and is asked again: others need not wait for that.
func (s *Store) evaluate(ctx context.Context, d *Decision) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if d.Exchange != nil && d.Exchange.undone {
			s.withoutExchange(ctx, d)
		}
		reply, err := s.script.run(ctx, s.servers.client, s.args(d), d.keys(), s.Hooks.ScriptLoaded)
		if err == nil {
			all := reader{left: reply}
			if err = d.decode(&all); errors.Is(err, batch.ErrRetryAlone) {
				continue // without the exchange
			}
			return cmp.Or(all.ended(), err)
		}
		if !hasCode(err, "TRYAGAIN") {
			return err
		}
		if d.leavePlace(); !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep reports whether ctx lasted for as long as d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// A reader reads the reply to several calls, of which some were read.
type reader struct {
	left []int64
	err  error // it is not as long as it should be
}

// next returns the reply to the next call, which is about the keys of d: that of all limits, and that of bans.
func (r *reader) next(d *Decision) (all, bans []int64) {
	limits, banned := 0, 0
	for o := d; o != nil; o = o.next {
		limits += len(o.Limits.members)
		if o.Limits.bans != nil {
			banned++
		}
	}
	if r.err == nil {
		all, bans, r.left, r.err = algorithm.SplitReply(r.left, limits, banned)
	}
	return all, bans
}

// ended returns an error if anything is left, or was missing.
func (r *reader) ended() error {
	if r.err == nil && len(r.left) > 0 {
		return algorithm.UnexpectedLength(len(r.left), 0)
	}
	return r.err
}

// decode reads the reply to d. The error is batch.ErrRetryAlone if nothing was done.
func (d *Decision) decode(r *reader) error {
	x := d.Exchange
	if x != nil && x.Held > 0 {
		settled, _ := r.next(d)
		x.settled = r.err == nil && !algorithm.Undone(settled)
	}
	own, bans := r.next(d)
	var granted []int64
	if x != nil && x.Units > 0 {
		granted, _ = r.next(d)
	}
	switch {
	case r.err != nil:
		return r.err
	case algorithm.Undone(own):
		if x != nil {
			x.undone = true
		}
		return batch.ErrRetryAlone
	}
	if banned, err := d.decodeBans(bans); banned || err != nil {
		return err // no limit was asked
	}
	each := 0
	for o := d; o != nil; o = o.next {
		each += len(o.Limits.members)
	}
	each = len(own) / each
	for o := d; o != nil; o = o.next {
		size := each * len(o.Limits.members)
		if err := algorithm.DecodeReply(own[:size], o.HoldCall, o.Limits.members, o.Answers); err != nil {
			return err
		}
		own = own[size:]
	}
	if granted != nil {
		x.granted(granted, d.Limits.members)
	}
	return nil
}

// decodeBans sets the Ban of d, and of those that are made together with it. It reports whether one was there before.
func (d *Decision) decodeBans(reply []int64) (before bool, err error) {
	for o := d; o != nil && len(reply) > 0; o = o.next {
		if o.Limits.bans == nil {
			continue
		}
		var ban algorithm.Ban
		if ban, reply, err = algorithm.DecodeBan(reply); err != nil {
			return false, err
		}
		if o.Answers != nil {
			o.setBan(ban)
		}
		before = before || ban.Until > 0 && !ban.Began
	}
	return before, nil
}

func (d *Decision) setBan(b algorithm.Ban) {
	d.Answers[:len(d.Answers)+1][len(d.Answers)].Observation = b.Observation()
}
