package core

import (
	"context"
	"fmt"
	"time"
)

// Wait is [Limiter.WaitN] with a cost of 1.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN blocks until n units are admitted for key and the Delay that comes with
// them is over. It sleeps until the answer can have changed; of those that wait
// in this process for the same key only the first in line asks, so that they are
// admitted in the order in which they came, and never stampede.
//
// It returns at once with [ErrNeverAdmitted] if n is above the capacity, and with
// [context.DeadlineExceeded] if the deadline of ctx comes before n units can be
// admitted. Other errors are those of [Limiter.AllowN]. Whenever it returns an
// error, nothing stays charged but what could not be given back.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	if err := check(ctx, key, n); err != nil {
		return err
	}
	for _, limit := range l.limits {
		if n > limit.Burst() {
			return fmt.Errorf("%w: %d units of at most %d", ErrNeverAdmitted, n, limit.Burst())
		}
	}
	res, err := l.waitInLine(ctx, key, n)
	if err != nil {
		return err
	}
	if err := sleep(ctx, res.Delay); err != nil {
		// The caller has left; that must not keep what it took from others.
		_ = l.Refund(context.WithoutCancel(ctx), key, res)
		return err
	}
	return nil
}

// waitInLine waits for its turn and then asks until it is admitted.
func (l *Limiter) waitInLine(ctx context.Context, key string, n int64) (Result, error) {
	place, err := l.lines.join(ctx, key)
	if err != nil {
		return Result{}, err
	}
	defer l.lines.leave(key)
	for {
		res, err := l.AllowN(ctx, key, n)
		if err != nil || res.Allowed {
			return res, err
		}
		place.retryAt.Store(time.Now().Add(res.RetryAfter).UnixNano())
		if err := sleep(ctx, res.RetryAfter); err != nil {
			return Result{}, err
		}
	}
}

// sleep waits for d, or not at all if the deadline comes first.
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
