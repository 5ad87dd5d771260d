package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/line"
)

// Wait is [Limiter.WaitN] with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) { return l.WaitN(ctx, key, 1) }

// WaitN blocks until n units are admitted for key and their Delay is over, and returns the Result
// that admitted them. After a denial it sleeps for RetryAfter or, if others may give back units that
// they hold, until it is worth trying again.
//
// Callers in this process that wait for the same key form a line, in the order in which they came.
// The first of them asks Redis. If enough units remain for a later caller and for all callers ahead of
// it, that caller asks Redis, too. The others wait. Other processes have lines of their own.
// With a [LeakyBucket], an admission is a place in its queue. If a caller is canceled, its place
// goes to the next caller that asks Redis, so a later caller can return before an earlier one.
//
// WaitN returns at once with [ErrNeverAdmitted] if n is above the capacity. It returns
// [context.DeadlineExceeded] early if a denial shows that this caller and all callers ahead of it cannot be
// admitted before the deadline of ctx. WaitN finds this out when the caller joins the line, and when the
// caller is denied as the first in the line. Other errors are the same as for [Limiter.AllowN]. If ctx ends
// before the Delay of a LeakyBucket is over, WaitN gives the place in the queue back. WaitN waits for the end
// of a [Ban], and never begins one. A Limiter with [InFlight] returns an error: use [Limiter.AcquireWait].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (res Result, err error) {
	req := l.newWaiting(key, n, algorithm.OpCharge)
	defer req.recycle()
	switch {
	case l.set.Slots:
		return Result{}, errNeedsEnd
	case l.set.Queues:
		r, err := l.acquireWait(ctx, req)
		if err != nil {
			return Result{}, err
		}
		return r.Result, nil
	}
	begun, err := l.beginWait(ctx, req)
	if err != nil {
		return Result{}, err
	}
	err = l.waitForTurn(ctx, req, line.Caller{}, func() (*Result, error) {
		res = Result{} // after an error, observers must not see an earlier denial
		err := l.allow(ctx, req, &res)
		return &res, err
	})
	l.endWait(ctx, req, begun, &res, err)
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// AcquireWait is like [Limiter.Acquire], but waits for its turn as [Limiter.WaitN] does. ctx bounds
// the wait, not the Permit.
//
// A caller that waits for a slot of [InFlight], or for units that others hold, wakes up when slots
// or units are given back in this process. Other processes can give back slots and units, too.
// Therefore the first caller in the line of each key (see WaitN) also asks Redis about 20 times per
// second. All lines together ask at most 1000 times per second. If the callers of one process keep
// passing slots to each other, they leave the slots to other processes for about 25 ms every half
// second.
func (l *Limiter) AcquireWait(ctx context.Context, key string, n int64) (*Permit, error) {
	req := l.newWaiting(key, n, algorithm.OpCharge)
	defer req.recycle()
	a, err := l.acquireWait(ctx, req)
	return (*Permit)(a), err
}

// ReserveWait is like [Limiter.Reserve], but waits for its turn as [Limiter.AcquireWait] does.
func (l *Limiter) ReserveWait(ctx context.Context, key string, n int64) (*Reservation, error) {
	req := l.newWaiting(key, n, algorithm.OpReserve)
	defer req.recycle()
	a, err := l.acquireWait(ctx, req)
	return (*Reservation)(a), err
}

// newWaiting returns a request whose caller waits until it is admitted.
func (l *Limiter) newWaiting(key string, n int64, op algorithm.Op) *request {
	req := l.newRequest(key, n, op)
	req.call.Waits = true
	return req
}

// acquireWait acquires the units of req when its turn comes, and notifies the observers of the
// wait.
func (l *Limiter) acquireWait(ctx context.Context, req *request) (*admission, error) {
	begun, err := l.beginWait(ctx, req)
	if err != nil {
		return nil, err
	}
	r, err := l.acquireUnbanned(ctx, req)
	if err != nil {
		l.endWait(ctx, req, begun, nil, err)
		return nil, err
	}
	l.endWait(ctx, req, begun, &r.Result, nil)
	return r, nil
}

// acquireUnbanned acquires the units of req when its turn comes, and then waits for the Delay. If the
// key is banned at the end of the Delay, acquireUnbanned gives the units back and starts again.
func (l *Limiter) acquireUnbanned(ctx context.Context, req *request) (*admission, error) {
	for {
		r, err := l.acquireInTurn(ctx, ctx, req, line.Caller{})
		if err == nil {
			l.warnIfLong(ctx, r.Delay)
			err = sleep(ctx, r.Delay)
		}
		if err != nil {
			_ = r.cancel(ctx) // the caller gets an error, so other callers may have the units
			return nil, err
		}
		if r.Delay == 0 || l.family.bans == nil {
			return r, nil
		}
		if res, err := l.Peek(ctx, req.call.Key); err != nil || !res.Banned {
			return r, nil //nolint:nilerr // the units are admitted; an error only means that a ban is not known
		}
		_ = r.cancel(ctx)
	}
}

