// Package line has the callers of one process that wait for a key wait in a line, in the order in
// which they came: whose turn it is to ask, and who is woken. What they ask it does not know.
package line

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/decision"
)

const (
	// maxAsking bounds how many of a line ask at the same time: more would share no round trip.
	maxAsking = 64

	// A denial that may be over at any time is asked about again after firstPoll, and each time
	// after half as long again, up to lastPoll. All lines together poll once in pollGap at most.
	firstPoll, lastPoll, pollGap = 10 * time.Millisecond, 50 * time.Millisecond, time.Millisecond

	// A process whose line has passed on slots for turnTime leaves them to others for half a
	// lastPoll.
	turnTime = 500 * time.Millisecond

	never time.Duration = math.MaxInt64
)

// A Caller is who waits.
type Caller struct {
	Key string
	// BanOnly means that no units are wanted, so that only the end of a ban is waited for. Such callers
	// have a line of their own, because they need not wait for callers that want units.
	BanOnly bool
	Units   int64     // that it wants
	Until   time.Time // when it is of no use any more, if that is before its context ends; zero: never
	Most    int       // of such that may wait; 0: any number
}

// A Denial is why a caller has to wait.
type Denial struct {
	Reply      decision.Reply // whose it is: it is not looked at here
	At         time.Time      // when it was
	RetryAfter time.Duration  // of the longest Duration: never
	Held       bool           // it may be over at any time, when something is given back

	// How many units are admitted after that: Limit in each Window, at once or, if they drain, one
	// by one. A Window of 0: that is not known.
	Limit  int64
	Window time.Duration
	Drains bool

	units int64         // that were denied
	pause time.Duration // after which it is asked again
}

// soon reports whether it may be over at any time.
func (d *Denial) soon() bool { return d.Held || d.RetryAfter == never }

// over returns when the line is admitted that wants so many units, at the soonest.
func (d *Denial) over(units int64) time.Time {
	over := d.At.Add(d.RetryAfter)
	if d.Window == 0 || d.Limit == 0 {
		return over
	}
	windows := float64(units-d.units) / float64(d.Limit)
	if !d.Drains {
		windows = float64((units - 1) / d.Limit)
	}
	return over.Add(time.Duration(min(windows*float64(d.Window), 1e18)))
}

// A RefusalError is the error of who would wait for too long, or of one too many. It is a
// [context.DeadlineExceeded].
type RefusalError struct {
	Wait   time.Duration // that it would, as far as it is known
	Last   *Denial       // by which that is known, or nil
	Waited bool          // already
}

func (r *RefusalError) Error() string {
	if r.Last != nil && r.Last.Held {
		return fmt.Sprintf("redislimit: what others hold was not given back in time (end each Permit and each Reservation, "+
			"and close the body of each response): %v", context.DeadlineExceeded)
	}
	return fmt.Sprintf("redislimit: %v to wait: %v", r.Wait, context.DeadlineExceeded)
}

// Unwrap returns context.DeadlineExceeded.
func (r *RefusalError) Unwrap() error { return context.DeadlineExceeded }

// Lines are the callers that wait, in a line for each key. The zero Lines are ready.
type Lines struct {
	count   atomic.Int64 // of lines, to be read without the lock
	mu      sync.Mutex
	byKey   map[name]*line
	bounded int // waiters whose number is bounded
}

// A name identifies a line.
type name struct {
	key     string
	banOnly bool
}

// A line is the callers that wait for one key, in the order in which they came. The first has its
// turn, and others that may be admitted with it.
type line struct {
	waiters []*waiter
	units   int64 // that they want, all together
	last    *Denial
	freed   chan struct{} // closed when units are free in this process; nil if nobody awaits that
	poll    time.Duration // the last pause between two polls
	kept    time.Time     // since when this process passes on its slots; zero if it does not
}

// A waiter is a caller in a line.
type waiter struct {
	Caller

	line   *line
	asks   bool          // it has its turn
	turn   chan struct{} // has an element when it gets it
	waited bool          // for its turn, or to ask again
}

func (c *Caller) name() name { return name{c.Key, c.BanOnly} }

// timeLeft returns for how long w may wait on.
func (w *waiter) timeLeft() time.Duration {
	if w.Until.IsZero() {
		return never
	}
	return time.Until(w.Until)
}

