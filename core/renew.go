package core

import (
	"context"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/claim"
	"github.com/redislimit/redislimit/internal/server"
)

// A reservation is what is held for a Result.
type reservation struct {
	claims claim.Set // copies of the Result refer to it

	mu       sync.Mutex
	refs     []algorithm.Ref // by what each limit finds the hold
	begun    time.Time       // when it was reserved or last renewed
	lease    *lease          // whose units it has, until it is renewed; or nil
	renewing chan struct{}   // closed when the renewal in flight has ended; nil if there is none
	ended    bool            // it is settled, and not renewed any more
	lost     bool            // a renewal failed: by what the hold is found is not known
}

func newReservation(owner uint64, limits int) *reservation {
	return &reservation{claims: claim.Set{Owner: owner}, refs: make([]algorithm.Ref, limits), begun: time.Now()}
}

// begin begins a renewal. It returns by what the hold is found, or nil if it is not to be
// renewed.
func (r *reservation) begin() []algorithm.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.lost {
		return nil
	}
	r.lease = nil // which is settled without what is held for r
	r.renewing = make(chan struct{})
	r.begun = time.Now()
	return r.refs
}

// renewed ends a renewal, after which the hold is found by refs unless err is set.
func (r *reservation) renewed(refs []algorithm.Ref, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.lost = true
	} else {
		r.refs = refs
	}
	close(r.renewing)
	r.renewing = nil
}

// settleInLease ends the reservation of n units, of which actual were spent, if they are of a
// lease that has not ended. It reports whether it did.
func (r *reservation) settleInLease(n, actual int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lease == nil || actual > n || !r.lease.settle(n, actual) {
		return false
	}
	r.ended = true
	return true
}

// end ends the renewals, and waits for one in flight. It returns by what the hold is
// found, or nil if that is not known.
func (r *reservation) end(ctx context.Context) ([]algorithm.Ref, error) {
	r.mu.Lock()
	r.ended = true
	renewing := r.renewing
	r.mu.Unlock()
	if renewing != nil {
		select {
		case <-renewing: // it takes the Timeout at most
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost {
		return nil, nil
	}
	return r.refs, nil
}

// KeepHeld keeps what [Limiter.Reserve] holds for r from expiring, until r is settled or
// the Limiter is closed: it is held anew every third of its hold, in the background.
// It is for work that may take longer than the hold; the middleware calls it. If
// Redis does not answer meanwhile, the hold expires and is charged.
func (l *Limiter) KeepHeld(r Result) {
	held := r.receipt.held
	if held == nil || r.receipt.claim.Owner() != l.id || r.receipt.n == 0 {
		return
	}
	l.renewer.add(l.family, kept{held, r.receipt.limits, r.receipt.key, r.receipt.n, r.Source, false})
}

// A kept is a reservation that is renewed.
type kept struct {
	*reservation
	limits *limitSet
	key    string
	n      int64
	source Source
	once   bool // it is moved from its lease to a hold of its own, and not renewed after that
}

// A renewer renews the reservations of a Limiter. Its goroutine runs while there are
// any.
type renewer struct {
	mu     sync.Mutex
	kept   map[*reservation]kept
	every  time.Duration // how often it looks for reservations to renew; 0: it does not run
	sooner chan struct{} // every has become shorter
	closed chan struct{}
}

func newRenewer() renewer {
	return renewer{sooner: make(chan struct{}, 1), closed: make(chan struct{})}
}

func (w *renewer) add(f *family, k kept) {
	k.mu.Lock()
	every := k.holdsFor(f) / 12
	k.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.closed:
		return
	default:
	}
	if w.kept == nil {
		w.kept = make(map[*reservation]kept)
	}
	w.kept[k.reservation] = k
	switch {
	case w.every == 0:
		w.every = every
		go w.run(f, every)
	case every < w.every:
		w.every = every
		select {
		case w.sooner <- struct{}{}:
		default:
		}
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

// holdsFor returns for how long the reservation, which is locked, is held until it is renewed.
func (k *kept) holdsFor(f *family) time.Duration {
	if k.lease != nil {
		return f.lease
	}
	return k.limits.shortestHold()
}

// forget removes r, which is settled.
func (w *renewer) forget(r *reservation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.kept, r)
}

// run renews every reservation between a fourth and a third of its hold after the last
// time.
func (w *renewer) run(f *family, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.sooner:
			w.mu.Lock()
			ticker.Reset(w.every)
			w.mu.Unlock()
			continue
		case <-w.closed:
			return
		}
		due, every := w.due(f, time.Now())
		if every == 0 {
			return
		}
		ticker.Reset(every)
		f.renew(due)
	}
}

// due returns the reservations that are to be renewed at now, and how often to look for more: 0
// if there are none at all, so that the goroutine ends.
func (w *renewer) due(f *family, now time.Time) ([]kept, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []kept
	w.every = 0
	for r, k := range w.kept {
		r.mu.Lock()
		switch {
		case r.ended || r.lost || k.once && r.lease == nil:
			delete(w.kept, r)
			r.mu.Unlock()
			continue
		case now.Sub(r.begun) >= k.holdsFor(f)/4:
			due = append(due, k)
		}
		if every := k.holdsFor(f) / 12; w.every == 0 || every < w.every {
			w.every = every
		}
		r.mu.Unlock()
	}
	return due, w.every
}

// renew renews reservations, each once.
func (f *family) renew(due []kept) {
	inRedis := make(map[*server.Store][]*server.Renewal)
	for _, k := range due {
		local := f.memory
		if k.source == SourceFallback {
			local = f.fallback.store
		}
		if local == nil {
			store := f.storeOf(k.limits)
			inRedis[store] = append(inRedis[store], &server.Renewal{
				Limits: k.limits.server, Key: k.key, N: k.n, Begin: k.begin, End: k.renewed,
			})
		} else if refs := k.begin(); refs != nil {
			k.renewed(local.Renew(k.limits.memory, k.key, k.n, refs), nil)
		}
	}
	for store, renewals := range inRedis {
		store.RenewAll(context.Background(), renewals)
	}
}
