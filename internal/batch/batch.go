// Package batch lets calls to one server share round trips. While few calls are in flight each goes
// alone, at once; beyond that calls wait, and those that wait go together when one in flight
// returns. Where round trips are short, fewer batches than calls are in flight: they are larger
// then.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrRetryAlone is the error of a member that was not carried out and is to be sent again, alone.
var ErrRetryAlone = errors.New("to be sent again, alone")

// ErrTimeout is the error of a caller that has waited for its batch as long as it may.
var ErrTimeout = errors.New("the batch took too long")

// A RunFunc carries out the calls of one batch. The error that it returns is that of all; what
// becomes of one alone the call itself keeps.
type RunFunc[T any] func(ctx context.Context, calls []T) error

const (
	// maxInFlightSlow is how many batches may be in flight where round trips are long: a full one
	// begins at once, and beyond SpreadFrom others begin evenly.
	maxInFlightSlow = 16
	// slow is a long round trip.
	slow = 5 * time.Millisecond
	// short is a short one: to wait for it costs less than a larger batch saves. With 0.3 ms of
	// network latency and 16 callers, two batches in flight did a tenth less than four.
	short = 250 * time.Microsecond
	// minStallDelay is the least time until look is called. stalled is for how long nothing has begun
	// when look assumes that all in flight hang. To look each ms took as much of the process's CPU
	// as larger batches save.
	minStallDelay = 5 * time.Millisecond
	stalled       = time.Millisecond
	// maxWaiting bounds how many calls wait.
	maxWaiting = 1 << 16
)

// A Bound limits the size of batches, and their number.
type Bound struct {
	InFlight int   // calls and batches that are in flight before others wait
	Batches  int   // those in flight once a batch is, where round trips are short
	Calls    int   // of one batch
	Weight   int64 // of one batch; a call that weighs more by itself is a batch of its own
	// SpreadFrom is from which round trip on batches begin evenly: a caller may not have the time
	// to wait for another one to end, before its own.
	SpreadFrom time.Duration
}

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	bound     Bound
	weigh     func(T) int64
	run       RunFunc[T]
	abandoned func(call T, err error)

	mu        sync.Mutex
	inFlight  int
	batches   int           // of those in flight
	waiting   []*batch[T]   // all but the last are full
	calls     int           // in those that wait
	roundTrip time.Duration // the shortest of the last batches that were answered
	lastReply time.Time     // when the last one was
	began     time.Time     // when a batch last did
	timer     *time.Timer   // calls look; made when it is first needed
	scheduled bool          // it runs
}

// A batch is calls that go together.
type batch[T any] struct {
	ctx       context.Context //nolint:containedctx // that of the first caller, which may leave before the batch ends
	members   []member[T]
	sent      []T       // the calls whose callers had not left when it was started
	weight    int64     // of all members
	started   time.Time // zero while it waits
	delivered bool      // its outcomes have been handed out
	err       error     // of all members
	done      chan struct{}
}

// A member is one call of a batch.
type member[T any] struct {
	call      T
	sent      bool
	abandoned bool // its caller has left
}

// New returns a Batcher of batches that run carries out. abandoned is called with the outcome of a
// call whose caller has left since its batch was started.
func New[T any](bound Bound, weigh func(T) int64, run RunFunc[T], abandoned func(call T, err error)) *Batcher[T] {
	return &Batcher[T]{bound: bound, weigh: weigh, run: run, abandoned: abandoned}
}

// A Place is where a call waits: its batch, and which member of that it is. Of one that goes alone
// it is its place among those in flight; the zero Place is none.
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
	if len(b.waiting) == 0 && b.inFlight < b.maxInFlightLocked() {
		b.inFlight++
		return Place[T]{batcher: b}, Alone
	}
	if b.calls >= maxWaiting {
		return Place[T]{}, Full
	}
	weight, last := b.weigh(call), len(b.waiting)-1
	if last < 0 || len(b.waiting[last].members) == b.bound.Calls || b.waiting[last].weight+weight > b.bound.Weight {
		b.waiting = append(b.waiting, &batch[T]{ctx: context.WithoutCancel(ctx), done: make(chan struct{})})
		last++
	}
	to := b.waiting[last]
	to.members = append(to.members, member[T]{call: call})
	to.weight += weight
	b.calls++
	place := Place[T]{b, to, len(to.members) - 1}
	if b.inFlight < b.maxInFlightLocked() {
		go b.runBatches(b.takeLocked())
	} else {
		b.scheduleStalledLocked()
	}
	return place, Batched
}

// maxInFlightLocked returns how many calls and batches may be in flight:
//
//	maxInFlightSlow  where round trips are slow, and the first batch that waits is full
//	Bound.Batches    where they are short or not known yet, once a batch is in flight, and the one that waits is not full
//	Bound.InFlight   else
func (b *Batcher[T]) maxInFlightLocked() int {
	full := len(b.waiting) > 0 && b.fullLocked()
	switch {
	case full && b.roundTrip > slow:
		return maxInFlightSlow
	case !full && b.batches > 0 && b.roundTrip < short:
		return b.bound.Batches
	}
	return b.bound.InFlight
}