// beginWait returns an error if req is invalid or can never be admitted, or if ctx has ended. Otherwise
// begun is the time at which the wait begins, or the zero Time if there are no observers, because only
// they need it.
func (l *Limiter) beginWait(ctx context.Context, req *request) (begun time.Time, err error) {
	if err := req.check(ctx); err != nil {
		return begun, err
	}
	for _, capacity := range l.set.Capacities {
		if req.call.N > capacity {
			return begun, fmt.Errorf("%w: %d units of at most %d", ErrNeverAdmitted, req.call.N, capacity)
		}
	}
	if len(l.family.events.observers) > 0 {
		begun = time.Now()
	}
	return begun, nil
}

// endWait notifies the observers of the end of a wait. If err is nil, res is the Result that
// admitted the caller.
func (l *Limiter) endWait(ctx context.Context, req *request, begun time.Time, res *Result, err error) {
	if len(l.family.events.observers) == 0 {
		return
	}
	e := Event{Kind: EventWait, Cost: req.call.N, Took: time.Since(begun), Err: err}
	if err == nil {
		e.Result = *res
	}
	l.family.events.emit(ctx, req.call.Key, e)
}

// acquireInTurn acquires the units of req when its turn comes. The context ctx bounds the wait, and each
// decision gets the context deciding. The parameter caller is the one of waitForTurn.
func (l *Limiter) acquireInTurn(ctx, deciding context.Context, req *request, caller line.Caller) (r *admission, err error) {
	err = l.waitForTurn(ctx, req, caller, func() (*Result, error) {
		var err error
		if r, err = l.acquire(deciding, req); err != nil {
			return nil, err
		}
		return &r.Result, nil
	})
	if err != nil {
		return nil, err // r is nil, or a denial
	}
	return r, nil
}

// A refusal is the error of a caller that would have to wait for too long, that has waited for too long, or
// that came when too many callers were waiting.
type refusal = line.RefusalError

// denialOf returns res, the denial of req, in the form from which a line computes how long its callers
// have to wait. The line assumes that the units of a bucket (Drains) become free one by one, and the units of
// a window all at once. For a sliding window, whose units become free in several parts, this is a lower bound.
func denialOf(req *request, res *Result) *line.Denial {
	set, d := req.call.Set, &line.Denial{At: time.Now(), RetryAfter: res.RetryAfter, Held: res.held}
	req.reply.CopyTo(&d.Reply)
	if !res.Banned {
		d.Count, d.Window, d.Drains = res.Limit, res.Window, set.Limits[max(0, slices.Index(set.Names, res.LimitName))].Debt
	}
	return d
}

// waitForTurn puts the caller into the line of its key, and waits until it is the caller's turn. It then
// calls decide again and again, until decide admits the caller or fails, ctx ends, or the wait would be too
// long. It returns nil if the caller was admitted, and otherwise the error of decide, the error of ctx, or a
// refusal. req.reply is empty before each call of decide. The given caller has only Until and Most;
// waitForTurn sets its other fields. If the limits count nothing, waitForTurn first calls decide once without
// the line.
func (l *Limiter) waitForTurn(ctx context.Context, req *request, caller line.Caller, decide func() (*Result, error)) error {
	if l.set.Uncounted { // the caller needs no units, so it may overtake callers that wait for some
		req.reply = decision.Reply{}
		if res, err := decide(); err != nil || res.Allowed {
			return err
		}
	}
	caller.Key, caller.Units, caller.BanOnly = req.call.Key, req.call.N, l.set.Uncounted
	return l.family.lines.Wait(ctx, caller, l.warnIfLong, func() (*line.Denial, int64, error) {
		req.reply = decision.Reply{}
		res, err := decide()
		switch {
		case err != nil:
			return nil, 0, err
		case res.Allowed:
			return nil, res.remaining(), nil
		}
		return denialOf(req, res), 0, nil
	})
}

// longWait is the shortest wait that is probably a mistake.
const longWait = 24 * time.Hour

// warnIfLong logs a warning, once, if a caller without a deadline is about to wait for longer than longWait.
func (l *Limiter) warnIfLong(ctx context.Context, d time.Duration) {
	if _, bounded := ctx.Deadline(); d > longWait && !bounded {
		l.family.events.warnOnce(ctx, "a call waits for more than a day, because its context has no deadline: "+
			"with one it fails at once if that comes before its turn")
	}
}

