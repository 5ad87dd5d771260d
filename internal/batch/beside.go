package batch

import (
	"context"
	"sync/atomic"
)

// A Pending is a call that runs in a goroutine of its own. Its error goes to one receiver: to the caller of
// [Pending.Take] if the call has ended by then, and otherwise to the function late that was passed to [Go].
type Pending struct {
	decided atomic.Bool   // set by the end of the call or by Take, whichever is first: this decides who receives the error
	done    chan struct{} // closed after err is set; never closed if Take comes before the end of the call
	err     error         // for Take
}

// Go calls f in a goroutine. If Take is called before f has ended, late receives the error of f; late may
// be nil. If f panics or ends its goroutine, the error is a [HookError].
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

// Done returns a channel that is closed when the call ends. If Take is called before that, the channel is
// never closed.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Take returns the error of the call. If the call has not ended, Take returns orElse at once, and late
// receives the error of the call. Take must be called at most once.
func (p *Pending) Take(orElse error) error {
	if p.decided.CompareAndSwap(false, true) {
		return orElse
	}
	<-p.done
	return p.err
}

// Beside calls f in a goroutine and waits until f ends or ctx ends. If ctx ends first, Beside returns the
// error of ctx, f continues, and late receives the error of f. late may be nil. Beside calls f even if ctx
// has already ended. If f panics or ends its goroutine, its error is a [HookError].
func Beside(ctx context.Context, f func() error, late func(error)) error {
	p := Go(f, late)
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
	return p.Take(ctx.Err())
}
