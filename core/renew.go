package core

import (
	"context"
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
	reserved bool // by Reserve; else what is no slot is charged
	key      string
	n        int64
	source   Source

	mu       sync.Mutex
	refs     []algorithm.Ref // by what each limit finds what is held or charged
	slots    bool            // it has slots
	keep     bool            // all that is held is renewed, and not only slots
	lost     bool            // its slots were lost
	ended    bool            // it is settled or refunded, and not renewed any more
	unknown  bool            // a renewal failed: by what the units that are no slots are found is not known
	since    time.Time       // before what was last answered was sent: reserving or renewing
	sent     time.Time       // when the last renewal was begun
	renewing chan struct{}   // closed when the renewal in flight has ended; nil if there is none
	onLost   []func()        // called when the slots are lost
}

func newReservation(owner uint64, limits *limitSet, reserved bool) *reservation {
	now := time.Now()
	return &reservation{
		claims: claim.Set{Owner: owner}, limits: limits, reserved: reserved, slots: limits.slots,
		refs: make([]algorithm.Ref, len(limits.members)), since: now, sent: now,
	}
}

// end ends all renewals. It returns by what each limit finds what is held or charged,
// and whether slots still are. known is false if it is not known by what the units that
// are no slots are found.
func (r *reservation) end() (refs []algorithm.Ref, slots, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	if r.keep || r.source != SourceRedis { // else Redis finds slots whatever becomes of the renewal
		r.wait()
	}
	known = !r.unknown
	refs = r.find(true)
	slots, r.slots, r.onLost = r.slots, false, nil
	return refs, slots, known
}

// wait waits for a renewal in flight. It unlocks r meanwhile.
func (r *reservation) wait() {
	if renewing := r.renewing; renewing != nil {
		r.mu.Unlock()
		<-renewing // it takes the Timeout at most
		r.mu.Lock()
	}
}

// find returns by what each limit finds its slots, and all others what they hold or
// charged if all is set. What is not found has the zero Ref.
func (r *reservation) find(all bool) []algorithm.Ref {
	refs := slices.Clone(r.refs)
	for i, m := range r.limits.members {
		if m.Slots && !r.slots || !m.Slots && !all {
			refs[i] = algorithm.Ref{}
		}
	}
	return refs
}

// hold returns for how long what is renewed is held.
func (r *reservation) hold() time.Duration {
	if r.keep {
		return r.limits.shortestHold
	}
	return r.limits.slotHold
}

// KeepHeld keeps what [Limiter.Reserve] holds for r from expiring, until r is settled or
// the Limiter is closed: it is held anew every third of its hold, in the background.
// It is for work that may take longer than the hold; the middleware calls it. If
// Redis does not answer meanwhile, the hold expires and is charged. Slots of [InFlight]
// are renewed without it.
func (l *Limiter) KeepHeld(r Result) {
	held := r.receipt.held
	if held == nil || !held.reserved || r.receipt.claim.Owner() != l.id || held.n == 0 {
		return
	}
	held.mu.Lock()
	held.keep = true
	held.mu.Unlock()
	l.renewer.add(l, held)
}

// A renewer renews the reservations of a Limiter. Its goroutine runs while there are
// any.
type renewer struct {
	mu      sync.Mutex
	kept    map[*reservation]struct{}
	running bool
	closed  chan struct{}
}

func (w *renewer) add(l *Limiter, r *reservation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.closed:
		return
	default:
	}
	if w.kept == nil {
		w.kept = make(map[*reservation]struct{})
	}
	w.kept[r] = struct{}{}
	if !w.running {
		w.running = true
		go w.run(l)
	}
}

func (w *renewer) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.closed:
	default:
		close(w.closed)
	}
}

// forget removes r, which is settled.
func (w *renewer) forget(r *reservation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, r)
}

// run renews every reservation between a sixth and a third of its hold after the last
// time, and finds those whose slots are lost.
func (w *renewer) run(l *Limiter) {
	tick := l.compiled.shortestHold / 6
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.closed:
			return
		}
		now := time.Now()
		due, lost, next, ok := w.due(now, now.Add(tick))
		for _, r := range lost {
			l.loseSlots(r)
		}
		if !ok {
			return
		}
		if len(due) > 0 {
			go l.renew(due) // which may wait for Redis, while slots are lost
		}
		timer.Reset(time.Until(next))
	}
}

// due returns the reservations that are to be renewed before the next look, which it
// marks as being renewed, and those whose slots are lost. It also returns when to look
// next: then, or before if slots will be lost until then. It reports false if there
// is nothing to renew at all: the goroutine ends.
func (w *renewer) due(now, then time.Time) (due, lost []*reservation, next time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.kept {
		r.mu.Lock()
		expiry := r.since.Add(r.limits.slotHold)
		switch isLost := r.slots && !now.Before(expiry); {
		case isLost:
			lost = append(lost, r)
		case r.slots && expiry.Before(then):
			then = expiry
		}
		switch hasUnits := r.keep && !r.unknown; {
		case r.ended || !r.slots && !hasUnits:
			delete(w.kept, r)
		case r.renewing == nil && !r.sent.Add(r.hold()/3).After(then):
			r.renewing = make(chan struct{})
			r.sent = now
			due = append(due, r)
		}
		r.mu.Unlock()
	}
	w.running = len(w.kept) > 0
	return due, lost, then, w.running
}

// renew renews reservations, each once.
func (l *Limiter) renew(due []*reservation) {
	var inRedis []*server.Renewal
	var ofRedis []*reservation
	for _, r := range due {
		r.mu.Lock()
		x := &server.Renewal{Key: r.key, N: r.n, Refs: r.find(r.keep && !r.unknown)}
		r.mu.Unlock()
		switch {
		case l.memory != nil:
			x.Renewed, x.Done = l.memory.Renew(x.Key, x.N, x.Refs), true
		case r.source == SourceFallback:
			x.Renewed, x.Done = l.fallback.store.Renew(x.Key, x.N, x.Refs), true
		default:
			inRedis, ofRedis = append(inRedis, x), append(ofRedis, r)
			continue
		}
		l.renewed(r, x)
	}
	if len(inRedis) == 0 {
		return
	}
	l.store.RenewAll(context.Background(), inRedis)
	for i, x := range inRedis {
		l.renewed(ofRedis[i], x)
	}
}

// renewed ends the renewal x of r.
func (l *Limiter) renewed(r *reservation, x *server.Renewal) {
	lost := false
	r.mu.Lock()
	switch {
	case x.Done:
		r.since = r.sent
		for i, m := range r.limits.members {
			switch {
			case x.Refs[i] == algorithm.Ref{}: // it was not renewed
			case m.Slots && x.Renewed[i] == algorithm.Ref{}:
				lost = r.slots
			default:
				r.refs[i] = x.Renewed[i]
			}
		}
	case x.Err != nil:
		r.unknown = r.keep
	}
	close(r.renewing)
	r.renewing = nil
	r.mu.Unlock()
	if lost {
		l.loseSlots(r)
	}
}

// The module's own suites have clocks of their own, and so renew when these say so.
var _ = hook.SetRenew(func(limiter any) {
	l := limiter.(*Limiter)
	due, _, _, _ := l.renewer.due(time.Now(), time.Now().Add(maxHold))
	l.renew(due)
})
