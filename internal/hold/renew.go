package hold

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// Events are called when something happens to slots, or a Hold is cancelled. No lock is held.
type Events struct {
	Slots func(h *Hold, n int64) // this process holds n more; negative: fewer
	Freed func(h *Hold)          // others may have the slots
	Lost  func(h *Hold)

	Canceled func(h *Hold) // its units are given back
}

// idleLook is when a Renewer looks again at the latest.
const idleLook = time.Hour

// A Renewer renews the Holds of a limiter, and ends them. It has a timer while there is something
// to renew, and no goroutine that waits.
type Renewer struct {
	events      Events
	now         func() time.Time
	onlyCallers bool // renew, by Look and All; no timer does

	looking sync.Mutex // held by Look if onlyCallers: the next call sees what this one has renewed

	mu     sync.Mutex
	kept   map[*Hold]struct{}
	every  time.Duration // how often it looks for Holds to renew; 0 while there are none
	timer  *time.Timer
	closed bool
}

// NewRenewer returns a Renewer that reads the time from now. If onlyCallers is set, it has no timer,
// and renews only what is due when somebody calls Look or All: timers would run by another clock.
func NewRenewer(events Events, now func() time.Time, onlyCallers bool) *Renewer {
	return &Renewer{events: events, now: now, onlyCallers: onlyCallers, kept: make(map[*Hold]struct{})}
}

// Add has the slots of h renewed until it ends. Units that h has reserved from a lease get a hold
// of their own before the lease ends.
func (w *Renewer) Add(h *Hold) {
	if h.slots {
		w.events.Slots(h, h.N)
	}
	if h.Reserved {
		h.heard = w.now()
	}
	if h.slots || h.lease != nil && h.Reserved {
		w.add(h)
	}
}

// Keep has the reserved units of h renewed until it ends.
func (w *Renewer) Keep(h *Hold) {
	h.mu.Lock()
	h.keep = true
	h.mu.Unlock()
	w.add(h)
}

func (w *Renewer) add(h *Hold) {
	h.mu.Lock()
	every := h.lastsLocked() / 12
	h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.kept[h] = struct{}{}
	if w.every != 0 && every >= w.every {
		return
	}
	w.every = every
	switch {
	case w.onlyCallers:
	case w.timer == nil:
		w.timer = time.AfterFunc(every, w.Look)
	default:
		w.timer.Reset(every)
	}
}

// Close ends all renewals: what is held expires.
func (w *Renewer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *Renewer) forget(h *Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, h)
}

// A Background runs what Redis is to be asked in the background. It reports false, and runs
// nothing, if it cannot.
type Background func(send func() error) bool

// End ends h, whose work cost actual units: they are charged in place of what is held, and slots
// are free. Only the first call does something. It waits for a renewal in flight that gives h other
// handles. ctx bounds only the waiting; with later, which may be nil, there is none.
func (w *Renewer) End(ctx context.Context, h *Hold, actual int64, later Background) error {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return nil
	}
	h.ended = true
	inLease, slots, renewing := h.endInLeaseLocked(actual), h.slots, h.renewing
	h.onLost = nil
	if getsHandles := h.keep || h.lease != nil || h.SlotsMove; inLease || !getsHandles {
		renewing = nil
	}
	h.mu.Unlock()
	w.forget(h)
	if slots {
		w.events.Slots(h, -h.N)
	}
	if actual == 0 && h.N > 0 {
		w.events.Canceled(h)
	}
	switch {
	case inLease:
		return nil
	case later != nil && later(func() error { return w.sendAfter(ctx, renewing, h, actual) }):
		return nil
	case renewing == nil:
		return w.send(ctx, h, actual)
	}
	return batch.Beside(ctx, func() error { return w.sendAfter(ctx, renewing, h, actual) }, nil)
}

// sendAfter ends what h has after a renewal that is in flight, if there is one, whatever becomes of
// ctx.
func (w *Renewer) sendAfter(ctx context.Context, renewing chan struct{}, h *Hold, actual int64) error {
	if renewing != nil {
		<-renewing // it takes the Timeout at most
	}
	return w.send(context.WithoutCancel(ctx), h, actual)
}

// send ends what h has.
func (w *Renewer) send(ctx context.Context, h *Hold, actual int64) error {
	now := w.now()
	h.mu.Lock()
	e, ok := h.endingLocked(now, actual)
	hadSlots, handlesLost := h.slots, h.handlesLost
	h.slots = false
	h.mu.Unlock()
	if hadSlots {
		e.Freed = func() { w.events.Freed(h) }
	}
	var err error
	if ok {
		err = h.Keeper.End(ctx, e)
	}
	if !handlesLost || actual <= h.N {
		return err
	}
	// What is held is charged when it expires: only what exceeds it is left to charge.
	return h.Keeper.End(ctx, Ending{
		Set: h.Set, Key: h.Key, Op: algorithm.OpSettle, Actual: actual - h.N, Handles: make([]algorithm.Handle, len(h.Set.Members)),
	})
}

