// Package line queues the callers of this process that wait for the same key, first come, first served.
// It decides when a caller may ask for units, and wakes callers when units become free. How units are
// asked for is up to each caller: see [Lines.Wait].
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
	// maxAsking bounds how many callers of one line have their turn at the same time. Their calls can
	// usually share one round trip.
	maxAsking = 64

	// If a denial is Held, units may be given back at any time, also by other processes. The first caller of
	// the line therefore asks again after a pause. The first pause of a line is about firstPoll. Each
	// further pause is 1.5 times as long as the one before, up to lastPoll, even if another caller is the
	// first by then. With many lines, the pauses are longer, so that the first callers of all lines together
	// ask at most about once per pollGap.
	firstPoll, lastPoll, pollGap = 10 * time.Millisecond, 50 * time.Millisecond, time.Millisecond

	// If callers of this process have passed on slots to each other for turnTime, the next caller that is
	// woken pauses for about half of lastPoll, so that other processes get slots too.
	turnTime = 500 * time.Millisecond

	// never is the RetryAfter of a request that costs more than the limit that denied it can ever admit. A
	// line sees it only while Redis is unavailable and this process enforces its share of the limit.
	never time.Duration = math.MaxInt64
)

// A Caller is a request that waits for its turn.
type Caller struct {
	Key string
	// BanOnly means that the limits count nothing, so that the caller waits only for the end of a ban. The
	// callers with BanOnly that wait for one key have a line of their own, because they need not wait for
	// callers that want units.
	BanOnly bool
	Units   int64     // how many units the caller wants
	Until   time.Time // when the caller gives up, if its context has not ended by then; zero means never
	Most    int       // how many places there are for callers with a Most, see join; 0 means that the caller needs no place
}

// A Denial says why units were denied, and when they may be admitted.
type Denial struct {
	Reply      decision.Reply // the reply that denied; this package does not read it
	At         time.Time      // when the reply came
	RetryAfter time.Duration  // after how long the units may be admitted; the longest Duration means never
	Held       bool           // the denial may be over at any time, when somebody gives units back

	// Count, Window and Drains describe how units become free after RetryAfter: Count units in each Window,
	// one by one if Drains is set, and otherwise all at once. A Window of 0 means that this is not known.
	Count  int64
	Window time.Duration
	Drains bool

	units int64         // how many units were denied
	pause time.Duration // how long the caller waits before it asks again, unless it is woken
}

// soon reports whether the denial may be over at any time, because others may give units back, or, after a
// RetryAfter of never, because Redis may become available again.
func (d *Denial) soon() bool { return d.Held || d.RetryAfter == never }

// over returns the earliest instant at which the last caller of a line can be admitted, if the callers
// of the line want the given number of units together.
func (d *Denial) over(units int64) time.Time {
	over := d.At.Add(d.RetryAfter)
	if d.Window == 0 || d.Count == 0 {
		return over
	}
	windows := float64(units-d.units) / float64(d.Count)
	if !d.Drains {
		windows = float64((units - 1) / d.Count)
	}
	return over.Add(time.Duration(min(windows*float64(d.Window), 1e18)))
}

// A RefusalError is the error of a caller whose wait would be too long or has been too long. It is also the
// error of a caller that came when too many callers were waiting. It wraps [context.DeadlineExceeded].
type RefusalError struct {
	Wait   time.Duration // how much longer the wait would be; 0 if that is not known
	Last   *Denial       // the last denial in the line, or nil
	Waited bool          // whether the caller has waited
}

func (r *RefusalError) Error() string {
	if r.Last != nil && r.Last.Held {
		return fmt.Sprintf("redislimit: units or slots that other callers hold were not given back in time (end each Permit and each Reservation, "+
			"and close the body of each response): %v", context.DeadlineExceeded)
	}
	return fmt.Sprintf("redislimit: the call would have to wait %v: %v", r.Wait, context.DeadlineExceeded)
}

