// Package batch lets calls to one server share round trips. While few calls are in
// flight each goes alone, at once; beyond that calls wait, and those that wait go
// together when one in flight returns. Where round trips are short, fewer batches than
// calls are in flight: they are larger then.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrRetryAlone is the error of a member that was not carried out and is to be sent
// again, alone.
var ErrRetryAlone = errors.New("to be sent again, alone")

// ErrOver is the error of a caller that has waited for its batch as long as it may.
var ErrOver = errors.New("the batch took too long")

// A RunFunc carries out the calls of one batch. The error that it returns is that of all; what becomes of
// one alone the call itself keeps.
type RunFunc[T any] func(ctx context.Context, calls []T) error

const (
	// maxInFlightSlow is how many batches are in flight where round trips are long: one begins when it is full, or
	// where the server is far, so that they begin evenly.
	maxInFlightSlow = 16
	// slow is a long round trip.
	slow = 5 * time.Millisecond
	// short is a short one: to wait for it costs less than a larger batch saves. With 0.3 ms of
	// network latency and 16 callers, two batches in flight did a tenth less than four.
	short = 250 * time.Microsecond
	// lookAfter is when it is looked whether all in flight hang, and stalled for how long
	// nothing has begun then. To look each ms took as much of the process's CPU as larger batches save.
	lookAfter = 5 * time.Millisecond
	stalled   = time.Millisecond
	// maxWaiting bounds how many calls wait.
	maxWaiting = 1 << 16
)

// A Bound limits the size of batches, and their number.
type Bound struct {
	InFlight int   // calls and batches that are in flight before others wait
	Batches  int   // those in flight once a batch is, where round trips are short
	Calls    int   // of one batch
	Weight   int64 // of one batch; a call that weighs more by itself is a batch of its own
	// Far is from which round trip on a caller may not have the time to wait for another to end, before its own.
	Far time.Duration
}

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	most  Bound
	weigh func(T) int64
	run   RunFunc[T]
	left  func(call T, err error)

	mu        sync.Mutex
	inFlight  int
	batches   int           // of those in flight
	waiting   []*batch[T]   // all but the last are full
	calls     int           // in those that wait
	roundTrip time.Duration // the shortest of the last batches that were answered
	answered  time.Time     // when the last one was
	began     time.Time     // when a batch last did
	timer     *time.Timer   // calls look; made when it is first needed
	looking   bool          // it runs
}

// A batch is calls that go together.
type batch[T any] struct {
	ctx     context.Context //nolint:containedctx // that of the first caller, which may leave before the batch ends
	members []member[T]
	sent    []T       // the calls whose callers had not left when it was started
	weight  int64     // of all members
	started time.Time // zero while it waits
	ended   bool      // its outcomes have been handed out
	err     error     // of all members
	done    chan struct{}
}

// A member is one call of a batch.
type member[T any] struct {
	call T
	sent bool
	left bool // its caller has left
}

// New returns a Batcher of batches that run carries out. left is called with the outcome of
// a call whose caller has left since its batch was started.
func New[T any](most Bound, weigh func(T) int64, run RunFunc[T], left func(call T, err error)) *Batcher[T] {
	return &Batcher[T]{most: most, weigh: weigh, run: run, left: left}
}

// A Place is where a call waits: its batch, and which member of that it is. Of one that goes alone it is its place
// among those in flight; the zero Place is none.
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
	Alone              // at once: the caller makes the call, and then leaves its Place
	Full               // not at all: too many calls wait already
)

// Enter returns how a call is sent, and its Place.
func (b *Batcher[T]) Enter(ctx context.Context, call T) (Place[T], Way) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && b.inFlight < b.room() {
		b.inFlight++
		return Place[T]{batcher: b}, Alone
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
	to.members = append(to.members, member[T]{call: call})
	to.weight += weight
	b.calls++
	place := Place[T]{b, to, len(to.members) - 1}
	if b.inFlight < b.room() {
		go b.runBatches(b.take())
	} else {
		b.lookLater()
	}
	return place, Batched
}

// room returns how many calls and batches may be in flight: more where round trips are slow and a batch is full, fewer where
// they are short, as before the first answer. The lock is held.
func (b *Batcher[T]) room() int {
	full := len(b.waiting) > 0 && b.full()
	switch {
	case full && b.roundTrip > slow:
		return maxInFlightSlow
	case !full && b.batches > 0 && b.roundTrip < short:
		return b.most.Batches
	}
	return b.most.InFlight
}

// full reports whether the first batch that waits takes no more calls. The lock is held.
func (b *Batcher[T]) full() bool {
	return len(b.waiting) > 1 || len(b.waiting[0].members) == b.most.Calls
}

// Leave ends a call that went alone. It starts the next batch, if one waits.
func (p Place[T]) Leave() {
	if p.batcher == nil {
		return
	}
	p.batcher.mu.Lock()
	next := p.batcher.next()
	p.batcher.mu.Unlock()
	if next != nil {
		go p.batcher.runBatches(next)
	}
}

