package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/line"
)

// Wait is [Limiter.WaitN] with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) { return l.WaitN(ctx, key, 1) }

// WaitN blocks until n units are admitted for key and their Delay is over, and returns the Result
// that admitted them. After a denial it sleeps for RetryAfter. Of the callers in this process that
// wait for the same key only the first asks, and those behind it for which enough remains, so they
// are admitted in the order in which they came. Other processes have lines of their own. With a
// [LeakyBucket] an admission is a place in its queue, and the place that a canceled caller gives
// back goes to the next caller who asks: so a later caller may return before an earlier one.
//
// It returns at once with [ErrNeverAdmitted] if n is above the capacity, and with
// [context.DeadlineExceeded] if the deadline of ctx comes before n units can be admitted, to this
// caller and those before it. Other errors are those of [Limiter.AllowN]. If ctx ends before the
// Delay does, the place in the queue is given back. It waits for the end of a [Ban], and bans
// nobody. A Limiter with [InFlight] refuses: use [Limiter.AcquireWait].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (res Result, err error) {
	c := call{key, n, algorithm.OpCharge, true}
	switch {
	case l.by.Slots:
		return Result{}, errNeedsEnd
	case l.by.Queues:
		r, err := l.acquireWait(ctx, c)
		if err != nil {
			return Result{}, err
		}
		return r.Result, nil
	}
	begun, err := l.beginWait(ctx, c)
	if err != nil {
		return Result{}, err
	}
	err = l.waitForTurn(ctx, c, line.Caller{}, func() (*Result, error) {
		res = Result{} // if this fails, nobody is to hear of the denial before it
		err := l.allow(ctx, c, &res)
		return &res, err
	})
	l.endWait(ctx, c, begun, &res, err)
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// AcquireWait is [Limiter.Acquire] when it is the caller's turn: it waits as [Limiter.WaitN] does,
// and ctx bounds how long it waits, and not the Reservation. Who waits for a slot of [InFlight], or
// for what others have reserved, is woken when that is given back in this process. Where others may
// give it back, the first in each line asks about 20 times a second, and all of them 1000 times at
// most. A process whose callers pass on slots to each other leaves them to other processes for some
// 25 ms each half a second.
func (l *Limiter) AcquireWait(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquireWait(ctx, call{key, n, algorithm.OpCharge, true})
}

// ReserveWait is [Limiter.Reserve] when it is the caller's turn: it waits as [Limiter.AcquireWait]
// does.
func (l *Limiter) ReserveWait(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquireWait(ctx, call{key, n, algorithm.OpReserve, true})
}

// acquireWait acquires c when it is its turn, and tells the observers of the wait.
func (l *Limiter) acquireWait(ctx context.Context, c call) (*Reservation, error) {
	begun, err := l.beginWait(ctx, c)
	if err != nil {
		return nil, err
	}
	r, err := l.acquireUnbanned(ctx, c)
	if err != nil {
		l.endWait(ctx, c, begun, nil, err)
		return nil, err
	}
	l.endWait(ctx, c, begun, &r.Result, nil)
	return r, nil
}

// acquireUnbanned acquires c when it is its turn, and waits for its Delay. Whose key is banned
// meanwhile gives its place back, and waits again.
func (l *Limiter) acquireUnbanned(ctx context.Context, c call) (*Reservation, error) {
	for {
		r, err := l.acquireInTurn(ctx, ctx, c, line.Caller{})
		if err == nil {
			l.warnIfLong(ctx, r.Delay)
			err = sleep(ctx, r.Delay)
		}
		if err != nil {
			_ = r.Cancel(ctx) // the caller does not go on, so its units are free for others
			return nil, err
		}
		if r.Delay == 0 || l.family.bans == nil {
			return r, nil
		}
		if res, err := l.Peek(ctx, c.key); err != nil || !res.Banned {
			return r, nil //nolint:nilerr // it was admitted, and nothing is known of a ban
		}
		_ = r.Cancel(ctx)
	}
}

// beginWait refuses a call that can never be admitted, and returns when the wait begins, for the
// observers.
func (l *Limiter) beginWait(ctx context.Context, c call) (begun time.Time, err error) {
	if err := c.check(ctx); err != nil {
		return begun, err
	}
	for _, capacity := range l.by.Capacities {
		if c.n > capacity {
			return begun, fmt.Errorf("%w: %d units of at most %d", ErrNeverAdmitted, c.n, capacity)
		}
	}
	if len(l.family.events.observers) > 0 {
		begun = time.Now()
	}
	return begun, nil
}

// endWait tells the observers of a wait, which res has admitted if there is no error.
func (l *Limiter) endWait(ctx context.Context, c call, begun time.Time, res *Result, err error) {
	if len(l.family.events.observers) == 0 {
		return
	}
	e := Event{Kind: EventWait, Cost: c.n, Took: time.Since(begun), Err: err}
	if err == nil {
		e.Result = *res
	}
	l.family.events.emit(ctx, c.key, e)
}