// fullLocked reports whether the first batch that waits takes no more calls.
func (b *Batcher[T]) fullLocked() bool {
	return len(b.waiting) > 1 || len(b.waiting[0].members) == b.bound.Calls
}

// Release ends a call that went alone. It starts the next batch, if one waits.
func (p Place[T]) Release() {
	if p.batcher == nil {
		return
	}
	p.batcher.mu.Lock()
	next := p.batcher.nextLocked()
	p.batcher.mu.Unlock()
	if next != nil {
		go p.batcher.runBatches(next)
	}
}

// nextLocked takes the batch that is to start after another has returned, if there is one.
func (b *Batcher[T]) nextLocked() *batch[T] {
	b.inFlight--
	if len(b.waiting) > 0 && b.inFlight < b.maxInFlightLocked() {
		return b.takeLocked()
	}
	b.scheduleStalledLocked()
	return nil
}

// stalledBoundLocked returns when look may start a batch: fewer than most are in flight, and nothing
// has begun for after.
func (b *Batcher[T]) stalledBoundLocked() (most int, after time.Duration) {
	if b.roundTrip > b.bound.SpreadFrom {
		return maxInFlightSlow, b.roundTrip / maxInFlightSlow
	}
	return b.bound.InFlight, stalled
}

// scheduleStalledLocked has look called, if a batch waits though more may be in flight.
func (b *Batcher[T]) scheduleStalledLocked() {
	most, after := b.stalledBoundLocked()
	if b.scheduled || len(b.waiting) == 0 || b.maxInFlightLocked() >= most {
		return
	}
	b.scheduled = true
	after = max(minStallDelay, after)
	if b.timer == nil {
		b.timer = time.AfterFunc(after, b.startStalled)
		return
	}
	b.timer.Reset(after)
}

// look starts the first batch that waits, if nothing has begun for a while.
func (b *Batcher[T]) startStalled() {
	b.mu.Lock()
	b.scheduled = false
	var next *batch[T]
	if most, after := b.stalledBoundLocked(); len(b.waiting) > 0 && b.inFlight < most && time.Since(b.began) >= after {
		next = b.takeLocked()
	}
	b.scheduleStalledLocked()
	b.mu.Unlock()
	b.runBatches(next)
}

// takeLocked takes the first batch that waits.
func (b *Batcher[T]) takeLocked() *batch[T] {
	first := b.waiting[0]
	b.waiting[0] = nil // its members are not to be kept in memory for longer than their callers
	b.waiting = b.waiting[1:]
	b.inFlight++
	b.batches++
	b.calls -= len(first.members)
	first.sent = make([]T, 0, len(first.members))
	for i := range first.members {
		if m := &first.members[i]; !m.abandoned {
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
			next.err = &HookError{}
			b.deliver(next)
			go b.runBatches(b.after(next))
		}
	}()
	for next != nil {
		if len(next.sent) > 0 {
			next.err = Catch(func() error { return b.run(next.ctx, next.sent) })
			b.deliver(next)
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
	return b.nextLocked()
}

// deliver gives the outcomes to the callers, and to abandoned what is nobody's.
func (b *Batcher[T]) deliver(done *batch[T]) {
	var abandoned []T
	b.mu.Lock()
	done.delivered = true
	for _, m := range done.members {
		if m.abandoned && m.sent {
			abandoned = append(abandoned, m.call)
		}
	}
	if done.err == nil { // the shortest is not that of a busy process; it is forgotten within some 50 batches
		b.lastReply = time.Now()
		if took := b.lastReply.Sub(done.started); took < b.roundTrip || b.roundTrip == 0 {
			b.roundTrip = took
		} else {
			b.roundTrip += b.roundTrip / 64
		}
	}
	b.mu.Unlock()
	for _, call := range abandoned {
		b.abandoned(call, done.err)
	}
}

// An Abandoned is what is known of a call whose caller has left its batch.
type Abandoned struct {
	Started   time.Time // when the batch was; zero if it waits
	LastReply time.Time // when one was last answered
}

// Wait waits until the batch returns, and returns its error. A caller leaves it when ctx ends, or
// until is closed: a call that waits is then not sent, and one that was sent goes on.
func (p Place[T]) Wait(ctx context.Context, until <-chan struct{}) (Abandoned, error) {
	var err error
	select {
	case <-p.batch.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-until:
		err = ErrTimeout
	}
	if err != nil {
		if abandoned, gone := p.abandon(); gone {
			return abandoned, err
		}
	}
	<-p.batch.done
	return Abandoned{}, p.batch.err
}

// abandon has the outcome of the call be nobody's. It reports false if it is the caller's already.
func (p Place[T]) abandon() (a Abandoned, gone bool) {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.delivered {
		return a, false
	}
	p.batch.members[p.index].abandoned = true
	return Abandoned{p.batch.started, p.batcher.lastReply}, true
}
