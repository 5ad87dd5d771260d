package core

import (
	"context"
	"fmt"
	"time"
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
// the Delay does, the units are refunded.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (Result, error) {
	if err := check(ctx, key, n); err != nil {
		return Result{}, err
	}
	for _, limit := range l.limits.limits {
		if n > limit.Burst() {
			return Result{}, fmt.Errorf("%w: %d units of at most %d", ErrNeverAdmitted, n, limit.Burst())
		}
	}
	res, err := l.waitForTurn(ctx, key, n)
	if err != nil {
		return Result{}, err
	}
	if err := sleep(ctx, res.Delay); err != nil {
		// The caller does not go on, so its units are free for others.
		_ = l.Refund(context.WithoutCancel(ctx), res)
		return Result{}, err
	}
	return res, nil
}

// waitForTurn waits until the caller is the first in the queue of key, and then
// asks until it is admitted.
func (l *Limiter) waitForTurn(ctx context.Context, key string, n int64) (Result, error) {
	queue, err := l.queues.join(ctx, key)
	if err != nil {
		return Result{}, err
	}
	defer l.queues.leave(key)
	for {
		res, err := l.AllowN(ctx, key, n)
		if err != nil || res.Allowed {
			return res, err
		}
		wait := res.RetryAfter
		if wait == Never { // n is above this process's share of the limit, while Redis is away
			wait = time.Second
		}
		retryAt := time.Now().Add(wait)
		queue.retryAt.Store(&retryAt)
		if err := sleep(ctx, wait); err != nil {
			return Result{}, err
		}
	}
}

// sleep waits for d. It returns an error at once if the deadline comes before that.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return fmt.Errorf("redislimit: %v to wait: %w", d, context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
