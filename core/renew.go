package core

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
	"github.com/redislimit/redislimit/internal/hook"
	"github.com/redislimit/redislimit/internal/server"
)

// A reservation is what is held for a Result: the slots of its limits, and if it was
// reserved the units of the others.
type reservation struct {
	claims   claim.Set // copies of the Result refer to it
	limits   *limitSet
	source   Source
	reserved bool // by Reserve; else what is no slot is charged

	mu       sync.Mutex
	refs     []algorithm.Ref // by what each limit finds what is held or charged
	lease    *lease          // whose units it has, until they are held by themselves; or nil
	slots    bool            // it has slots
	keep     bool            // all that is held is renewed, and not only slots
	ended    bool            // it is settled or refunded, and not renewed any more
	unknown  bool            // a renewal failed: by what units that are no slots are found is not known
	lost     bool            // its slots were lost
	onLost   []func()        // called when they are
	held     time.Time       // before the call was sent by which it is held
	begun    time.Time       // when the last renewal was
	queued   bool            // a renewal is about to begin, or is in flight
	renewing chan struct{}   // closed when the renewal in flight has ended; nil if there is none
}

func newReservation(owner uint64, limits *limitSet, source Source, op algorithm.Op) *reservation {
	now := time.Now()
	return &reservation{
		claims: claim.Set{Owner: owner}, limits: limits, source: source, reserved: op == algorithm.OpReserve,
		refs: make([]algorithm.Ref, len(limits.members)), slots: limits.slots, held: now, begun: now,
	}
}

// receipt returns that of a Result for which n units are held.
func (r *reservation) receipt(key string, n int64) receipt {
	return receipt{limits: r.limits, claim: r.claims.Only(), key: key, n: n, held: r}
}

// find returns by what each limit finds its slots, and what it charged or holds besides
// if others is set. The others have the zero Ref.
func (r *reservation) find(others bool) []algorithm.Ref {
	refs := slices.Clone(r.refs)
	for i, m := range r.limits.members {
		if m.Slots && !r.slots || !m.Slots && !others {
			refs[i] = algorithm.Ref{}
		}
	}
	return refs
}

// renewsUnits reports whether units that are no slots are renewed.
func (r *reservation) renewsUnits() bool {
	return (r.keep || r.lease != nil) && !r.unknown && !r.ended
}

// hold returns for how long what is renewed is held.
func (r *reservation) hold() time.Duration {
	switch {
	case r.lease != nil:
		return r.lease.lasts
	case r.keep:
		return r.limits.shortestHold
	default:
		return r.limits.slotHold
	}
}

// begin begins a renewal. It returns by what is found what is to be renewed, or nil if
// nothing is.
func (r *reservation) begin() []algorithm.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.slots && !r.renewsUnits() {
		return nil
	}
	r.renewing = make(chan struct{})
	r.begun = time.Now()
	return r.find(r.renewsUnits())
}

// renewed ends a renewal of what was found by sent, and is found by refs from now on
// unless err is set; neither is if it was not sent. It reports whether slots were lost.
func (r *reservation) renewed(sent, refs []algorithm.Ref, err error) (lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.unknown, r.lease = r.keep || r.lease != nil, nil // slots are found as before
	case refs != nil:
		r.held, r.lease = r.begun, nil
		for i, m := range r.limits.members {
			switch {
			case sent[i] == algorithm.Ref{}: // it was not renewed
			case m.Slots && refs[i] == algorithm.Ref{}:
				lost = r.slots
			default:
				r.refs[i] = refs[i]
			}
		}
	}
	close(r.renewing)
	r.renewing = nil
	return lost
}

// settleInLease ends the reservation of n units, of which actual were spent, if they are of a
// lease that has not ended, and are not on their way to a hold of their own. It reports
// whether it did.
func (r *reservation) settleInLease(n, actual int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil || r.renewing != nil || actual > n || !r.lease.settle(n, actual) {
		return false
	}
	r.ended = true
	return true
}

