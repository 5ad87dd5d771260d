package batch

import (
	"context"
	"sync/atomic"
)

// A Pending is a call in a goroutine of its own. Either its waiter takes the error, or, after the
// waiter has left, late gets it.
type Pending struct {
	decided atomic.Bool // who gets err: who waits if the call ends first, else late
	done    chan struct{}
	err     error
}

// Go calls f in a goroutine. late, if it is not nil, gets its error if nobody waits for it any
// more. If f panics, or ends its goroutine, the error is a [HookError].
func Go(f func() error, late func(error)) *Pending {
	p := &Pending{done: make(chan struct{})}
	go CatchAll(f, func(err error) {
		switch {
		case p.decided.CompareAndSwap(false, true):
			p.err = err
			close(p.done)
		case late != nil:
			late(err)
		}
	})
	return p
}

// Done returns a channel that is closed when the call has ended.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Take returns the error of the call. If it has not ended, it is left to late, and the error is
// orElse.
func (p *Pending) Take(orElse error) error {
	if p.decided.CompareAndSwap(false, true) {
		return orElse
	}
	<-p.done
	return p.err
}

// Beside calls f in a goroutine, and waits for it until ctx ends. Who leaves gets the context's
// error, and late that of f.
func Beside(ctx context.Context, f func() error, late func(error)) error {
	p := Go(f, late)
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	return p.Take(ctx.Err())
}
