package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
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
// more.
func Go(f func() error, late func(error)) *Pending {
	p := &Pending{done: make(chan struct{})}
	go func() {
		err := errExited
		defer func() {
			switch {
			case p.decided.CompareAndSwap(false, true):
				p.err = err
				close(p.done)
			case late != nil:
				late(Contain(err))
			}
		}()
		err = Catch(f)
	}()
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
	if p.err == nil {
		return nil
	}
	if own := (*panicError)(nil); errors.As(p.err, &own) && own.Unwrap() != nil && !errors.As(own.Unwrap(), new(runtime.Error)) {
		panic(own.value) // the caller may compare it, as net/http does with ErrAbortHandler
	}
	return Rethrow(p.err)
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

// errExited is that of a call that ended its goroutine by [runtime.Goexit].
var errExited = errors.New("a hook of the client ended the goroutine")

// A panicError carries a panic from a goroutine of ours to the caller, who can recover it: in ours
// nobody could, and the process would end.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("%v\n\n%s", p.value, p.stack) }

// Unwrap returns the value of the panic, if it is an error.
func (p *panicError) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

// Catch calls f. If f panics, it returns an error with which Rethrow panics again.
func Catch(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return f()
}

// Panicked reports whether err is of a panic that Catch caught.
func Panicked(err error) bool { return errors.As(err, new(*panicError)) }

// Contain returns err, or if it is of a panic that Catch caught, an error that only tells of it.
func Contain(err error) error {
	if err == nil {
		return nil // and nothing escapes
	}
	if p := (*panicError)(nil); errors.As(err, &p) {
		return fmt.Errorf("the call was shared with one that panicked: %v", p.value)
	}
	return err
}

// Rethrow returns err, or panics if err is of a panic that Catch caught. It ends its goroutine if
// the call did so.
func Rethrow(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errExited):
		runtime.Goexit()
	}
	if p := (*panicError)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}
