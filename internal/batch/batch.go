// Package batch lets calls to one server share round trips. While few calls are in
// flight, each goes alone, at once. Otherwise calls wait until one in flight returns,
// and then go together.
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

// ErrRetryAlone is the error of a member that was not carried out, and can be sent
// again, alone.
var ErrRetryAlone = errors.New("not carried out in the batch: send it again, alone")

// A RunFunc carries out the members of one batch. since is when the first of them
// began to wait. The error that it returns applies to every member; an error of one
// member alone is in its Err.
type RunFunc[T any] func(ctx context.Context, since time.Time, members []*Member[T]) error

// A Member is one call of a batch.
type Member[T any] struct {
	Call T
	Err  error

	canceled bool // its caller returned before the batch was started
}

// maxInFlight is how many calls and batches can be in flight before others wait. With
// one, server and process take turns in being idle: at 64 callers, two do 1.4 times as
// many calls a second. Four do no more than two; but light traffic then does not wait
// at all, and on a slow network a call waits for only a fraction of a round trip.
const maxInFlight = 4

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	maxBatch int
	run      RunFunc[T]

	mu       sync.Mutex
	inFlight int
	waiting  []*batch[T] // all but the last are full
}

// A batch is calls that go together.
type batch[T any] struct {
	ctx     context.Context //nolint:containedctx // that of the first caller, without its cancellation
	since   time.Time       // when the first caller began to wait
	members []Member[T]
	started bool
	err     error // of all members
	done    chan struct{}
}

// New returns a Batcher of batches of at most maxBatch calls, which run carries
// out.
func New[T any](maxBatch int, run RunFunc[T]) *Batcher[T] {
	return &Batcher[T]{maxBatch: maxBatch, run: run}
}

// A Place says where in which batch a call is.
type Place[T any] struct {
	batcher *Batcher[T]
	batch   *batch[T]
	index   int
}

// Acquire reports whether the call may go alone, at once: the caller then makes it
// and calls Release. Otherwise the call is put into a batch, and the caller waits
// at the Place that is returned.
func (b *Batcher[T]) Acquire(ctx context.Context, call T) (place Place[T], alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inFlight < maxInFlight {
		b.inFlight++
		return place, true
	}
	last := len(b.waiting) - 1
	if last < 0 || len(b.waiting[last].members) == b.maxBatch {
		b.waiting = append(b.waiting, &batch[T]{ctx: context.WithoutCancel(ctx), since: time.Now(), done: make(chan struct{})})
		last++
	}
	to := b.waiting[last]
	to.members = append(to.members, Member[T]{Call: call})
	return Place[T]{b, to, len(to.members) - 1}, false
}

// Release says that a call that went alone has returned. It starts the next batch, if
// one waits.
func (b *Batcher[T]) Release() {
	if next := b.next(); next != nil {
		go b.runBatches(next)
	}
}

// next returns the batch that is to be started after a call or batch has returned. If
// none waits, it returns nil, and one less is in flight.
func (b *Batcher[T]) next() *batch[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.inFlight--
		return nil
	}
	next := b.waiting[0]
	b.waiting[0] = nil // the array of the slice would keep its members in memory
	b.waiting = b.waiting[1:]
	next.started = true
	return next
}

// runBatches runs a batch, and then others for as long as any wait.
func (b *Batcher[T]) runBatches(next *batch[T]) {
	for ; next != nil; next = b.next() {
		members := make([]*Member[T], 0, len(next.members))
		for i := range next.members {
			if !next.members[i].canceled {
				members = append(members, &next.members[i])
			}
		}
		if len(members) > 0 {
			next.err = Catch(func() error { return b.run(next.ctx, next.since, members) })
		}
		close(next.done)
		runtime.Gosched() // callers of this batch may call again at once, and so be in the next one
	}
}

// Since returns when the first call of the batch began to wait.
func (p Place[T]) Since() time.Time { return p.batch.since }

// Wait waits until the batch has been carried out, or ctx ends. It panics if carrying
// out the batch did.
func (p Place[T]) Wait(ctx context.Context) error {
	select {
	case <-p.batch.done:
	case <-ctx.Done():
		p.batcher.mu.Lock()
		defer p.batcher.mu.Unlock()
		if !p.batch.started {
			p.batch.members[p.index].canceled = true
		}
		return ctx.Err()
	}
	if p.batch.err != nil {
		return Rethrow(p.batch.err)
	}
	return p.batch.members[p.index].Err
}

// A panicError carries a panic from a goroutine of this module to that of the caller.
// There it can be recovered; in the former it would end the process.
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

// Rethrow returns err, or panics if err is from Catch and stands for a panic.
func Rethrow(err error) error {
	if p := (*panicError)(nil); errors.As(err, &p) {
		panic(p)
	}
	return err
}
