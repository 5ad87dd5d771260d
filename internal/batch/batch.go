// Package batch lets concurrent calls to one server share round trips.
//
// While only a few calls are in flight, a call does not wait: its caller makes it alone. Once
// [Bound.InFlight] calls and batches are in flight, further calls wait. When one in flight returns, the
// calls that wait are sent together, as one batch. If round trips are short, fewer batches may be in flight
// at a time, which makes each batch larger and the server's work per call smaller.
//
// A caller calls [Batcher.Enter] and does what the returned [Way] says. The package knows nothing of Redis:
// a [RunFunc] carries out a batch.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrRetryAlone is the error of a call that its batch did not carry out. The caller should send the call
// again, alone. This package never returns it: a RunFunc stores it in a call.
var ErrRetryAlone = errors.New("to be sent again, alone")

// ErrTimeout is the error of [Place.Wait] if until is closed before the batch ends.
var ErrTimeout = errors.New("the batch took too long")

// A RunFunc carries out the calls of one batch. The error that it returns is the error of every call in the
// batch. An error of a single call is stored in the call, not returned.
type RunFunc[T any] func(ctx context.Context, calls []T) error

const (
	// maxInFlightSlow is how many calls and batches may be in flight if round trips are slow. A full batch
	// starts at once; above Bound.SpreadFrom, other batches start at even intervals of the round trip.
	maxInFlightSlow = 16
	// Round trips longer than slow are slow.
	slow = 5 * time.Millisecond
	// Round trips shorter than short are short: waiting for one costs a caller less than a larger batch
	// saves. Measured with a network latency of 0.3 ms and 16 callers, two batches in flight had 10 % less
	// throughput than four, so such a round trip does not count as short.
	short = 250 * time.Microsecond
	// startStalled assumes that all batches in flight hang if none has started for the time stalled. It is
	// called minStallDelay after a batch began to wait, or later: a timer of 1 ms took as much of the
	// process's CPU as larger batches save.
	minStallDelay = 5 * time.Millisecond
	stalled       = time.Millisecond
	// maxWaiting is how many calls may wait at a time.
	maxWaiting = 1 << 16
)

// A Bound limits the size of batches and how many of them are in flight.
type Bound struct {
	// InFlight is how many calls and batches may be in flight before other calls wait.
	InFlight int
	// Batches takes the place of InFlight if round trips are short, while a batch is in flight and the
	// batch that waits is not full.
	Batches int
	// Calls is how many calls a batch may have.
	Calls int
	// Weight is how much the calls of a batch may weigh together. A call that weighs more than Weight is
	// sent in a batch of its own.
	Weight int64
	// SpreadFrom is the round trip above which batches start at even intervals, whether or not another
	// batch has returned. Callers of a distant server might otherwise reach their deadlines while they wait
	// for a batch to return.
	SpreadFrom time.Duration
}

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	bound     Bound
	weigh     func(T) int64
	run       RunFunc[T]
	abandoned func(call T, err error)

	// mu guards the fields below, and the batches and calls that they lead to.
	mu        sync.Mutex
	inFlight  int           // calls that go alone, and batches
	batches   int           // how many of inFlight are batches
	waiting   []*batch[T]   // in the order in which they will start; all except the last are full
	calls     int           // how many calls are in waiting
	roundTrip time.Duration // the shortest of the recently answered batches; 0 before the first
	lastReply time.Time     // when a batch was last answered without an error
	began     time.Time     // when a batch last started
	timer     *time.Timer   // calls startStalled; nil until it is first needed
	scheduled bool          // whether timer is running
}

// A batch is a group of calls that are sent together. The lock of the Batcher guards it until it has
// started; the goroutine of runBatches then owns its fields sent and err until done is closed.
type batch[T any] struct {
	ctx       context.Context //nolint:containedctx // values of the first caller's context, which may end before the batch does
	calls     []batchedCall[T]
	sent      []T           // the calls whose callers had not left when the batch started
	weight    int64         // of all calls together
	started   time.Time     // zero while the batch waits
	delivered bool          // whether the outcome belongs to the callers; from then on nobody can abandon a call
	err       error         // the error of every call
	done      chan struct{} // closed when the batch has ended
}

// A batchedCall is one call of a batch.
type batchedCall[T any] struct {
	call      T
	sent      bool // whether the batch started before the caller left
	abandoned bool // whether the caller has left
}

// New returns a Batcher whose batches are carried out by run. weigh returns the weight of a call, which
// [Bound.Weight] limits. abandoned receives the outcome of a call whose caller left after its batch had
// started. run and abandoned are called without a lock held.
func New[T any](bound Bound, weigh func(T) int64, run RunFunc[T], abandoned func(call T, err error)) *Batcher[T] {
	return &Batcher[T]{bound: bound, weigh: weigh, run: run, abandoned: abandoned}
}

// A Place identifies a call that has entered a Batcher. For a Batched call it names the call's batch and
// its index there. For a call that goes Alone, it stands for the call's share of Bound.InFlight. The zero
// Place stands for no call.
type Place[T any] struct {
	batcher *Batcher[T]
	batch   *batch[T]
	index   int
}

// A Way says how the caller must send a call.
type Way uint8

// The ways to send a call.
const (
	Batched Way = iota // the call is sent in a batch: the caller must call [Place.Wait]
	Alone              // the caller makes the call itself, at once, and must then call [Place.Release]
	Full               // the call must not be sent: too many calls are waiting already
)