// next takes the batch that is to start after another has returned, if there is one. The lock is held.
func (b *Batcher[T]) next() *batch[T] {
	b.inFlight--
	if len(b.waiting) > 0 && b.inFlight < b.room() {
		return b.take()
	}
	b.lookLater()
	return nil
}

// beside returns how many may be in flight where a batch waits, and for how long nothing has begun before one begins.
// The lock is held.
func (b *Batcher[T]) beside() (most int, after time.Duration) {
	if b.roundTrip > b.most.Far {
		return maxInFlightSlow, b.roundTrip / maxInFlightSlow
	}
	return b.most.InFlight, stalled
}

// lookLater has look called, if a batch waits though more may be in flight. The lock is held.
func (b *Batcher[T]) lookLater() {
	most, after := b.beside()
	if b.looking || len(b.waiting) == 0 || b.room() >= most {
		return
	}
	b.looking = true
	after = max(lookAfter, after)
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.look)
		return
	}
	b.timer.Reset(after)
}

// look starts the first batch that waits, if nothing has begun for a while.
func (b *Batcher[T]) look() {
	b.mu.Lock()
	b.looking = false
	var next *batch[T]
	if most, after := b.beside(); len(b.waiting) > 0 && b.inFlight < most && time.Since(b.began) >= after {
		next = b.take()
	}
	b.lookLater()
	b.mu.Unlock()
	b.runBatches(next)
}

// take takes the first batch that waits. The lock is held.
func (b *Batcher[T]) take() *batch[T] {
	first := b.waiting[0]
	b.waiting[0] = nil // its members are not to be kept in memory for longer than their callers
	b.waiting = b.waiting[1:]
	b.inFlight++
	b.batches++
	b.calls -= len(first.members)
	first.sent = make([]T, 0, len(first.members))
	for i := range first.members {
		if m := &first.members[i]; !m.left {
			m.sent, first.sent = true, append(first.sent, m.call)
		}
	}
	b.began = time.Now()
	first.started = b.began
	return first
}

// runBatches runs a batch, unless it is nil, and then those that have come to wait meanwhile.
func (b *Batcher[T]) runBatches(next *batch[T]) {
	defer func() {
		if next != nil { // a hook of the client has ended this goroutine
			next.err = errExited
			b.end(next)
			go b.runBatches(b.after(next))
		}
	}()
	for next != nil {
		if len(next.sent) > 0 {
			next.err = Catch(func() error { return b.run(next.ctx, next.sent) })
			b.end(next)
		}
		next = b.after(next)
	}
}

// after lets the callers of a batch go, and returns the next, if one is to start.
func (b *Batcher[T]) after(ended *batch[T]) *batch[T] {
	close(ended.done)
	runtime.Gosched() // callers that have their answer may call again, and share the next batch
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches--
	return b.next()
}

// end gives the outcomes to the callers, and to left what is nobody's.
func (b *Batcher[T]) end(ended *batch[T]) {
	var left []T
	b.mu.Lock()
	ended.ended = true
	for _, m := range ended.members {
		if m.left && m.sent {
			left = append(left, m.call)
		}
	}
	if ended.err == nil { // the shortest is not that of a busy process; it is forgotten within some 50 batches
		b.answered = time.Now()
		if took := b.answered.Sub(ended.started); took < b.roundTrip || b.roundTrip == 0 {
			b.roundTrip = took
		} else {
			b.roundTrip += b.roundTrip / 64
		}
	}
	b.mu.Unlock()
	for _, call := range left {
		b.left(call, Contain(ended.err))
	}
}

// A Left is what a caller knows that has left its batch.
type Left struct {
	Started  time.Time // when the batch was; zero if it waits
	Answered time.Time // when one was last answered
}

// Wait waits until the batch returns, and returns its error. A caller leaves it when ctx ends, or over is closed: a call
// that waits is then not sent, and one that was sent goes on. If the batch panicked, it panics for
// the caller whose context the batch has, and is an error for the others: what was sent may have
// been carried out, and is not sent again.
func (p Place[T]) Wait(ctx context.Context, over <-chan struct{}) (Left, error) {
	var err error
	select {
	case <-p.batch.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-over:
		err = ErrOver
	}
	if err != nil {
		if left, gone := p.abandon(); gone {
			return left, err
		}
	}
	<-p.batch.done
	if p.index == 0 {
		return Left{}, Rethrow(p.batch.err)
	}
	return Left{}, Contain(p.batch.err)
}

// abandon has the outcome of the call be nobody's. It reports false if it is the caller's already.
func (p Place[T]) abandon() (l Left, gone bool) {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.ended {
		return l, false
	}
	p.batch.members[p.index].left = true
	return Left{p.batch.started, p.batcher.answered}, true
}