// Unwrap returns context.DeadlineExceeded.
func (r *RefusalError) Unwrap() error { return context.DeadlineExceeded }

// Lines has a line for each key that somebody waits for, and a second one if somebody waits only for the
// end of a ban of the key. The zero Lines is ready to use. It is safe for concurrent use.
type Lines struct {
	count atomic.Int64 // how many lines there are; read without the lock, so that a limiter for which nobody waits pays little
	// mu guards the fields below and all lines and waiters. It is not held while a caller asks for units.
	mu      sync.Mutex
	byKey   map[name]*line
	bounded int // how many waiters have a Most
}

// A name identifies a line.
type name struct {
	key     string
	banOnly bool
}

// A line has the callers that wait for one key, in the order in which they came. The first caller has
// its turn: it may ask for units. A caller behind it also has its turn if, after the last admission, enough
// units remained for that caller and for all before it.
type line struct {
	waiters []*waiter
	units   int64         // how many units all waiters want together
	last    *Denial       // the last denial of a first waiter; nil if there was none, or if it may no longer apply
	freed   chan struct{} // closed when units become free in this process; see asking and wakeLocked
	poll    time.Duration // the last pause between two attempts, before jitter; 0 if there was none
	kept    time.Time     // since when callers of this process pass on slots to each other; zero at first and after each turnTime
}

// A waiter is a Caller in a line.
type waiter struct {
	Caller

	line    *line
	hasTurn bool          // whether the waiter has its turn
	turn    chan struct{} // receives an element when the waiter gets its turn
	waited  bool          // whether the waiter has waited, for its turn or before asking again; used by its own goroutine alone
}

func (c *Caller) name() name { return name{c.Key, c.BanOnly} }

// timeLeft returns how much longer w may wait. It is negative if w has waited for too long.
func (w *waiter) timeLeft() time.Duration {
	if w.Until.IsZero() {
		return never
	}
	return time.Until(w.Until)
}

// Anyone reports whether a caller waits for units of key.
func (ls *Lines) Anyone(key string) bool {
	if ls.count.Load() == 0 {
		return false
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byKey[name{key: key}] != nil
}

// Wait waits until it is the turn of c, and then calls decide. After a denial it pauses, or waits for its turn
// again if c is not the first of its line, and calls decide again. It does so until decide admits c or fails,
// ctx ends, or c would have to wait for too long. Wait returns nil if c was admitted, and otherwise the error
// of decide, the error of ctx, or a [RefusalError].
//
// decide returns the denial, or nil and the number of units that remain. No lock is held while decide is
// called. When Wait pauses after a denial, it first calls beforePause with the length of the pause.
func (ls *Lines) Wait(ctx context.Context, c Caller, beforePause func(context.Context, time.Duration),
	decide func() (denial *Denial, remaining int64, err error),
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
		denial, remaining, err := decide()
		if err != nil {
			return err
		}
		if denial == nil {
			admitted, left = true, remaining
			return nil
		}
		if first = ls.denied(w, denial); !first {
			continue // another caller is the first of the line: w waits for its turn again
		}
		if !denial.soon() && denial.RetryAfter > w.timeLeft() {
			return &RefusalError{Wait: denial.RetryAfter, Last: denial, Waited: w.waited}
		}
		beforePause(ctx, denial.pause)
		if err := ls.rest(ctx, w, denial, freed); err != nil {
			return err
		}
	}
}

// rest makes w, the first waiter of its line, pause after the given denial. The pause ends early when freed
// is closed. rest returns nil if w should ask again.
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

// join appends w to the line of its key; w must later leave the line. join refuses w if w would certainly
// wait for too long, or if w has a Most and too many callers wait.
//
// Most is the number of places in all lines together. Each waiter with a Most takes one. Too many callers
// wait if the line of w has at least as many waiters as there are places left. The callers of one line can
// therefore take at most half of the places, rounded up.
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