// Enter decides how call is sent, and returns the Place of the call. A batch takes the values of ctx, such
// as a trace, from the call that opened it.
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
	if last < 0 || len(b.waiting[last].calls) == b.bound.Calls || b.waiting[last].weight+weight > b.bound.Weight {
		b.waiting = append(b.waiting, &batch[T]{ctx: context.WithoutCancel(ctx), done: make(chan struct{})})
		last++
	}
	to := b.waiting[last]
	to.calls = append(to.calls, batchedCall[T]{call: call})
	to.weight += weight
	b.calls++
	place := Place[T]{b, to, len(to.calls) - 1}
	if b.inFlight < b.maxInFlightLocked() {
		go b.runBatches(b.takeLocked())
	} else {
		b.scheduleStalledLocked()
	}
	return place, Batched
}

// maxInFlightLocked returns how many calls and batches may be in flight at present:
//
//	maxInFlightSlow  if round trips are slow and the first waiting batch is full
//	Bound.Batches    if round trips are short or not known yet, a batch is in flight, and the first waiting batch is not full
//	Bound.InFlight   otherwise
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

// fullLocked reports whether the first waiting batch accepts no more calls. There must be one.
func (b *Batcher[T]) fullLocked() bool {
	return len(b.waiting) > 1 || len(b.waiting[0].calls) == b.bound.Calls
}

// Release ends a call that was sent Alone. If a batch waits, Release starts it. Release does nothing on the
// zero Place.
func (p Place[T]) Release() {
	if p.batcher == nil {
		return
	}
	p.batcher.mu.Lock()
	next := p.batcher.nextLocked()
	p.batcher.mu.Unlock()
	if next != nil { // a hook of the client ended this goroutine by runtime.Goexit
		go p.batcher.runBatches(next)
	}
}

// nextLocked notes that a call or batch has returned, and takes the batch that may start now. It returns
// nil if there is none.
func (b *Batcher[T]) nextLocked() *batch[T] {
	b.inFlight--
	if len(b.waiting) > 0 && b.inFlight < b.maxInFlightLocked() {
		return b.takeLocked()
	}
	b.scheduleStalledLocked()
	return nil
}

// stalledBoundLocked returns when startStalled may start a batch: fewer than most calls and batches must be
// in flight, and no batch may have started within the last after.
func (b *Batcher[T]) stalledBoundLocked() (most int, after time.Duration) {
	if b.roundTrip > b.bound.SpreadFrom {
		return maxInFlightSlow, b.roundTrip / maxInFlightSlow
	}
	return b.bound.InFlight, stalled
}

// scheduleStalledLocked arranges a call of startStalled if a batch waits although the server could take
// more. The batch waits only to become larger, and must not wait forever if the calls in flight hang.
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

// startStalled starts the first waiting batch if no batch has started for a while. The timer calls it.
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

// takeLocked removes the first waiting batch from the queue and marks it as started. The caller must pass
// the batch to runBatches, without the lock.
func (b *Batcher[T]) takeLocked() *batch[T] {
	first := b.waiting[0]
	b.waiting[0] = nil // otherwise the slice's array would keep the batch in memory
	b.waiting = b.waiting[1:]
	b.inFlight++
	b.batches++
	b.calls -= len(first.calls)
	first.sent = make([]T, 0, len(first.calls))
	for i := range first.calls {
		if m := &first.calls[i]; !m.abandoned {
			m.sent, first.sent = true, append(first.sent, m.call)
		}
	}
	b.began = time.Now()
	first.started = b.began
	return first
}

// runBatches runs next, unless it is nil, and then the batches that have begun to wait in the meantime. It
// returns when no batch may start.
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

// after wakes the callers of a batch that has ended. It returns the batch to start next, or nil.
func (b *Batcher[T]) after(ended *batch[T]) *batch[T] {
	close(ended.done)
	runtime.Gosched() // lets callers that have their answer call again, so that they share the next batch
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches--
	return b.nextLocked()
}

// deliver fixes who gets the outcome of a batch: the callers that still wait, or, for calls whose callers
// have left, the function abandoned of New. It also measures the round trip.
func (b *Batcher[T]) deliver(done *batch[T]) {
	var abandoned []T
	b.mu.Lock()
	done.delivered = true
	for _, m := range done.calls {
		if m.abandoned && m.sent {
			abandoned = append(abandoned, m.call)
		}
	}
	// A busy process makes round trips seem longer, never shorter, so the shortest one counts. It grows by
	// 1/64 with each batch, so that a server that has become slower is noticed within about 50 batches.
	if done.err == nil {
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

// Abandoned describes a call whose caller left before its batch had ended.
type Abandoned struct {
	Started   time.Time // when the call's batch started; zero if it has not
	LastReply time.Time // when a batch of the Batcher was last answered
}

// Wait waits until the batch ends, and returns its error. The caller stops waiting when ctx ends, with
// ctx's error, or when until is closed, with [ErrTimeout]. A call that has not been sent by then is
// dropped. A call that was sent continues, and the function abandoned of [New] receives its outcome. The
// Abandoned is zero if the batch ended first.
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

// abandon detaches the caller from its call. gone is false if the outcome has already been delivered: it
// then belongs to the caller.
func (p Place[T]) abandon() (a Abandoned, gone bool) {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.delivered {
		return a, false
	}
	p.batch.calls[p.index].abandoned = true
	return Abandoned{p.batch.started, p.batcher.lastReply}, true
}
