package core

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/limits"
)

const (
	// maxAsking bounds how many of a line ask at the same time: more would share no round trip.
	maxAsking = 64

	// A denial that may be over at any time is asked about again after firstPoll, and each time
	// after half as long again, up to lastPoll. All lines of a Limiter together poll once in
	// pollGap at most.
	firstPoll, lastPoll, pollGap = 10 * time.Millisecond, 50 * time.Millisecond, time.Millisecond

	// A process whose line has passed on slots for turnTime leaves them to others for half a
	// lastPoll.
	turnTime = 500 * time.Millisecond
)

// waitLines are the callers that wait in a Limiter, in a line for each key.
type waitLines struct {
	count   atomic.Int64 // of lines, to be read without the lock
	mu      sync.Mutex
	byKey   map[string]*waitLine
	bounded int // waiters whose number is bounded
}

// A waitLine is the callers that wait for one key, in the order in which they came. The first has
// its turn, and others that may be admitted with it.
type waitLine struct {
	waiters []*waiter
	units   int64 // that they want, all together
	last    *lastDenial
	freed   chan struct{} // closed when units are free in this process; nil if nobody awaits that
	poll    time.Duration // the last pause between two polls
	kept    time.Time     // since when this process passes on its slots; zero if it does not
}

// A waiter is a caller in a line.
type waiter struct {
	line  *waitLine
	key   string
	n     int64
	until time.Time // when it is of no use any more; zero: never
	most  int       // of such that may wait; 0: any number

	asks   bool          // it has its turn
	turn   chan struct{} // has an element when it gets it
	waited bool          // for its turn, or to ask again
}

// timeLeft returns for how long w may wait on.
func (w *waiter) timeLeft() time.Duration {
	if w.until.IsZero() {
		return Never
	}
	return time.Until(w.until)
}

// A lastDenial is that of the first in a line.
type lastDenial struct {
	Result

	by    *limits.Set
	at    time.Time
	n     int64         // what was denied
	pause time.Duration // after which it is asked again
}

// soon reports whether it may be over at any time.
func (d *lastDenial) soon() bool { return d.held || d.RetryAfter == Never }

// admittedAt returns when the line is admitted that wants so many units, at the soonest. A bucket
// has them one by one, and a window its limit at once.
func (d *lastDenial) admittedAt(units int64) time.Time {
	over := d.at.Add(d.RetryAfter)
	i := max(0, slices.Index(d.by.Names, d.Name))
	if d.Window == 0 || d.Limit == 0 || d.Banned {
		return over
	}
	windows := float64(units-d.n) / float64(d.Limit)
	if !d.by.Members[i].Debt {
		windows = float64((units - 1) / d.Limit)
	}
	return over.Add(time.Duration(min(windows*float64(d.Window), 1e18)))
}

