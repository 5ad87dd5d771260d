// Package batch lets concurrent calls to one server share round trips.
//
// While only a few calls are in flight, a call does not wait: its caller sends it alone. Once
// [Bound.InFlight] calls and batches are in flight, further calls wait in batches. When a call or batch
// that is in flight returns, the first waiting batch may start: all its calls are sent together. If
// round trips are short, fewer batches may be in flight at a time; see [Bound.Batches]. This makes each
// batch larger, and the server's work for each call smaller. If round trips are long, more batches may be
// in flight, and a batch need not wait until another one returns; see [Bound.SpreadFrom].
//
// A caller calls [Batcher.Enter] and does what the returned [Way] says. The package knows nothing of Redis:
// a [RunFunc] carries out a batch.
//
// The package also has what calls need that run in a goroutine of their own: [Go] and [Beside] let a caller
// stop waiting for a call, and [Catch] and [CatchAll] turn a panic of a call into an error.
package batch

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// ErrRetryAlone is the error of a call that its batch did not carry out. The caller should send the call
// again, alone. This package never makes it: a RunFunc returns it, or stores it in a call.
var ErrRetryAlone = errors.New("to be sent again, alone")

// ErrTimeout is the error of [Place.Wait] if its channel timeout is closed before the batch ends.
var ErrTimeout = errors.New("the batch took too long")

// A RunFunc carries out the calls of one batch, except calls whose callers had left before the batch
// started. There is at least one call, and ctx never ends. The error that a RunFunc returns is the error of
// every call in the batch. An error of a single call is stored in the call, not returned.
type RunFunc[T any] func(ctx context.Context, calls []T) error

const (
	// maxInFlightSlow is how many calls and batches may be in flight if round trips are slow. While fewer
	// are in flight, a full batch starts at once. If round trips are longer than Bound.SpreadFrom, batches
	// that are not full start as well, at intervals of at least 1/maxInFlightSlow of a round trip.
	maxInFlightSlow = 16
	// slow is the time above which a round trip counts as slow.
	slow = 5 * time.Millisecond
	// short is the time below which a round trip counts as short: waiting for a larger batch then costs a
	// caller less time than the larger batch saves. A round trip over a network with a latency of 0.3 ms
	// must not count as short. There, with 16 callers, two batches in flight had 10% less throughput than
	// four.
	short = 250 * time.Microsecond
	// minStallDelay is the shortest time after which the timer calls startStalled. A timer of 1 ms took as
	// much of the process's CPU time as larger batches save.
	minStallDelay = 5 * time.Millisecond
	// stalled is how long no batch must have started before startStalled assumes that the calls and batches
	// in flight hang. If round trips are longer than Bound.SpreadFrom, another time applies: see
	// stalledBoundLocked.
	stalled = time.Millisecond
	// maxWaiting is how many calls may wait at a time in one Batcher.
	maxWaiting = 1 << 16
)

// A Bound limits the size of batches and how many of them are in flight.
type Bound struct {
	// InFlight is how many calls and batches may be in flight before other calls wait.
	InFlight int
	// Batches replaces InFlight if the following three conditions hold: round trips are short or have not
	// been measured yet, a batch is in flight, and no full batch waits. If none of the calls in flight returns
	// in time, startStalled nevertheless starts waiting batches, up to InFlight.
	Batches int
	// Calls is how many calls a batch may contain.
	Calls int
	// Weight is how much the calls of a batch may weigh together. A call that alone weighs more than Weight
	// gets a batch of its own.
	Weight int64
	// SpreadFrom is the length of a round trip above which a waiting batch may start although InFlight calls
	// and batches are in flight and none has returned. Such batches start at intervals, until
	// maxInFlightSlow calls and batches are in flight. Without this rule, callers of a distant server might
	// reach their deadlines while they wait for a batch to return.
	SpreadFrom time.Duration
}