// Drop stops the renewals of h, which nobody can end any more. It reports whether there were any.
func (w *Renewer) Drop(h *Hold) bool {
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return false
	}
	slots, renewed := h.slots, h.slots || h.renewsUnitsLocked()
	h.slots, h.keep, h.lease, h.onLost = false, false, nil, nil
	h.mu.Unlock()
	w.forget(h)
	if slots {
		w.events.Slots(h, -h.N)
	}
	return renewed
}

// lose notes that the slots of h are lost: others may have them.
func (w *Renewer) lose(h *Hold) {
	h.mu.Lock()
	had, onLost := h.slots && !h.ended, h.onLost
	h.slots, h.onLost = false, nil
	h.slotsLost = h.slotsLost || had
	h.mu.Unlock()
	if !had {
		return
	}
	w.events.Slots(h, -h.N)
	w.events.Lost(h)
	for _, f := range onLost {
		f()
	}
}

// Look renews each Hold between a fourth and a third of its time after the last renewal, and
// notices when slots are lost.
func (w *Renewer) Look() {
	if w.onlyCallers {
		w.loseAll(w.lookDriven())
		return
	}
	due, lost := w.due(w.now())
	w.loseAll(lost)
	if len(due) > 0 {
		go func() { w.loseAll(w.renew(due)) }() // Redis may be slow, and slots be lost meanwhile
	}
}

// lookDriven renews what is due, and returns the Holds whose slots are lost: an observer that is
// told of them may look itself.
func (w *Renewer) lookDriven() (lost []*Hold) {
	w.looking.Lock()
	defer w.looking.Unlock()
	due, _ := w.due(w.now())
	return w.renew(due)
}

func (w *Renewer) loseAll(lost []*Hold) {
	for _, h := range lost {
		w.lose(h)
	}
}

// due returns the Holds that are to be renewed at now, and those whose slots are lost. It sets the
// timer for when to look again.
func (w *Renewer) due(now time.Time) (due []*Renewal, lost []*Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := idleLook
	w.every = 0
	for h := range w.kept {
		h.mu.Lock()
		left := h.Set.SlotTTL - now.Sub(h.asked)
		switch {
		case !h.slots && !h.renewsUnitsLocked():
			delete(w.kept, h)
			h.mu.Unlock()
			continue
		case h.slots && left <= 0 && !w.onlyCallers: // by a clock of its own it is renewed late instead
			lost = append(lost, h)
		case !h.queued && now.Sub(h.begun) >= h.lastsLocked()/4:
			due = append(due, w.queueLocked(h))
		}
		if every := h.lastsLocked() / 12; w.every == 0 || every < w.every {
			w.every = every
		}
		if h.slots && left > 0 {
			next = min(next, left)
		}
		h.mu.Unlock()
	}
	if w.every > 0 && !w.closed && !w.onlyCallers {
		w.timer.Reset(min(next, w.every))
	}
	return due, lost
}

// All renews all Holds at once.
func (w *Renewer) All() {
	var due []*Renewal
	w.mu.Lock()
	for h := range w.kept {
		h.mu.Lock()
		if !h.queued {
			due = append(due, w.queueLocked(h))
		}
		h.mu.Unlock()
	}
	w.mu.Unlock()
	w.loseAll(w.renew(due))
}

// queueLocked returns the Renewal of h, which is about to begin. The lock is that of h.
func (w *Renewer) queueLocked(h *Hold) *Renewal {
	h.queued = true
	return &Renewal{Hold: h, renewer: w, expires: h.asked.Add(h.lastsLocked())}
}

// renew makes renewals, those with the least time left first: Redis may be far. If only callers renew, it
// returns the Holds whose slots are lost; else they are told as soon as it is known.
func (w *Renewer) renew(due []*Renewal) (lost []*Hold) {
	slices.SortFunc(due, func(a, b *Renewal) int { return cmp.Or(a.expires.Compare(b.expires), a.heard.Compare(b.heard)) })
	byKeeper := make(map[Keeper][]*Renewal)
	for _, r := range due {
		byKeeper[r.Keeper] = append(byKeeper[r.Keeper], r)
	}
	for keeper, renewals := range byKeeper {
		keeper.Renew(renewals)
		for _, r := range renewals {
			if r.lost {
				lost = append(lost, r.Hold)
			}
		}
	}
	for _, r := range due {
		r.mu.Lock()
		r.queued = false
		r.mu.Unlock()
	}
	return lost
}

// A Renewal is that of one Hold.
type Renewal struct {
	*Hold

	renewer *Renewer
	expires time.Time // what is renewed
	sent    []algorithm.Handle
	lost    bool // its slots, of which nobody was told yet
}

// Begin is called when the Renewal is about to be sent. It returns the handles to renew; nil if it
// need not be.
func (r *Renewal) Begin() []algorithm.Handle {
	r.sent = r.begin(r.renewer.now())
	return slices.Clone(r.sent) // the new ones are written into it
}

// End is called after a Begin that returned handles, with those that the Hold has from now on (a
// limit whose hold has ended keeps its handle, one whose slots are lost has the zero Handle); or
// with an error if they are not known; or with neither if nothing was renewed.
func (r *Renewal) End(handles []algorithm.Handle, err error) {
	r.lost = r.renewed(r.sent, handles, r.renewer.now(), err)
	if r.lost && !r.renewer.onlyCallers {
		r.lost = false
		r.renewer.lose(r.Hold)
	}
}
