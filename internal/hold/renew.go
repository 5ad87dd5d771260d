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

// Events has functions that are called when something happens to a Hold. They are called without a lock.
type Events struct {
	Slots func(h *Hold, n int64) // this process holds n slots more, or -n fewer if n is negative
	Freed func(h *Hold)          // the attempt to free slots has ended, so other callers may be able to take them
	Lost  func(h *Hold)          // slots were lost: they have expired, or may have expired

	Canceled func(h *Hold) // the reservation ended with a cost of 0, although units were admitted
}

// idleCheck is longer than any pause between two checks for Holds that are due: a Hold lasts at most an hour, and
// is checked 12 times in that time.
const idleCheck = time.Hour

// A Renewer renews the Holds of a limiter, and ends them. While there is something to renew, a timer runs,
// unless onlyCallers is set. The Renewer has goroutines only while renewals or endings are in flight.
type Renewer struct {
	events Events
	now    func() time.Time
	// onlyCallers means that there is no timer, and that Holds are renewed only within calls of RenewDue and
	// All.
	onlyCallers bool
	// checking serializes the calls of RenewDue if onlyCallers is set, so that a check for Holds that are due
	// begins after the renewals of the previous check have ended.
	checking sync.Mutex

	// mu guards the fields below. It is locked before the mu of a Hold.
	mu     sync.Mutex
	kept   map[*Hold]struct{} // the Holds that may have to be renewed
	every  time.Duration      // the longest time until the next check for Holds that are due; 0 if nothing has to be renewed
	timer  *time.Timer
	closed bool
}

// NewRenewer returns a Renewer that reads the time from now. If onlyCallers is set, the Renewer has no timer,
// and renews only when somebody calls RenewDue or All. This is for a now that is not the clock of this process,
// by which timers run.
func NewRenewer(events Events, now func() time.Time, onlyCallers bool) *Renewer {
	return &Renewer{events: events, now: now, onlyCallers: onlyCallers, kept: make(map[*Hold]struct{})}
}

// Add must be called once for each Hold, after its units were admitted and before other goroutines use it. It makes
// w renew the slots of h until h ends or the slots are lost. If h has reserved units from a lease, w renews them
// once, before the lease ends. That renewal gives the units a hold of their own.
func (w *Renewer) Add(h *Hold) {
	if h.slots {
		w.events.Slots(h, h.N)
	}
	if h.Reserved && h.lease == nil {
		h.heard = w.now()
	}
	if h.slots || h.lease != nil && h.Reserved {
		w.add(h)
	}
}

// Keep makes w renew the reserved units of h until h ends.
func (w *Renewer) Keep(h *Hold) {
	h.mu.Lock()
	h.keep = true
	h.mu.Unlock()
	w.add(h)
}

// add adds h to the Holds that are renewed, and makes the timer fire earlier if h needs that. It does nothing after
// Close.
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
		w.timer = time.AfterFunc(every, w.RenewDue)
	default:
		w.timer.Reset(every)
	}
}

// Close stops the timer, so that no renewal begins any more by itself. Slots and units of Holds that are not ended
// then expire, unless callers of RenewDue or All still renew them. Holds that are added after Close are not renewed.
func (w *Renewer) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// forget stops the renewals of h.
func (w *Renewer) forget(h *Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, h)
}

// A Background runs send in the background. It returns false, without running send, if it cannot.
type Background func(send func() error) bool

// End ends h, whose work cost actual units: these are charged instead of the held units, and the slots become
// free. Units that are charged already stay charged, unless actual is 0: then they are given back. Only the first
// call for a Hold has an effect, and later calls return nil.
//
// If the units were charged to a lease, or can still be settled in the lease from which they come, nothing is sent.
// Otherwise End sends the ending, if there is anything to end, and waits for the reply. If a renewal is in flight
// that will give h other handles, the ending is sent after the renewal. ctx bounds only how long End waits: if it
// ends before the reply, the Close of the Store waits for the reply. If later is not nil, End first tries to let
// later send the ending in the background. If later returns true, End does not wait at all.
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
	ending := func() error { return w.sendAfter(ctx, renewing, h, actual) }
	if h.Set.Store == nil { // h is in the memory of this process
		return batch.Beside(ctx, ending, nil)
	}
	return h.Set.Store.Beside(ctx, ending)
}

// sendAfter waits until renewing is closed, unless it is nil, and then ends h, even if ctx has ended.
func (w *Renewer) sendAfter(ctx context.Context, renewing chan struct{}, h *Hold, actual int64) error {
	if renewing != nil {
		<-renewing // this takes at most one Timeout of the limiter, unless renewals of a batch are sent again, one by one
	}
	return w.send(context.WithoutCancel(ctx), h, actual)
}

