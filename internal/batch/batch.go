// Package batch lets calls to one server share round trips. While few calls are in
// flight each goes alone, at once; beyond that calls wait, and those that wait go
// together when one in flight returns.
package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// ErrRetryAlone is the error of a member that was not carried out and is to be sent
// again, alone.
var ErrRetryAlone = errors.New("to be sent again, alone")

// ErrHurry is the error of a caller that did not wait for its batch any longer.
var ErrHurry = errors.New("the batch took too long for this caller")

// A RunFunc carries out the members of one batch. The error that it returns applies
// to every member; an error of one member alone is in its Err.
type RunFunc[T any] func(ctx context.Context, members []*Member[T]) error

// A Member is one call of a batch.
type Member[T any] struct {
	Call T
	Err  error

	canceled bool // its caller has left before the batch was started
}

const (
	// maxInFlightSlow is how many batches are in flight where round trips are long and
	// a full batch waits.
	maxInFlightSlow = 16
	// slow is a long round trip.
	slow = 5 * time.Millisecond
	// maxWaiting bounds how many calls wait.
	maxWaiting = 1 << 16
)

// A Bound limits the size of batches, and their number.
type Bound struct {
	InFlight int   // calls and batches that are in flight before others wait
	Calls    int   // of one batch
	Weight   int64 // of one batch; a call that weighs more by itself is a batch of its own
}

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	most  Bound
	weigh func(T) int64
	run   RunFunc[T]

	mu        sync.Mutex
	inFlight  int
	waiting   []*batch[T]   // all but the last are full
	calls     int           // in those that wait
	roundTrip time.Duration // of the last batches that were answered
}

// A batch is calls that go together.
type batch[T any] struct {
	ctx     context.Context //nolint:containedctx // that of the first caller, which may leave before the batch ends
	members []Member[T]
	weight  int64     // of all members
	started time.Time // zero while it waits
	err     error     // of all members
	done    chan struct{}
}

// New returns a Batcher of batches that run carries out.
func New[T any](most Bound, weigh func(T) int64, run RunFunc[T]) *Batcher[T] {
	return &Batcher[T]{most: most, weigh: weigh, run: run}
}

// A Place is where a call waits: its batch, and which member of that it is.
type Place[T any] struct {
	batcher *Batcher[T]
	batch   *batch[T]
	index   int
}

// A Way is how a call is sent.
type Way uint8

// The ways to send a call.
const (
	Batched Way = iota // in a batch: the caller waits at its Place
	Alone              // at once: the caller makes the call, and calls Release
	Full               // not at all: too many calls wait already
)

// Acquire returns how a call is sent, and its Place if that is in a batch.
func (b *Batcher[T]) Acquire(ctx context.Context, call T) (Place[T], Way) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight < b.most.InFlight {
		b.inFlight++
		return Place[T]{}, Alone
	}
	if b.calls >= maxWaiting {
		return Place[T]{}, Full
	}
	weight, last := b.weigh(call), len(b.waiting)-1
	if last < 0 || len(b.waiting[last].members) == b.most.Calls || b.waiting[last].weight+weight > b.most.Weight {
		b.waiting = append(b.waiting, &batch[T]{ctx: context.WithoutCancel(ctx), done: make(chan struct{})})
		last++
	}
	to := b.waiting[last]
	to.members = append(to.members, Member[T]{Call: call})
	to.weight += weight
	b.calls++
	place := Place[T]{b, to, len(to.members) - 1}
	if b.full() && b.roundTrip > slow && b.inFlight < maxInFlightSlow {
		b.inFlight++
		go b.runBatches(b.take())
	}
	return place, Batched
}

// full reports whether the first batch that waits takes no more calls. The lock is held.
func (b *Batcher[T]) full() bool {
	return len(b.waiting) > 1 || len(b.waiting[0].members) == b.most.Calls
}

// Release starts the next batch, if one waits.
func (b *Batcher[T]) Release() {
	if next := b.next(); next != nil {
		go b.runBatches(next)
	}
}

// next takes the batch that is to start after another has returned, if there is one.
func (b *Batcher[T]) next() *batch[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 || b.inFlight > b.most.InFlight && !b.full() {
		b.inFlight--
		return nil
	}
	return b.take()
}

// take takes the first batch that waits. The lock is held.
func (b *Batcher[T]) take() *batch[T] {
	first := b.waiting[0]
	b.waiting[0] = nil // its members are not to be kept in memory for longer than their callers
	b.waiting = b.waiting[1:]
	b.calls -= len(first.members)
	first.started = time.Now()
	return first
}

// runBatches runs a batch and then those that have come to wait meanwhile.
func (b *Batcher[T]) runBatches(next *batch[T]) {
	for ; next != nil; next = b.next() {
		members := make([]*Member[T], 0, len(next.members))
		for i := range next.members {
			if !next.members[i].canceled {
				members = append(members, &next.members[i])
			}
		}
		if len(members) > 0 {
			next.err = Catch(func() error { return b.run(next.ctx, members) })
			if next.err == nil {
				b.measure(time.Since(next.started))
			}
		}
		close(next.done)
		runtime.Gosched() // callers that have their answer may call again, and share the next batch
	}
}

// measure keeps a moving average of round trips.
func (b *Batcher[T]) measure(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.roundTrip += (took - b.roundTrip) / 4
}

// RoundTrip returns how long the last batches took that were answered, as an average.
func (b *Batcher[T]) RoundTrip() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roundTrip
}

// InFlightFor returns for how long the batch has been in flight.
func (p Place[T]) InFlightFor() time.Duration {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.started.IsZero() {
		return 0
	}
	return time.Since(p.batch.started)
}

// Wait waits until the batch returns, ctx ends, or hurry is over, if it is not 0. If
// the batch panicked, it panics for the caller whose context the batch has, and is an
// error for the others: what was sent may have been carried out, and is not sent again.
func (p Place[T]) Wait(ctx context.Context, hurry time.Duration) error {
	var over <-chan time.Time
	if hurry > 0 {
		timer := time.NewTimer(hurry)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-p.batch.done:
	case <-ctx.Done():
		p.leave()
		return ctx.Err()
	case <-over:
		p.leave()
		return ErrHurry
	}
	switch err := p.batch.err; {
	case err == nil:
	case p.index == 0:
		return Rethrow(err)
	default:
		return Contain(err)
	}
	return p.batch.members[p.index].Err
}

// leave takes the call out of a batch that still waits.
func (p Place[T]) leave() {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.started.IsZero() {
		p.batch.members[p.index].canceled = true
	}
}

// A panicError carries a panic from a goroutine of ours to the caller, who can
// recover it: in ours nobody could, and the process would end.
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

// Contain returns err. For a panic that Catch caught it returns an error that only
// reports it, so that Rethrow does not panic again.
func Contain(err error) error {
	if p := (*panicError)(nil); errors.As(err, &p) {
		return fmt.Errorf("the call was shared with one that panicked: %v", p.value)
	}
	return err
}

// Rethrow returns err, or panics if err is of a panic that Catch caught.
func Rethrow(err error) error {
	if p := (*panicError)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}
