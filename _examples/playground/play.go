package main

import (
	"context"
	"iter"
	"time"
)

// traffic yields each arrival at its time, until ctx ends. Windows begin at multiples
// of the period since the Unix epoch, like those of an aligned limit.
func (c config) traffic(ctx context.Context, clock func() time.Time) iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		// If too little of this window is left for an attack, it begins in the next one.
		start := windowOf(clock().Add(headStart))
		for n := int64(0); ; n++ {
			for _, a := range c.arrivals(n) {
				wait := start.Add(a.at).Sub(clock())
				if wait < -tooLate {
					continue
				}
				if !sleep(ctx, wait) || !yield(a) {
					return
				}
			}
			start = start.Add(period)
			if !sleep(ctx, start.Sub(clock())) {
				return
			}
		}
	}
}

// windowOf returns the beginning of the window in which t lies.
func windowOf(t time.Time) time.Time {
	return time.UnixMicro(t.UnixMicro() / period.Microseconds() * period.Microseconds())
}

// sleep waits for d. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
