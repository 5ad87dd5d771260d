package server

import (
	"context"
	"errors"
	"hash/maphash"
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

	Answers  []algorithm.Answer // of what decides
	Exchange *Exchange          // what is done besides, or nil

	inline [1]algorithm.Answer // of most Answers: one allocation less
}

// NewDecision returns the Decision of a call.
func NewDecision(l *Limits, k string, c algorithm.HoldCall) *Decision {
	d := &Decision{Limits: l, Key: k, HoldCall: c}
	if c.Op > algorithm.OpReserve {
		return d
	}
	if d.Answers = d.inline[:]; len(l.members) > len(d.inline) {
		d.Answers = make([]algorithm.Answer, len(l.members))
	}
	return d
}

// Decide evaluates each limit for the units of the call. If all admit them, it charges or holds them
// as the operation says. While the server is down the error is [ErrBreakerOpen].
//
// With an Exchange the same run of the script settles one lease and takes another. Decisions on
// the key that are made meanwhile take the script hold.
//
// A call takes the timeout at most. A caller with less time leaves it, with the error of ctx: what
// was held for the caller is freed when the reply comes.
func (s *Store) Decide(ctx context.Context, d *Decision) error {
	if d.Exchange != nil {
		s.keysWithHolds.add(d.Key, d.Exchange.holds())
	}
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

// hasLessTime reports whether ctx ends before a call that begins now.
func (s *Store) hasLessTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < s.timeout || ctx.Err() != nil
}

func (s *Store) run(ctx context.Context, d *Decision) error {
	sv := s.servers.of(ctx, s, d.Key)
	if !sv.up(s.timeout) {
		sv.want(s, d.Key)
		return ErrBreakerOpen
	}
	b := s.batcher(sv)
	if b == nil {
		return s.askAlone(ctx, sv, d, nil)
	}
	place, how := b.Enter(ctx, d)
	switch how {
	case batch.Full:
		return ErrQueue
	case batch.Alone:
		return s.askAlone(ctx, sv, d, b)
	default:
		return s.askInBatch(ctx, sv, d, place)
	}
}

// askInBatch waits for the batch that has d, for the timeout at most.
func (s *Store) askInBatch(ctx context.Context, sv *Server, d *Decision, place batch.Place[*Decision]) error {
	over := s.deadlines.timer()
	sv.checkSharding(ctx, s)
	err := place.Wait(ctx, over.done)
	switch {
	case errors.Is(err, batch.ErrRetryAlone):
		return s.askAgain(ctx, sv, d, over)
	case errors.Is(err, batch.ErrOver) && place.Started():
		return s.timeoutError(context.DeadlineExceeded, s.timeout)
	case errors.Is(err, batch.ErrOver):
		return ErrQueue
	}
	return err
}

// askAgain makes a call for d alone, which a batch has not carried out. Its caller waits until over
// for both: the call may take its whole timeout beside that.
func (s *Store) askAgain(ctx context.Context, sv *Server, d *Decision, over *sharedTimer) error {
	alone := func() error { return s.askAlone(context.WithoutCancel(ctx), sv, d, nil) }
	asked := batch.Go(alone, func(err error) { s.abandoned(d, err) })
	select {
	case <-asked.Done():
	case <-over.done:
	case <-ctx.Done():
		return asked.Take(ctx.Err())
	}
	return asked.Take(s.timeoutError(context.DeadlineExceeded, s.timeout))
}

// askAlone makes a call for d alone. It has a place among those in flight in b, unless that is nil.
// A client that ends a call with its context's deadline is waited for: a caller that cancels is
// noticed when it returns, because to wait beside a goroutine, even one that is parked for it, took
// a lone call 39 % longer. Any other client is waited for in a goroutine, which is abandoned after
// the timeout; it holds a connection of the client's pool until the read timeout, so that there
// are at most as many of them as the pool has connections.
func (s *Store) askAlone(ctx context.Context, sv *Server, d *Decision, b *batcher) error {
	switch {
	case !s.servers.ctxDeadlines:
		return s.askBeside(ctx, sv, d, b)
	case s.hasLessTime(ctx):
		return batch.Beside(ctx, func() error { return s.askInline(ctx, sv, d, b) }, func(err error) { s.abandoned(d, err) })
	}
	return s.askInline(ctx, sv, d, b)
}

func (s *Store) askInline(ctx context.Context, sv *Server, d *Decision, b *batcher) error {
	begun, returned := time.Now(), false
	defer func() { s.called(d, b, returned) }()
	err := s.answered(ctx, sv, d, s.evaluate(s.deadlines.with(ctx), d), begun)
	returned = true
	return err
}

// called has another call begin after one for d, unless b is nil. One that did not return has
// panicked, in a hook of the client: its reply is lost.
func (s *Store) called(d *Decision, b *batcher, returned bool) {
	if b != nil {
		b.Leave()
	}
	if !returned {
		s.leftBehind(d, errPanicked)
	}
}