// wait waits for a renewal in flight, where it decides by what is found what it renews:
// in Redis slots are found by the same after it. It unlocks r meanwhile.
func (r *reservation) wait(ctx context.Context, others bool) error {
	renewing := r.renewing
	if renewing == nil || r.source == SourceRedis && !others {
		return nil
	}
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-renewing: // it takes the Timeout at most
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the renewals. It returns by what each limit finds what is held or charged,
// and whether there still are slots. known is false if it is not known by what units that
// are no slots are found.
func (r *reservation) end(ctx context.Context) (refs []algorithm.Ref, slots, known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	err = r.wait(ctx, r.keep)
	refs, known = r.find(true), !r.unknown
	slots, r.slots, r.onLost = r.slots, false, nil
	return refs, slots, known, err
}

// KeepHeld keeps what [Limiter.Reserve] holds for r from expiring, until r is settled or
// the Limiter is closed: it is held anew every third of its hold, in the background.
// It is for work that may take longer than the hold; the middleware calls it. If
// Redis does not answer meanwhile, the hold expires and is charged. Slots of [InFlight]
// are renewed without it.
func (l *Limiter) KeepHeld(r Result) {
	held := r.receipt.held
	if held == nil || !held.reserved || r.receipt.claim.Owner() != l.id || r.receipt.n == 0 {
		return
	}
	held.mu.Lock()
	held.keep = true
	held.mu.Unlock()
	l.renewer.add(l.family, kept{held, r.receipt.key, r.receipt.n})
}

// A kept is a reservation that is renewed.
type kept struct {
	*reservation
	key string
	n   int64
}

// A renewer renews the reservations of a Limiter. It has a timer while there are any, and
// no goroutine that waits.
type renewer struct {
	mu     sync.Mutex
	kept   map[*reservation]kept
	every  time.Duration // how often it looks for reservations to renew; 0 while there are none
	timer  *time.Timer
	closed bool
}

func (w *renewer) add(f *family, k kept) {
	k.mu.Lock()
	every := k.hold() / 12
	k.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	if w.kept == nil {
		w.kept = make(map[*reservation]kept)
		w.timer = time.AfterFunc(every, func() { w.look(f) })
	}
	w.kept[k.reservation] = k
	if w.every == 0 || every < w.every {
		w.every = every
		w.timer.Reset(every)
	}
}

func (w *renewer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// forget removes r, of which nothing is held any more.
func (w *renewer) forget(r *reservation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, r)
}

// look renews every reservation between a fourth and a third of its hold after the last
// time, and notices when slots are lost.
func (w *renewer) look(f *family) {
	due, lost := w.due(time.Now())
	for _, k := range lost {
		f.loseSlots(k)
	}
	if len(due) > 0 {
		go f.renew(due) // Redis may be slow, and slots be lost meanwhile
	}
}

// due returns the reservations that are to be renewed at now, and those whose slots are
// lost. It sets the timer for when to look again.
func (w *renewer) due(now time.Time) (due, lost []kept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := maxHold
	w.every = 0
	for r, k := range w.kept {
		r.mu.Lock()
		left := r.limits.slotHold - now.Sub(r.held)
		switch {
		case !r.slots && !r.renewsUnits():
			delete(w.kept, r)
			r.mu.Unlock()
			continue
		case r.slots && left <= 0:
			lost = append(lost, k)
		case !r.queued && now.Sub(r.begun) >= r.hold()/4:
			r.queued = true
			due = append(due, k)
		}
		if every := r.hold() / 12; w.every == 0 || every < w.every {
			w.every = every
		}
		if r.slots && left > 0 {
			next = min(next, left)
		}
		r.mu.Unlock()
	}
	if w.every > 0 && !w.closed {
		w.timer.Reset(min(next, w.every))
	}
	return due, lost
}

// renew renews reservations, each once.
func (f *family) renew(due []kept) {
	inRedis := make(map[*server.Store][]*server.Renewal)
	for _, k := range due {
		var sent []algorithm.Ref
		begin := func() []algorithm.Ref {
			sent = k.begin()
			return sent
		}
		end := func(refs []algorithm.Ref, err error) {
			if k.renewed(sent, refs, err) {
				f.loseSlots(k)
			}
		}
		if local := f.localStore(k.source); local == nil {
			store := f.storeOf(k.limits)
			inRedis[store] = append(inRedis[store], &server.Renewal{Limits: k.limits.server, Key: k.key, N: k.n, Begin: begin, End: end})
		} else if refs := begin(); refs != nil {
			end(local.Renew(k.limits.memory, k.key, k.n, refs), nil)
		}
	}
	for store, renewals := range inRedis {
		store.RenewAll(context.Background(), renewals)
	}
	for _, k := range due {
		k.mu.Lock()
		k.queued = false
		k.mu.Unlock()
	}
}

// The module's own suites have clocks of their own, and so say when to renew.
var _ = hook.SetRenew(func(limiter any) {
	l, ok := limiter.(*Limiter)
	if !ok {
		panic(fmt.Sprintf("core: a %T is no Limiter", limiter))
	}
	l.renewer.mu.Lock()
	due := slices.Collect(maps.Values(l.renewer.kept))
	l.renewer.mu.Unlock()
	l.renew(due)
})