// turnsLocked gives the first waiter its turn, and after it one waiter after the other, until too few of
// the remaining units are left for the next waiter, or maxAsking waiters have their turn. The first waiter
// gets its turn whatever remains.
func (q *line) turnsLocked(remaining int64) {
	for i, w := range q.waiters[:min(len(q.waiters), maxAsking)] {
		if i > 0 && w.Units > remaining {
			return
		}
		remaining -= w.Units
		if !w.hasTurn {
			w.hasTurn = true
			w.turn <- struct{}{}
		}
	}
}

// leave removes w from its line, and gives the next waiters their turn. If w was admitted, remaining is how
// many units remained after that; otherwise it is 0.
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
		q.last = nil // another waiter may want fewer units
	}
	q.turnsLocked(remaining)
}

// asking returns a channel that is closed when units of the key become free in this process. It must be
// called before asking for units, so that no release is missed.
func (ls *Lines) asking(w *waiter) <-chan struct{} {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if w.line.freed == nil {
		w.line.freed = make(chan struct{})
	}
	return w.line.freed
}

// denied records that w was denied, and reports whether w is the first of its line. The first waiter asks
// again after d.pause, which denied sets. Any other waiter loses its turn, and its denial is not kept.
func (ls *Lines) denied(w *waiter, d *Denial) (first bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	q := w.line
	if q.waiters[0] != w {
		w.hasTurn = false
		return false
	}
	d.units, d.pause = w.Units, d.RetryAfter
	q.last = d
	switch {
	case d.Held:
		q.poll = min(max(firstPoll, q.poll*3/2), lastPoll)
		d.pause = max(jittered(q.poll), time.Duration(ls.count.Load())*pollGap)
	case d.RetryAfter == never: // the request exceeds this process's share of the limit while Redis is unavailable
		d.pause = time.Second
	}
	return true
}

// late returns the error of w, which has waited for as long as it may.
func (ls *Lines) late(w *waiter) *RefusalError {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	r := &RefusalError{Last: w.line.last, Waited: true}
	if r.Last != nil && !r.Last.soon() {
		r.Wait = time.Until(r.Last.over(w.line.units))
	}
	return r
}

// woken is called when w, the first waiter of its line, was woken because units may be free. It returns how
// long w must leave these units to other processes. That is 0, except at most once per turnTime. Without
// this pause, other processes could get nothing while callers wait in this one.
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

// jittered returns a random duration between half of d and one and a half times d.
func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// Free wakes the first caller that waits for units of key, because units may have become free. It does
// nothing if the last denial says that units become free only as time passes.
func (ls *Lines) Free(key string) { ls.wake(key, false) }

// Forget wakes the first caller that waits for units of key, whatever the last denial says, and the first
// caller that waits only for the end of a ban of key. It is called when the key is reset, or a ban of the key
// is begun, changed or ended by hand.
func (ls *Lines) Forget(key string) { ls.wake(key, true) }

// wake implements Free and Forget. always is set for Forget: wake then ignores the last denial.
func (ls *Lines) wake(key string, always bool) {
	if ls.count.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.byKey[name{key: key}].wakeLocked(always)
	if always {
		ls.byKey[name{key: key, banOnly: true}].wakeLocked(always)
	}
}

// wakeLocked wakes the first waiter of q, unless the last denial says that units become free only as time
// passes. If always is set, it ignores the last denial. q may be nil.
func (q *line) wakeLocked(always bool) {
	if q == nil || q.freed == nil || !always && q.last != nil && !q.last.soon() {
		return
	}
	close(q.freed)
	q.freed, q.last = nil, nil
}

// Rest waits for d. It returns early if the channel wake is closed or has an element; woken is then true. It
// also returns early, with the error of ctx, if ctx ends. wake may be nil. If d is not positive, Rest returns
// at once, without an error even if ctx has ended.
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