func (s *Store) askBeside(ctx context.Context, sv *Server, d *Decision, b *batcher) error {
	begun, bounded := time.Now(), s.deadlines.with(ctx)
	asked := batch.Go(func() error { return s.evaluate(bounded, d) }, func(err error) { s.leftBehind(d, err) })
	end := func() error {
		returned := false
		defer func() { s.called(d, b, returned) }()
		err := s.answered(ctx, sv, d, asked.Take(context.DeadlineExceeded), begun)
		returned = true
		return err
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

// answered records how a call for d ended that was begun at an instant, and returns its error for
// the caller.
func (s *Store) answered(ctx context.Context, sv *Server, d *Decision, err error, begun time.Time) error {
	if err == nil && s.servers.cluster != nil {
		s.servers.topologyKnown.Store(true)
	}
	if err = s.finish(ctx, sv, d.Key, err, begun); err != nil {
		s.leftBehind(d, err)
	}
	return err
}

// evaluate runs the script for one decision. While a hash slot moves and has only
// some of the keys, the server says so, and is asked again.
func (s *Store) evaluate(ctx context.Context, d *Decision) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if d.Exchange != nil && d.Exchange.undone {
			s.withoutExchange(ctx, d)
		}
		needsHold := s.needsHold(d)
		script := s.decideScript
		if needsHold {
			script = s.holdScript
		}
		reply, err := script.run(ctx, s.servers.client, s.args(d, needsHold), d.keys(), s.hooks.ScriptLoaded)
		switch {
		case err == nil && !needsHold && algorithm.IsHeld(reply):
			s.keysWithHolds.add(d.Key, heldFor)
			continue
		case err == nil:
			if err = s.decodeOne(reply, d, needsHold); errors.Is(err, batch.ErrRetryAlone) {
				continue // without the exchange
			}
			return err
		}
		if !hasCode(err, "TRYAGAIN") || !sleep(ctx, pause) {
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

// needsHold reports whether d takes the script hold.
func (s *Store) needsHold(d *Decision) bool {
	return s.alwaysHold || d.Op >= algorithm.OpReserve || d.Exchange != nil || s.keysWithHolds.has(d.Key)
}

// decodeOne reads the reply to d.
func (s *Store) decodeOne(reply []int64, d *Decision, needsHold bool) error {
	members := d.Limits.members
	switch {
	case d.Exchange != nil:
		return s.decodeExchange(reply, d)
	case needsHold:
		err := algorithm.DecodeHoldReply(reply, d.HoldCall, members, d.Answers)
		if err == nil && d.Op == algorithm.OpReserve {
			s.keysWithHolds.add(d.Key, heldFor)
		}
		return err
	}
	return algorithm.DecodeReply(reply, d.HoldCall, members, d.Answers)
}

// heldFor is for how long a key is taken to have holds after some were seen.
const heldFor = 10 * time.Second

// heldCells is how many cells there are for the keys that have holds.
const heldCells = 4096

// heldKeys remembers which keys have had holds lately: their decisions take the script
// hold, and a first try with the faster one would cost a round trip.
type heldKeys struct {
	seed  maphash.Seed
	begun time.Time
	cells atomic.Pointer[[heldCells]atomic.Uint64] // made with the first hold: most limiters hold nothing
}

// A cell is the tag of its key, or 0 where it stands for all of its keys, because it had to
// remember more than one: the script hold decides for any key. Below that is until when,
// in milliseconds since begun.
const heldUntilBits = 40

func (h *heldKeys) init() { h.seed, h.begun = maphash.MakeSeed(), time.Now() }

// at returns the cell of k, and its tag.
func (h *heldKeys) at(cells *[heldCells]atomic.Uint64, k string) (cell *atomic.Uint64, tag uint64) {
	hash := maphash.String(h.seed, k)
	return &cells[hash%heldCells], hash>>heldUntilBits | 1
}

func (h *heldKeys) now() uint64 { return uint64(time.Since(h.begun) / time.Millisecond) }

// add remembers k for so long, or for longer if it is already.
func (h *heldKeys) add(k string, lasts time.Duration) {
	cells := h.cells.Load()
	if cells == nil {
		h.cells.CompareAndSwap(nil, new([heldCells]atomic.Uint64))
		cells = h.cells.Load()
	}
	cell, own := h.at(cells, k)
	now := h.now()
	for {
		old, tag, until := cell.Load(), own, now+uint64(lasts/time.Millisecond)+1
		if oldTag, oldUntil := old>>heldUntilBits, old%(1<<heldUntilBits); oldUntil > now {
			until = max(until, oldUntil)
			if oldTag != own {
				tag = 0
			}
		}
		if cell.CompareAndSwap(old, tag<<heldUntilBits|until) {
			return
		}
	}
}

func (h *heldKeys) has(k string) bool {
	cells := h.cells.Load()
	if cells == nil {
		return false
	}
	cell, own := h.at(cells, k)
	old := cell.Load()
	tag, until := old>>heldUntilBits, old%(1<<heldUntilBits)
	return until > 0 && (tag == own || tag == 0) && h.now() < until
}