// Anyone reports whether somebody waits for units of key.
func (ls *Lines) Anyone(key string) bool {
	if ls.count.Load() == 0 {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[name{key: key}] != nil
}

// Wait has c wait for its turn, and then calls ask until it denies no more: that returns the
// denial, or nil and how many units remain. long is told of each pause. Errors are those of ask and
// of ctx, and a [RefusalError].
func (ls *Lines) Wait(ctx context.Context, c Caller, long func(context.Context, time.Duration),
	ask func() (denial *Denial, remaining int64, err error),
) error {
	if deadline, ok := ctx.Deadline(); ok && (c.Until.IsZero() || deadline.Before(c.Until)) {
		c.Until = deadline
	}
	w := &waiter{Caller: c}
	if refused := ls.join(w); refused != nil {
		return refused
	}
	admitted, left := false, int64(0)
	defer func() { ls.leave(w, admitted, left) }()
	for first := false; ; {
		if !first {
			if woken, err := Rest(ctx, w.timeLeft(), w.turn); err != nil {
				return err
			} else if !woken {
				return ls.late(w)
			}
		}
		freed := ls.asking(w)
		denial, remaining, err := ask()
		if err != nil {
			return err
		}
		if denial == nil {
			admitted, left = true, remaining
			return nil
		}
		if first = ls.denied(w, denial); !first {
			continue // another asks, who came before
		}
		if !denial.soon() && denial.RetryAfter > w.timeLeft() {
			return &RefusalError{Wait: denial.RetryAfter, Last: denial, Waited: w.waited}
		}
		long(ctx, denial.pause)
		if err := ls.rest(ctx, w, denial, freed); err != nil {
			return err
		}
	}
}

// rest waits until the first of a line is to ask again, after it was denied.
func (ls *Lines) rest(ctx context.Context, w *waiter, denial *Denial, freed <-chan struct{}) error {
	w.waited = true
	late := denial.pause > w.timeLeft()
	woken, err := Rest(ctx, min(denial.pause, w.timeLeft()), freed)
	switch {
	case err != nil:
		return err
	case woken:
		_, err = Rest(ctx, ls.woken(w), nil)
		return err
	case late:
		return ls.late(w)
	}
	return nil
}

// join has w wait in the line of its key, at its end; w must leave. It does not if that is of no
// use, or if there are too many: a key takes no more places than are left for all others.
func (ls *Lines) join(w *waiter) *RefusalError {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := ls.byKey[w.name()]
	if q == nil {
		q = &line{}
	}
	now := time.Now()
	if q.last != nil && !q.last.soon() && !w.Until.IsZero() {
		if over := q.last.over(q.units + w.Units); over.After(w.Until) {
			return &RefusalError{Wait: over.Sub(now), Last: q.last}
		}
	}
	if w.Most > 0 && len(q.waiters) >= w.Most-ls.bounded {
		return &RefusalError{Last: q.last}
	}
	if len(q.waiters) == 0 {
		if ls.byKey == nil {
			ls.byKey = make(map[name]*line)
		}
		ls.byKey[w.name()] = q
		ls.count.Add(1)
	}
	if w.Most > 0 {
		ls.bounded++
	}
	w.line, w.turn, w.waited = q, make(chan struct{}, 1), len(q.waiters) > 0
	q.waiters = append(q.waiters, w)
	q.units += w.Units
	q.turnsLocked(0)
	return nil
}

// turnsLocked gives the first its turn, and those after it that what remains admits as well.
func (q *line) turnsLocked(remaining int64) {
	for i, w := range q.waiters[:min(len(q.waiters), maxAsking)] {
		if i > 0 && w.Units > remaining {
			return
		}
		remaining -= w.Units
		if !w.asks {
			w.asks = true
			w.turn <- struct{}{}
		}
	}
}

// leave takes w out of its line. If it was admitted, so much remains.
func (ls *Lines) leave(w *waiter, admitted bool, remaining int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.Most > 0 {
		ls.bounded--
	}
	q := w.line
	i := slices.Index(q.waiters, w)
	if i == 0 {
		q.waiters[0] = nil
		q.waiters = q.waiters[1:]
	} else {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	q.units -= w.Units
	switch {
	case len(q.waiters) == 0:
		delete(ls.byKey, w.name())
		ls.count.Add(-1)
		return
	case i == 0 && !admitted:
		q.last = nil // another may want less
	}
	q.turnsLocked(remaining)
}

// asking returns what is closed when units of the key are freed in this process from now on.
func (ls *Lines) asking(w *waiter) <-chan struct{} {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.line.freed == nil {
		w.line.freed = make(chan struct{})
	}
	return w.line.freed
}

// denied notes that w was. It reports whether w is the first, which asks again after a pause.
func (ls *Lines) denied(w *waiter, d *Denial) (first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := w.line
	if q.waiters[0] != w {
		w.asks = false
		return false
	}
	d.units, d.pause = w.Units, d.RetryAfter
	q.last = d
	switch {
	case d.Held:
		q.poll = min(max(firstPoll, q.poll*3/2), lastPoll)
		d.pause = max(jittered(q.poll), time.Duration(ls.count.Load())*pollGap)
	case d.RetryAfter == never: // it is above this process's share of the limit, while Redis is away
		d.pause = time.Second
	}
	return true
}

// late returns the refusal of w, whose time is over.
func (ls *Lines) late(w *waiter) *RefusalError {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := &RefusalError{Last: w.line.last, Waited: true}
	if r.Last != nil && !r.Last.soon() {
		r.Wait = time.Until(r.Last.over(w.line.units))
	}
	return r
}

// woken returns for how long the first of a line that was woken leaves what is free to other
// processes. Else these would get nothing for as long as somebody waits in this one.
func (ls *Lines) woken(w *waiter) time.Duration {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch q, now := w.line, time.Now(); {
	case q.kept.IsZero():
		q.kept = now
	case now.Sub(q.kept) >= turnTime:
		q.kept = time.Time{}
		return jittered(lastPoll / 2)
	}
	return 0
}

// jittered returns from half of d to as much above it.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Free wakes the first that waits for key, whose denial may be over.
func (ls *Lines) Free(key string) { ls.wake(key, false) }

// Forget does so whatever the denial says, and also wakes the first that waits for the end of a ban.
func (ls *Lines) Forget(key string) { ls.wake(key, true) }

func (ls *Lines) wake(key string, whatever bool) {
	if ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byKey[name{key: key}].wakeLocked(whatever)
	if whatever {
		ls.byKey[name{key: key, banOnly: true}].wakeLocked(whatever)
	}
}

func (q *line) wakeLocked(whatever bool) {
	if q == nil || q.freed == nil || !whatever && q.last != nil && !q.last.soon() {
		return
	}
	close(q.freed)
	q.freed, q.last = nil, nil
}

// Rest waits for d, or until woken.
func Rest(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool, err error) {
	if d <= 0 {
		return false, nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false, nil
	case <-wake:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
