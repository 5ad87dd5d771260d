package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Wait is [Limiter.WaitN] with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) { return l.WaitN(ctx, key, 1) }

// WaitN blocks until n units are admitted for key and their Delay is over, and
// returns the Result that admitted them. After a denial it sleeps for RetryAfter. Of
// the callers in this process that wait for the same key only the first asks, so
// they are admitted in the order in which they came.
//
// It returns at once with [ErrNeverAdmitted] if n is above the capacity, and with
// [context.DeadlineExceeded] if the deadline of ctx comes before n units can be
// admitted. Other errors are those of [Limiter.AllowN]. If ctx ends before
// the Delay does, the place in the queue is given back. A Limiter with [InFlight] refuses: use
// [Limiter.AcquireWait].
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
	err = l.waitForTurn(ctx, c, func() (*Result, error) {
		err := l.allow(ctx, c, &res)
		return &res, err
	})
	l.endWait(ctx, c, begun, &res, err)
	return res, err
}

// AcquireWait is [Limiter.Acquire] when it is the caller's turn: it waits as [Limiter.WaitN] does,
// and ctx bounds only the waiting. Who waits for a slot of [InFlight] is woken when one is given
// back in this process, and else asks each second.
func (l *Limiter) AcquireWait(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquireWait(ctx, call{key, n, algorithm.OpCharge, true})
}

// ReserveWait is [Limiter.Reserve] when it is the caller's turn: it waits as [Limiter.WaitN] does.
func (l *Limiter) ReserveWait(ctx context.Context, key string, n int64) (*Reservation, error) {
	return l.acquireWait(ctx, call{key, n, algorithm.OpReserve, true})
}

// acquireWait acquires c when it is its turn, and waits for its Delay.
func (l *Limiter) acquireWait(ctx context.Context, c call) (*Reservation, error) {
	begun, err := l.beginWait(ctx, c)
	if err != nil {
		return nil, err
	}
	var r *Reservation
	err = l.waitForTurn(ctx, c, func() (*Result, error) {
		var err error
		if r, err = l.acquire(ctx, c); err != nil {
			return nil, err
		}
		return &r.Result, nil
	})
	if err == nil {
		err = sleep(ctx, r.Delay, nil)
	}
	if err != nil {
		_ = r.Cancel(ctx) // the caller does not go on, so its units are free for others
		l.endWait(ctx, c, begun, nil, err)
		return nil, err
	}
	l.endWait(ctx, c, begun, &r.Result, nil)
	return r, nil
}

// beginWait refuses a call that can never be admitted, and returns when the wait begins, for the observers.
func (l *Limiter) beginWait(ctx context.Context, c call) (begun time.Time, err error) {
	if err := c.check(ctx); err != nil {
		return begun, err
	}
	for _, capacity := range l.by.Capacities {
		if c.n > capacity {
			return begun, fmt.Errorf("%w: %d units of at most %d", ErrNeverAdmitted, c.n, capacity)
		}
	}
	if l.events.observe != nil {
		begun = time.Now()
	}
	return begun, nil
}

// endWait tells the observers of a wait, which res has admitted if there is no error.
func (l *Limiter) endWait(ctx context.Context, c call, begun time.Time, res *Result, err error) {
	if l.events.observe == nil {
		return
	}
	e := Event{Kind: EventWait, Cost: c.n, Took: time.Since(begun), Err: err}
	if err == nil {
		e.Result = *res
	}
	l.events.emit(ctx, e)
}

// waitForTurn waits until the caller is the first in the queue of its key, and then
// asks until it is admitted.
func (l *Limiter) waitForTurn(ctx context.Context, c call, ask func() (*Result, error)) error {
	queue, err := l.queues.join(ctx, c.key)
	if err != nil {
		return err
	}
	defer l.queues.leave(c.key)
	for {
		var freed <-chan struct{}
		if l.by.Slots {
			freed = l.queues.awaitFreed(queue)
		}
		res, err := ask()
		if err != nil || res.Allowed {
			return err
		}
		wait := res.RetryAfter
		if wait == Never { // n is above this process's share of the limit, while Redis is away
			wait = time.Second
		}
		if freed == nil {
			retryAt := time.Now().Add(wait)
			queue.retryAt.Store(&retryAt)
		}
		if err := sleep(ctx, wait, freed); err != nil {
			return err
		}
	}
}

// sleep waits for d, or until early is closed. It returns an error at once if the deadline comes
// before d.
func sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d && early == nil {
		return fmt.Errorf("redislimit: %v to wait: %w", d, context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-early:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
