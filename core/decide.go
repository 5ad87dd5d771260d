package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
	"github.com/redislimit/redislimit/internal/server"
)

// A call is what is asked of a Limiter.
type call struct {
	key string
	n   int64
	op  algorithm.Op

	waits bool // until it is admitted, so that its denial bans nobody
}

func (c call) check(ctx context.Context) error {
	switch {
	case c.n < 0:
		return fmt.Errorf("%w: it is %d, and must not be negative", ErrInvalidCost, c.n)
	case c.key == "":
		return ErrInvalidKey
	}
	return ctx.Err()
}

// A target is where a decision is written. Functions fill it instead of returning a Result, which
// took a quarter of the time of a decision in memory.
type target struct {
	*Result

	reservation *Reservation // what is to be ended of it; nil for a plain decision
}

// newHold returns the Hold of a call that is about to be sent, or nil for a plain decision.
func (to target) newHold(l *Limiter, c call, by *limits.Set) *hold.Hold {
	if to.reservation == nil || c.op == algorithm.OpEvaluate {
		return nil
	}
	return hold.New(by, c.key, c.n, c.op == algorithm.OpReserve, l.now())
}

// allow makes a plain decision.
func (l *Limiter) allow(ctx context.Context, c call, res *Result) error {
	if err := c.check(ctx); err != nil {
		return err
	}
	if l.by.Slots && c.op == algorithm.OpCharge {
		return errNeedsEnd
	}
	return l.decide(ctx, c, target{Result: res})
}

// decide decides on c, charges or holds its units if they are admitted, and emits the event.
func (l *Limiter) decide(ctx context.Context, c call, to target) error {
	if len(l.events.observers) == 0 || c.op == algorithm.OpEvaluate {
		return l.decideUnobserved(ctx, c, to)
	}
	start := time.Now()
	err := l.decideUnobserved(ctx, c, to)
	if c.waits && err == nil && !to.Allowed {
		return nil // it is asked again
	}
	l.events.emit(ctx, c.key, Event{Kind: EventDecision, Result: *to.Result, Cost: c.n, Took: time.Since(start), Err: err})
	return err
}

// decideUnobserved decides in memory, from a lease or the deny cache, in Redis or by the
// outage policy.
func (l *Limiter) decideUnobserved(ctx context.Context, c call, to target) error {
	if l.stub != nil {
		return l.decideByStub(c, to)
	}
	if c.n == 0 {
		c.op = algorithm.OpEvaluate
	}
	switch {
	case l.memory != nil:
		l.catchUp()
		l.decideInMemory(ctx, l.memory, c, to)
		return nil
	case l.leases != nil && c.op != algorithm.OpEvaluate:
		return l.decideLeased(ctx, c, to)
	case l.repeatDenial(c, to):
		return nil
	}
	return l.ask(ctx, c, to, l.denials.Stamp(c.key, time.Time{}))
}

// catchUp renews what the option Clock has made due since the last call.
func (l *Limiter) catchUp() {
	if l.clock != nil {
		l.renewer.Look()
	}
}

// repeatDenial reports whether a denial of c is remembered.
func (l *Limiter) repeatDenial(c call, to target) bool {
	if c.op == algorithm.OpEvaluate {
		return false
	}
	d := l.denials.Get(denials.Request{Key: c.key, N: c.n, Limits: l.by})
	if d == nil {
		return false
	}
	*to.Result = d.Result
	to.age(d.Age(), SourceDenyCache)
	return true
}

// ask decides in Redis, or by the outage policy.
func (l *Limiter) ask(ctx context.Context, c call, to target, stamp denials.Stamp) error {
	d := server.NewCall(l.by.Server, c.key, algorithm.HoldCall{Op: c.op, N: c.n, Bans: l.bansOn(c, l.by)})
	h := to.newHold(l, c, l.by)
	if h != nil {
		d.Handles = h.Handles()
	}
	if err := l.store.Decide(ctx, d); err != nil {
		return l.withoutRedis(ctx, c, to, err)
	}
	c.fillOrBan(to.Result, l.by, d.Answers, d.Ban(), SourceRedis)
	switch {
	case c.op == algorithm.OpEvaluate:
	case to.Allowed:
		to.ends(h, l.keeper)
	default:
		l.remember(ctx, c, d, to.Result, stamp)
	}
	return nil
}

// remember takes a denial of c by Redis: it may be repeated, and may have begun a ban.
func (l *Limiter) remember(ctx context.Context, c call, d *server.Call, res *Result, stamp denials.Stamp) {
	ban := d.Ban()
	switch {
	case ban.Until > 0:
		l.denials.Put(denials.Request{Key: c.key, N: 1, Limits: l.by}, *res, res.RetryAfter, stamp)
		l.began(ctx, c.key, ban, res)
	case len(l.bans) == 0 || l.by.Exceeded(c.n) > 0: // else the next denial may ban: it is for Redis to make
		l.denials.Put(denials.Request{Key: c.key, N: c.n, Limits: l.by}, *res, l.by.DeniedFor(d.Answers, c.n), stamp)
	}
}

// ends has the Reservation, if there is one, end what was charged or held for it.
func (to target) ends(h *hold.Hold, k hold.Keeper) {
	if h != nil {
		h.Keeper = k
		to.reservation.hold = h
	}
}

// withoutRedis decides by the outage policy after an error of the store, unless that is of the
// caller's own context.
func (l *Limiter) withoutRedis(ctx context.Context, c call, to target, err error) error {
	if err = l.failure(ctx, err); !errors.Is(err, ErrUnavailable) {
		return err
	}
	switch l.policy {
	case failClosed:
		return err
	case failOpen:
		*to.Result = Result{Allowed: true, Limiter: l.name, Name: l.by.Names[0], At: time.Now()}
	default:
		l.decideInMemory(ctx, l.fallback, c, to)
	}
	return nil
}

// decideInMemory decides by the state in s: that of NewMemory, or of FailLocal.
func (l *Limiter) decideInMemory(ctx context.Context, s *memory.Store, c call, to target) {
	by, source := l.by, SourceMemory
	if s != l.memory {
		by, source = l.by.Fallback, SourceFallback
	}
	var inline [1]algorithm.Answer // it needs no allocation: it stays on the stack
	answers := inline[:]
	if len(by.Members) > len(inline) {
		answers = make([]algorithm.Answer, len(by.Members))
	}
	h := to.newHold(l, c, by)
	if h == nil && l.bans == nil {
		s.Decide(by.Memory, c.key, c.n, c.op == algorithm.OpCharge, answers)
		c.fill(to.Result, by, answers, source)
		return
	}
	asked := algorithm.HoldCall{Op: c.op, N: c.n, Bans: l.bansOn(c, by)}
	if h != nil {
		h.SlotsMove, asked.Handles = true, h.Handles()
	}
	ban, admitted := s.Hold(by.Memory, c.key, asked, answers)
	c.fillOrBan(to.Result, by, answers, ban, source)
	l.began(ctx, c.key, ban, to.Result)
	if admitted {
		to.ends(h, memoryKeeper{s})
	}
}