// send makes the Keeper end what h holds or has charged.
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
	// The handles of the held units are not known, so these units are charged when they expire. Only the excess of
	// actual over the held units is charged here.
	excessErr := h.Keeper.End(ctx, Ending{
		Set: h.Set, Key: h.Key, Op: algorithm.OpSettle, Actual: actual - h.N, Handles: make([]algorithm.Handle, len(h.Set.Limits)),
	})
	return cmp.Or(excessErr, err)
}

// Drop stops the renewals of h, because nobody can end h any more: its slots then expire, and its units are charged
// when they expire. Drop reports whether w was renewing h. It does nothing, and returns false, if h has ended.
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

// lose records that the slots of h are lost, so that other callers may have taken them, and notifies the
// observers. If h has ended, lose notifies nobody, and only makes sure that the lost slots are not freed.
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

// RenewDue renews the Holds that are due, and notices lost slots. A Hold is due when a quarter of its time has
// passed since its last renewal, or the call, was sent. The timer calls RenewDue often enough for the renewal to
// begin before a third has passed. RenewDue waits for the renewals only if onlyCallers is set.
func (w *Renewer) RenewDue() {
	if w.onlyCallers {
		w.loseAll(w.renewDriven())
		return
	}
	due, lost := w.due(w.now())
	w.loseAll(lost)
	if len(due) > 0 {
		go func() { w.loseAll(w.renew(due)) }() // in a goroutine: while Redis is slow, the next check must still notice lost slots
	}
}

// renewDriven is RenewDue if onlyCallers is set. It renews the Holds that are due, and returns those whose slots
// are lost. The caller must notify the observers, after checking has been unlocked: an observer may call RenewDue.
func (w *Renewer) renewDriven() (lost []*Hold) {
	w.checking.Lock()
	defer w.checking.Unlock()
	due, _ := w.due(w.now())
	return w.renew(due)
}

// loseAll calls lose for each Hold.
func (w *Renewer) loseAll(lost []*Hold) {
	for _, h := range lost {
		w.lose(h)
	}
}

// due returns a Renewal for each Hold that must be renewed now, and the Holds whose slots have expired. The caller
// must pass the Renewals to renew, and the expired Holds to lose. due also sets the timer for the next check.
func (w *Renewer) due(now time.Time) (due []*Renewal, lost []*Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := idleCheck
	w.every = 0
	for h := range w.kept {
		h.mu.Lock()
		left := h.Set.SlotTTL - now.Sub(h.sentAt)
		switch {
		case !h.slots && !h.renewsUnitsLocked():
			delete(w.kept, h)
			h.mu.Unlock()
			continue
		case h.slots && left <= 0 && !w.onlyCallers: // if only callers renew, these slots are renewed late instead
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

// All renews all Holds now, whether they are due or not, except those for which a renewal is already in flight or
// about to begin. It returns when the renewals have ended.
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

// queueLocked returns a Renewal of h, and records that it is about to begin. h must be locked. The caller must pass
// the Renewal to renew.
func (w *Renewer) queueLocked(h *Hold) *Renewal {
	h.queued = true
	return &Renewal{Hold: h, renewer: w, expires: h.sentAt.Add(h.lastsLocked())}
}

// renew carries out renewals. The renewals with the least time left are sent first, because it takes long until a
// distant Redis has carried out many renewals. If only callers renew, renew returns the Holds whose slots are lost.
// Otherwise it returns none, and the observers are notified of each loss as soon as it is known.
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

// A Renewal is one renewal of a Hold.
type Renewal struct {
	*Hold

	renewer *Renewer
	expires time.Time          // when the first of the units and slots expires
	sent    []algorithm.Handle // the handles that Begin returned
	lost    bool               // whether slots were lost, and the observers have not been notified
}

// Begin must be called immediately before the renewal is sent. It returns the handles that must be renewed,
// or nil if the renewal must not be sent. The caller may change the returned slice.
func (r *Renewal) Begin() []algorithm.Handle {
	r.sent = r.begin(r.renewer.now())
	return slices.Clone(r.sent) // the Keeper writes the new handles into it
}

// End must be called after each Begin that returned handles. There are three cases:
//
//   - If the renewal was carried out, handles has the handles after it, and err is nil. A limit whose hold
//     has ended keeps its handle, and a limit whose slots are lost has the zero Handle.
//   - If it is not known whether the renewal was carried out, err is not nil.
//   - If nothing was renewed, both handles and err are nil.
func (r *Renewal) End(handles []algorithm.Handle, err error) {
	r.lost = r.renewed(r.sent, handles, r.renewer.now(), err)
	if r.lost && !r.renewer.onlyCallers {
		r.lost = false
		r.renewer.lose(r.Hold)
	}
}