// acquireInTurn acquires c when it is its turn. The waiting is within ctx, and each decision within
// asking.
func (l *Limiter) acquireInTurn(ctx, asking context.Context, c call, p line.Caller) (r *Reservation, err error) {
	err = l.waitForTurn(ctx, c, p, func() (*Result, error) {
		var err error
		if r, err = l.acquire(asking, c); err != nil {
			return nil, err
		}
		return &r.Result, nil
	})
	if err != nil {
		return nil, err // r is nil, or a denial
	}
	return r, nil
}

// A refusal is the error of who would wait for too long, or of one too many.
type refusal = line.RefusalError[denied]

// denialOf returns why a line has to wait. Of a bucket, which Drains, units become free one by one,
// and of a window all at once.
func denialOf(res *Result, by *limits.Set) *line.Denial[denied] {
	d := &line.Denial[denied]{What: denied{*res, by}, At: time.Now(), RetryAfter: res.RetryAfter, Held: res.held}
	if !res.Banned {
		d.Limit, d.Window, d.Drains = res.Limit, res.Window, by.Members[max(0, slices.Index(by.Names, res.Name))].Debt
	}
	return d
}

// waitForTurn waits until it is the caller's turn in the line of its key, and then asks until it is
// admitted.
func (l *Limiter) waitForTurn(ctx context.Context, c call, p line.Caller, ask func() (*Result, error)) error {
	p.Key, p.Units = c.key, c.n
	return l.family.lines.Wait(ctx, p, l.warnIfLong, func() (*line.Denial[denied], int64, error) {
		res, err := ask()
		switch {
		case err != nil:
			return nil, 0, err
		case res.Allowed:
			return nil, res.remaining(), nil
		}
		return denialOf(res, l.by), 0, nil
	})
}

// longWait is for how long hardly anybody means to wait.
const longWait = 24 * time.Hour

// warnIfLong warns of a wait for d without a deadline.
func (l *Limiter) warnIfLong(ctx context.Context, d time.Duration) {
	if _, bounded := ctx.Deadline(); d > longWait && !bounded {
		l.family.events.warnOnce(ctx, "a call waits for more than a day, because its context has no deadline: "+
			"with one it fails at once if that comes before its turn")
	}
}

// WaitUpTo decides for a request that waits if it is to be admitted within w.UpTo, and fills res.
// It waits behind those that wait already.
func (inside) WaitUpTo(ctx context.Context, l *Limiter, w hook.Waiting, res *Result) (*Reservation, error) {
	c := call{w.Key, w.N, algorithm.OpCharge, true}
	if w.Reserve {
		c.op = algorithm.OpReserve
	}
	began := time.Now()
	p := line.Caller{Until: began.Add(w.UpTo), Most: w.Most}
	if c.n == 0 || l.by.Exceeded(c.n) > 0 {
		c.waits = false // waiting would change nothing
		return l.askOnce(ctx, c, res)
	}
	if !l.family.lines.Anyone(c.key) {
		r, err := l.askOnce(ctx, c, res)
		if err != nil || res.Allowed {
			return r, err
		}
		if !res.held && res.RetryAfter > w.UpTo {
			return l.turnAway(ctx, c, &refusal{Last: denialOf(res, l.by)}, time.Since(began), res)
		}
	}
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	// Its decisions are not given up: what they charge is taken back if the client has left.
	r, err := l.acquireInTurn(ctx, context.WithoutCancel(ctx), c, p)
	refused := (*refusal)(nil)
	if *res = (Result{}); err == nil {
		*res = r.Result
	} else if errors.As(err, &refused) && !refused.Waited {
		return l.turnAway(ctx, c, refused, 0, res)
	}
	l.endWait(ctx, c, began, res, err)
	if refused != nil {
		return l.turnAway(ctx, c, refused, 0, res)
	}
	return r, err
}

// askOnce decides on c, and fills res. What is charged for good has no Reservation.
func (l *Limiter) askOnce(ctx context.Context, c call, res *Result) (*Reservation, error) {
	if c.op == algorithm.OpCharge && !l.by.Slots {
		return nil, l.allow(ctx, c, res)
	}
	r, err := l.acquire(ctx, c)
	if err == nil {
		*res = r.Result
	}
	return r, err
}

// turnAway fills res for c, which was refused: with the last denial of the line, if that was by the
// same limits. With bans, one that has not waited is decided on again, so that a denial may ban; it
// may be admitted.
func (l *Limiter) turnAway(ctx context.Context, c call, refused *refusal, took time.Duration, res *Result) (r *Reservation, err error) {
	last := refused.Last
	*res = Result{}
	switch {
	case len(l.family.bans) > 0 && !refused.Waited:
		c.waits = false
		return l.askOnce(ctx, c, res)
	case last != nil && last.What.by == l.by:
		*res = last.What.Result
		res.age(time.Since(last.At), last.What.Source)
	default:
		c.op = algorithm.OpEvaluate
		if err = l.decideUnobserved(ctx, c, target{Result: res}); err != nil || res.Source == SourceNone {
			return nil, err
		}
		res.Allowed = false
	}
	res.RetryAfter = max(res.RetryAfter, refused.Wait)
	l.family.events.emit(ctx, c.key, Event{Kind: EventDecision, Result: *res, Cost: c.n, Took: took})
	return r, nil
}

// sleep waits for d. It returns an error at once if the deadline comes before.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return &refusal{Wait: d}
	}
	_, err := line.Rest(ctx, d, nil)
	return err
}