// anyone reports whether somebody waits for key.
func (ls *waitLines) anyone(key string) bool {
	if ls.count.Load() == 0 {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[key] != nil
}

// join has w wait in the line of its key, at its end; w must leave. It does not if that is of no
// use, or if there are too many: a key takes no more places than are left for all others.
func (ls *waitLines) join(w *waiter) *refusal {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := ls.byKey[w.key]
	if q == nil {
		q = &waitLine{}
	}
	now := time.Now()
	if q.last != nil && !q.last.soon() && !w.until.IsZero() {
		if over := q.last.admittedAt(q.units + w.n); over.After(w.until) {
			return &refusal{wait: over.Sub(now), last: q.last}
		}
	}
	if w.most > 0 && len(q.waiters) >= w.most-ls.bounded {
		return &refusal{last: q.last}
	}
	if len(q.waiters) == 0 {
		ls.byKey[w.key] = q
		ls.count.Add(1)
	}
	if w.most > 0 {
		ls.bounded++
	}
	w.line, w.turn, w.waited = q, make(chan struct{}, 1), len(q.waiters) > 0
	q.waiters = append(q.waiters, w)
	q.units += w.n
	q.turnsLocked(0)
	return nil
}

// turnsLocked gives the first its turn, and those after it that what remains admits as well.
func (q *waitLine) turnsLocked(remaining int64) {
	for i, w := range q.waiters[:min(len(q.waiters), maxAsking)] {
		if i > 0 && w.n > remaining {
			return
		}
		remaining -= w.n
		if !w.asks {
			w.asks = true
			w.turn <- struct{}{}
		}
	}
}

// leave takes w out of its line. If it was admitted, so much remains.
func (ls *waitLines) leave(w *waiter, admitted bool, remaining int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.most > 0 {
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
	q.units -= w.n
	switch {
	case len(q.waiters) == 0:
		delete(ls.byKey, w.key)
		ls.count.Add(-1)
		return
	case i == 0 && !admitted:
		q.last = nil // another may want less
	}
	q.turnsLocked(remaining)
}

// asking returns what is closed when units of the key are freed in this process from now on.
func (ls *waitLines) asking(w *waiter) <-chan struct{} {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.line.freed == nil {
		w.line.freed = make(chan struct{})
	}
	return w.line.freed
}

// denied notes that w was. It reports whether w is the first, which asks again after a pause.
func (ls *waitLines) denied(w *waiter, res *Result, by *limits.Set) (d *lastDenial, first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := w.line
	if q.waiters[0] != w {
		w.asks = false
		return nil, false
	}
	q.last = &lastDenial{Result: *res, by: by, at: time.Now(), n: w.n, pause: res.RetryAfter}
	switch {
	case res.held:
		q.poll = min(max(firstPoll, q.poll*3/2), lastPoll)
		q.last.pause = max(jittered(q.poll), time.Duration(ls.count.Load())*pollGap)
	case res.RetryAfter == Never: // it is above this process's share of the limit, while Redis is away
		q.last.pause = time.Second
	}
	return q.last, true
}

// late returns the refusal of w, whose time is over.
func (ls *waitLines) late(w *waiter) *refusal {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := &refusal{last: w.line.last, waited: true}
	if r.last != nil && !r.last.soon() {
		r.wait = time.Until(r.last.admittedAt(w.line.units))
	}
	return r
}

// woken returns for how long the first of a line that was woken leaves what is free to other
// processes. Else these would get nothing for as long as somebody waits in this one.
func (ls *waitLines) woken(w *waiter) time.Duration {
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

// free wakes the first that waits for key, whose denial may be over.
func (ls *waitLines) free(key string) { ls.wake(key, false) }

// forget does so whatever the denial says.
func (ls *waitLines) forget(key string) { ls.wake(key, true) }

func (ls *waitLines) wake(key string, whatever bool) {
	if ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := ls.byKey[key]
	if q == nil || q.freed == nil || !whatever && q.last != nil && !q.last.soon() {
		return
	}
	close(q.freed)
	q.freed, q.last = nil, nil
}

// A refusal is the error of who would wait for too long, or of one too many.
type refusal struct {
	wait   time.Duration // that it would, as far as it is known
	last   *lastDenial   // by which that is known, or nil
	waited bool          // already
	took   time.Duration // the decision, if it was the caller's own
}

func (r *refusal) Error() string {
	if r.last != nil && r.last.held {
		return fmt.Sprintf("redislimit: what others hold was not given back in time (each Reservation is to be ended, "+
			"and the body of each response to be closed): %v", context.DeadlineExceeded)
	}
	return fmt.Sprintf("redislimit: %v to wait: %v", r.wait, context.DeadlineExceeded)
}

func (r *refusal) Unwrap() error { return context.DeadlineExceeded }

// rest waits for d, or until woken.
func rest(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool, err error) {
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

// sleep waits for d. It returns an error at once if the deadline comes before.
func sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return &refusal{wait: d}
	}
	_, err := rest(ctx, d, nil)
	return err
}