// A Batcher batches the calls to one server. It is safe for concurrent use.
type Batcher[T any] struct {
	bound     Bound
	weigh     func(T) int64
	run       RunFunc[T]
	leaves    func()
	abandoned func(call T, err error)

	// mu guards the fields below, and the batches and calls that they lead to.
	mu        sync.Mutex
	inFlight  int           // the number of calls sent alone plus the number of batches that are in flight
	batches   int           // how many of inFlight are batches
	waiting   []*batch[T]   // in the order in which they will start; new calls join only the last one
	calls     int           // how many calls are in waiting, including those whose callers have left
	roundTrip time.Duration // about the shortest round trip of the recently answered batches, see deliver; 0 before the first
	lastReply time.Time     // when a batch was last answered without an error
	began     time.Time     // when a batch last started
	timer     *time.Timer   // calls startStalled; nil until it is first needed
	scheduled bool          // whether timer is running
}

// A batch is a group of calls that are sent together. The lock of the Batcher guards its fields, with two
// exceptions. The fields ctx and done never change. The fields sent and err belong to the goroutine of
// runBatches once the batch has started; after done is closed, every caller may read err.
type batch[T any] struct {
	ctx       context.Context //nolint:containedctx // has the values of the first caller's context, but does not end with it
	calls     []batchedCall[T]
	sent      []T           // the calls whose callers had not left when the batch started
	weight    int64         // of all calls together
	started   time.Time     // zero while the batch waits
	delivered bool          // whether the outcome belongs to the callers; from then on nobody can abandon a call
	err       error         // the error of the batch, which is the error of every call in it
	done      chan struct{} // closed when the batch has ended
}

// A batchedCall is one call of a batch.
type batchedCall[T any] struct {
	call      T
	sent      bool // whether the batch started before the caller left
	abandoned bool // whether the caller has left
}

