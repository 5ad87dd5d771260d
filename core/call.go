package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
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

// bansOn reports whether a denial of c by limits bans its key.
func (l *Limiter) bansOn(c call, by *limits.Set) bool {
	return len(l.family.bans) > 0 && !l.bansNobody && !c.waits && c.op != algorithm.OpEvaluate && by.Exceeded(c.n) == 0
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
	return hold.New(by, c.key, c.n, c.op == algorithm.OpReserve, l.family.now())
}

// attach has the Reservation, if there is one, end what was charged or held for it.
func (to target) attach(h *hold.Hold, k hold.Keeper) {
	if h != nil {
		h.Keeper = k
		to.reservation.hold = h
	}
}

// fill fills res with the Result of c, from the answer of each limit of by.
func (c call) fill(res *Result, by *limits.Set, answers []algorithm.Answer, source Source) {
	allowed := true
	for i := range answers {
		answers[i].Admits = answers[i].Admits || c.n == 0 // a lowered limit may be overdrawn
		allowed = allowed && answers[i].Admits
	}
	charged := c.op != algorithm.OpEvaluate && allowed
	if len(answers) == 1 {
		c.fillOne(res, by, 0, &answers[0], charged)
		res.Source = source
		return
	}
	all := make([]Result, len(answers))
	for i := range answers {
		c.fillOne(&all[i], by, i, &answers[i], charged)
		all[i].Source = source
		if !allowed {
			all[i].Delay = 0 // what is denied has no place in a queue
		}
	}
	*res = combine(all, allowed)
}

// fillOne fills res with what limit i answered.
func (c call) fillOne(res *Result, by *limits.Set, i int, a *algorithm.Answer, charged bool) {
	e, o := by.Members[i].Evaluator, a.Observation
	if a.Held > 0 {
		o = e.WithHeld(o, c.n, a.Held)
	}
	out := e.Outcome(o, c.n, a.Admits, charged)
	res.held = !a.Admits && by.Members[i].Slots
	if a.Held > 0 && !a.Admits && e.Outcome(a.Observation, 0, false, false).Remaining >= c.n {
		out.RetryAfter = min(out.RetryAfter, algorithm.HeldRetry) // all that is held may be given back
		res.held = true
	}
	res.Allowed = a.Admits
	res.Limit, res.Remaining = by.Capacities[i], out.Remaining
	res.RetryAfter = Never
	if out.RetryAfter != algorithm.Never {
		res.RetryAfter = micros(out.RetryAfter)
	}
	res.ResetAfter, res.Delay, res.Window = micros(out.ResetAfter), micros(out.Delay), by.Windows[i]
	if length := by.Members[i].Length; length != nil {
		res.Window = micros(length(e, o))
	}
	res.At = time.UnixMicro(a.At)
	res.Limiter, res.Name = by.Limiter, by.Names[i]
}

// fillOrBan is fill, unless the key is banned.
func (c call) fillOrBan(res *Result, by *limits.Set, answers []algorithm.Answer, ban algorithm.Ban, source Source) {
	if ban.Until > 0 {
		fillBanned(res, by, answers, ban, source)
	} else {
		c.fill(res, by, answers, source)
	}
}

// fillBanned fills res for a key that is banned. Nothing of it is told but until when: the name is
// that of the limit whose denial has banned it, or else of the first.
func fillBanned(res *Result, by *limits.Set, answers []algorithm.Answer, b algorithm.Ban, source Source) {
	all, chosen := make([]Result, len(by.Members)), -1
	left := micros(b.Until - b.At)
	for i := range all {
		all[i] = Result{
			Banned: true, Limit: by.Capacities[i], RetryAfter: left, ResetAfter: left, Window: by.Windows[i],
			At: time.UnixMicro(b.At), Limiter: by.Limiter, Name: by.Names[i], Source: source,
		}
		if chosen < 0 && !answers[i].Admits {
			chosen = i
		}
	}
	*res = all[max(chosen, 0)]
	if len(all) > 1 {
		res.all = &all
	}
}

// tellBan tells the observers of a ban, if this denial has begun it.
func (l *Limiter) tellBan(ctx context.Context, key string, b algorithm.Ban, res *Result) {
	if b.Began {
		l.family.events.emitContained(ctx, key, Event{Kind: EventBan, Result: *res, Took: res.RetryAfter})
	}
}