func (inside) AcquireUpTo(ctx context.Context, l *Limiter, w coreaccess.Waiting, res *Result) (*Permit, error) {
	a, err := l.waitUpTo(ctx, w, algorithm.OpCharge, res)
	return (*Permit)(a), err
}

func (inside) ReserveUpTo(ctx context.Context, l *Limiter, w coreaccess.Waiting, res *Result) (*Reservation, error) {
	a, err := l.waitUpTo(ctx, w, algorithm.OpReserve, res)
	return (*Reservation)(a), err
}

// waitUpTo decides a request that may wait up to w.UpTo to be admitted, and sets res. The request waits
// behind the callers that already wait for the same key.
func (l *Limiter) waitUpTo(ctx context.Context, w coreaccess.Waiting, op algorithm.Op, res *Result) (*admission, error) {
	req := l.newWaiting(w.Key, w.N, op)
	defer req.recycle()
	began := time.Now()
	caller := line.Caller{Until: began.Add(w.UpTo), Most: w.Most}
	if req.call.N == 0 || l.set.Exceeded(req.call.N) > 0 {
		// A cost of 0 is denied only by a ban or an outage, and does not wait for their end. Any other cost here never fits.
		req.call.Waits = false
		return l.decideOnce(ctx, req, res)
	}
	if l.set.Uncounted || !l.family.lines.Anyone(req.call.Key) {
		r, err := l.decideOnce(ctx, req, res)
		if err != nil || res.Allowed {
			return r, err
		}
		if !res.held && res.RetryAfter > w.UpTo {
			return l.turnAway(ctx, req, &refusal{Last: denialOf(req, res)}, time.Since(began), res)
		}
	}
	if err := req.check(ctx); err != nil {
		return nil, err
	}
	// A decision goes on after ctx has ended. If it then admits the request, the adapter cancels the admission.
	r, err := l.acquireInTurn(ctx, context.WithoutCancel(ctx), req, caller)
	refused := (*refusal)(nil)
	if *res = (Result{}); err == nil {
		*res = r.Result
	} else if errors.As(err, &refused) && !refused.Waited {
		return l.turnAway(ctx, req, refused, 0, res)
	}
	l.endWait(ctx, req, began, res, err)
	if refused != nil {
		return l.turnAway(ctx, req, refused, 0, res)
	}
	return r, err
}

// decideOnce decides req without waiting, and sets res. It returns an admission only if the caller may
// have to end one: for a reservation, and for slots.
func (l *Limiter) decideOnce(ctx context.Context, req *request, res *Result) (*admission, error) {
	if req.call.Op == algorithm.OpCharge && !l.set.Slots {
		return nil, l.allow(ctx, req, res)
	}
	r, err := l.acquire(ctx, req)
	if err == nil {
		*res = r.Result
	}
	return r, err
}

// turnAway sets res to a denial for a caller that must not wait, or that has waited for too long. res is the
// last denial in the line, if the limits of this Limiter have denied there, and not limits that With has
// derived. Otherwise res describes the current state of the key. If the Limiter has bans, turnAway decides
// once more on a caller that has not waited, because its denial may have to begin a ban. That decision may
// also admit the caller: turnAway then returns the admission, as decideOnce does. While Redis does not answer,
// FailOpen may admit the caller as well.
func (l *Limiter) turnAway(ctx context.Context, req *request, refused *refusal, took time.Duration, res *Result) (r *admission, err error) {
	last := refused.Last
	*res, req.reply = Result{}, decision.Reply{}
	switch {
	case len(l.family.bans) > 0 && !refused.Waited:
		req.call.Waits = false
		return l.decideOnce(ctx, req, res)
	case last != nil && (last.Reply.Set == l.set || last.Reply.Set == l.set.Fallback):
		last.Reply.CopyTo(&req.reply) // a copy, because several callers may get this denial
		req.reply.Age += time.Since(last.At)
		res.fill(&req.call, &req.reply)
	default:
		req.call.Op = algorithm.OpEvaluate
		if err = l.decide(ctx, req, res); err != nil || res.Source == SourceNone {
			return nil, err
		}
		res.Allowed = false
	}
	res.RetryAfter = max(res.RetryAfter, refused.Wait)
	l.family.events.emit(ctx, req.call.Key, Event{Kind: EventDecision, Result: *res, Cost: req.call.N, Took: took})
	return r, nil
}

// sleep waits for d. It returns the error of ctx if ctx ends first. If the deadline of ctx comes before the
// end of d, sleep does not wait, and returns a refusal.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return &refusal{Wait: d}
	}
	_, err := line.Rest(ctx, d, nil)
	return err
}