// New returns a Batcher whose batches are carried out by run. weigh returns the weight of a call, which
// [Bound.Weight] limits. If a caller leaves after its batch has started, leaves is called before the caller
// returns, and then abandoned receives the outcome of the call. The other callers of the batch wait until
// abandoned has returned, and abandoned must not panic.
//
// The Batcher holds no lock while it calls run or abandoned. It holds its lock while it calls weigh and
// leaves, which must therefore not use the Batcher.
func New[T any](bound Bound, weigh func(T) int64, run RunFunc[T], leaves func(), abandoned func(call T, err error)) *Batcher[T] {
	return &Batcher[T]{bound: bound, weigh: weigh, run: run, leaves: leaves, abandoned: abandoned}
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

// Enter decides how call is sent, and returns the Place of the call. A batch takes the values of ctx,
// such as a trace, from its first call.
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
//	Bound.Batches    if round trips are short or not known yet, a batch is in flight, and no full batch waits
//	Bound.InFlight   otherwise
//
// startStalled exceeds Bound.Batches if none of the calls in flight returns in time.
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

// fullLocked reports whether the first waiting batch counts as full: it has Bound.Calls calls, or
// another batch waits behind it. The weight of a batch that waits alone does not count, because a
// lighter call may still join the batch. There must be a waiting batch.
func (b *Batcher[T]) fullLocked() bool {
	return len(b.waiting) > 1 || len(b.waiting[0].calls) == b.bound.Calls
}

// Release must be called once when a call that was sent Alone has returned, and never for a Batched call.
// If a batch waits and may start now, Release starts it in another goroutine: the caller does not wait for
// the batch. Release does nothing on the zero Place.
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

// nextLocked notes that a call or batch has returned. If the first waiting batch may start now, nextLocked
// takes it from the queue and returns it, as takeLocked does. Otherwise nextLocked returns nil.
func (b *Batcher[T]) nextLocked() *batch[T] {
	b.inFlight--
	if len(b.waiting) > 0 && b.inFlight < b.maxInFlightLocked() {
		return b.takeLocked()
	}
	b.scheduleStalledLocked()
	return nil
}

// stalledBoundLocked returns the two conditions under which startStalled starts a batch: the number of
// calls and batches in flight must be below bound, and the last batch must have started at least pause
// ago.
func (b *Batcher[T]) stalledBoundLocked() (bound int, pause time.Duration) {
	if b.roundTrip > b.bound.SpreadFrom {
		return maxInFlightSlow, b.roundTrip / maxInFlightSlow
	}
	return b.bound.InFlight, stalled
}

// scheduleStalledLocked makes the timer call startStalled if a batch waits, and startStalled allows more
// calls and batches in flight than maxInFlightLocked. Such a batch waits so that it becomes larger. It must
// not have to wait until a call or batch returns, because those in flight may hang or the server may be
// distant.
func (b *Batcher[T]) scheduleStalledLocked() {
	bound, pause := b.stalledBoundLocked()
	if b.scheduled || len(b.waiting) == 0 || b.maxInFlightLocked() >= bound {
		return
	}
	b.scheduled = true
	pause = max(minStallDelay, pause)
	if b.timer == nil {
		b.timer = time.AfterFunc(pause, b.startStalled)
		return
	}
	b.timer.Reset(pause)
}

// startStalled starts the first waiting batch if no batch has started for a while and not too many calls
// and batches are in flight: see stalledBoundLocked. The timer calls startStalled in a goroutine, in which
// it also runs the batch.
func (b *Batcher[T]) startStalled() {
	b.mu.Lock()
	b.scheduled = false
	var next *batch[T]
	if bound, pause := b.stalledBoundLocked(); len(b.waiting) > 0 && b.inFlight < bound && time.Since(b.began) >= pause {
		next = b.takeLocked()
	}
	b.scheduleStalledLocked()
	b.mu.Unlock()
	b.runBatches(next)
}

// takeLocked removes the first waiting batch from the queue and marks it as started. There must be a waiting
// batch. The caller must release the lock and pass the batch to runBatches.
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

// runBatches runs next, unless next is nil. After each batch that ends, it runs the first waiting batch,
// and returns when no batch waits or none may start.
func (b *Batcher[T]) runBatches(next *batch[T]) {
	defer func() {
		if next != nil { // a hook of the client has ended this goroutine by runtime.Goexit
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

// after wakes the callers of a batch that has ended, and notes that the batch is no longer in flight. It
// returns the batch to start next, or nil.
func (b *Batcher[T]) after(ended *batch[T]) *batch[T] {
	close(ended.done)
	runtime.Gosched() // lets callers that have their answer call again, so that they share the next batch
	b.mu.Lock()
	defer b.mu.Unlock()
	b.batches--
	return b.nextLocked()
}

// deliver decides who gets the outcome of a batch. A caller that still waits gets it when the batch is
// done. If a caller has left after the batch started, the function that New got as abandoned receives
// the outcome of its call. deliver also measures the round trip.
func (b *Batcher[T]) deliver(done *batch[T]) {
	var abandoned []T
	b.mu.Lock()
	done.delivered = true
	for _, m := range done.calls {
		if m.abandoned && m.sent {
			abandoned = append(abandoned, m.call)
		}
	}
	// A busy process makes round trips seem longer, never shorter, so the shortest one counts. After each
	// batch that was not faster, b.roundTrip grows by 1/64. It can therefore double within about 45 batches,
	// so that a server that has become slower is noticed.
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

// Abandoned describes a call whose caller left before the batch of the call had ended.
type Abandoned struct {
	Started   time.Time // when the call's batch started; zero if it has not
	LastReply time.Time // when a batch of the Batcher was last answered without an error; zero if none was
}

// Wait waits until the batch of the call ends, and returns the error of the batch and the zero Abandoned.
// The caller must also look for an error in the call itself: see [RunFunc].
//
// If ctx ends or the channel timeout is closed before the batch ends, Wait returns the error of ctx or
// [ErrTimeout], and an Abandoned that describes the call. The call is then dropped if it has not been sent.
// If it has been sent, it continues, and the function that [New] got as abandoned receives its outcome.
func (p Place[T]) Wait(ctx context.Context, timeout <-chan struct{}) (Abandoned, error) {
	var err error
	select {
	case <-p.batch.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout:
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

// abandon detaches the caller from its call. gone is false if the outcome already belongs to the caller,
// which must then take it.
func (p Place[T]) abandon() (a Abandoned, gone bool) {
	p.batcher.mu.Lock()
	defer p.batcher.mu.Unlock()
	if p.batch.delivered {
		return a, false
	}
	p.batch.calls[p.index].abandoned = true
	if p.batch.calls[p.index].sent {
		p.batcher.leaves()
	}
	return Abandoned{p.batch.started, p.batcher.lastReply}, true
}
