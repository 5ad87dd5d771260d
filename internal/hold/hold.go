// Package hold manages what the program must end: slots, units that are held, and charges that can be taken
// back. A core.Permit or a core.Reservation is called a reservation here.
//
//	hold.go   Hold: what one reservation holds or has charged
//	renew.go  Renewer: renews what must not expire before its reservation ends, notices lost slots, and ends Holds
package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// A Keeper stores held units and slots: Redis, or the memory of this process. The stub of a test is a Keeper, too,
// but stores nothing.
type Keeper interface {
	// End carries out e at most once. ctx bounds only how long End waits for the reply.
	End(ctx context.Context, e Ending) error
	// Renew carries out each renewal at most once. For each renewal that it can send, it calls Begin, and then
	// End if Begin has returned handles. For a renewal that it cannot send, because the server is down, it calls
	// neither. Renew returns after the last End.
	Renew(all []*Renewal)
}

// An Ending is an operation that ends what a reservation holds or has charged.
type Ending struct {
	Set     *limits.Set
	Key     string
	Op      algorithm.Op       // OpSettle, OpRefund or OpRelease
	N       int64              // how many units are held or were charged
	Actual  int64              // for OpSettle: how many units are charged instead of N
	Handles []algorithm.Handle // one for each limit; zero for a limit in which nothing must end
	Passed  time.Duration      // for OpSettle: the time since the reply by which the units are held, by the clocks of this process
	Lasts   time.Duration      // for OpSettle: for how long the units are held after that reply; 0 means the HoldDuration of each limit
	Freed   func()             // called after the attempt to free slots, even if it failed; nil if no slots are held
}

// A Lease is a lease of this process, from which a Hold has its units. Give and Settle return false, and do
// nothing, if the lease is closed.
type Lease interface {
	Give(n int64) bool           // gives back n units that were charged to the lease
	Settle(n, actual int64) bool // settles n units that were reserved from the lease, of which actual were spent
	Lasts() time.Duration        // for how long Redis holds the units of the lease
}

// A Hold has what one reservation holds or has charged in the limits of a Set. Slots and reserved units are
// held, and expire unless they are renewed. All other units are charged, and so are the reserved units of a
// LeakyBucket. In each limit, a handle identifies the hold or the charge.
type Hold struct {
	Set *limits.Set
	Key string
	N   int64
	// Reserved says that the units were reserved, by OpReserve. Otherwise only slots are held, and the other
	// limits have been charged.
	Reserved bool
	Keeper   Keeper
	// SlotsMove says that slots get another handle with each renewal, as in memory. In Redis, their id does
	// not change, and suffices to free them.
	SlotsMove bool

	// inline backs handles if there is one limit, which saves an allocation.
	inline [1]algorithm.Handle

	// mu guards the fields below. A new Hold is not shared yet, so New, FromLease and Renewer.Add set
	// fields without the lock.
	mu          sync.Mutex
	handles     []algorithm.Handle
	lease       Lease         // the lease from which the units come; nil without a lease, and after the first renewal that was sent
	slots       bool          // whether slots are held that must be freed
	keep        bool          // whether reserved units are renewed until the end; set by Renewer.Keep
	ended       bool          // whether Renewer.End was called
	handlesLost bool          // whether the reply to a renewal was lost, so that the handles of units may be out of date
	slotsLost   bool          // whether the slots were lost: they have expired, or may have expired
	onLost      []func()      // called when the slots are lost
	sentAt      time.Time     // when the last successful renewal was sent; if there was none, when the call was sent
	begun       time.Time     // when the last renewal was sent, even if it failed; if there was none, when the call was sent
	heard       time.Time     // when the reply came by which the units are held: to the call, to a renewal of the units, or to the request for the lease
	lasts       time.Duration // for how long the units are held after heard; 0 means the HoldDuration of each limit
	queued      bool          // whether a renewal is about to begin or in flight
	renewing    chan struct{} // closed when the renewal in flight ends; nil if there is none
}

// New returns the Hold for a call that is about to be sent at the instant now. The call writes its handles into
// Handles. If the units come from a lease, there is no call, and FromLease sets the handles.
func New(set *limits.Set, key string, n int64, reserved bool, now time.Time) *Hold {
	h := &Hold{Set: set, Key: key, N: n, Reserved: reserved, slots: set.Slots && n > 0, sentAt: now, begun: now}
	if h.handles = h.inline[:]; len(set.Limits) > len(h.inline) {
		h.handles = make([]algorithm.Handle, len(set.Limits))
	}
	return h
}

// Handles returns the slice into which a call writes the handles of the units that it charges or holds. It
// has one element for each limit. Renewals change the slice while h is locked, so it must not be read while a
// renewal may be in flight.
func (h *Hold) Handles() []algorithm.Handle { return h.handles }

// HasSlots reports whether the reservation has taken slots, even if they are lost or free now.
func (h *Hold) HasSlots() bool { return h.Set.Slots && h.N > 0 }

// HasUnits reports whether the reservation has reserved units.
func (h *Hold) HasUnits() bool { return h.Reserved && h.N > 0 && h.Set.Units }

// Ended reports whether h has been ended.
func (h *Hold) Ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// FromLease records that the units come from l, a lease whose request was sent at the instant sentAt, and
// answered at the instant heard. handles are the handles of the lease. If reserved units cannot be settled in the
// lease any more, they are settled by these handles, until a renewal gives the units handles of their own.
// FromLease must be called before Renewer.Add.
func (h *Hold) FromLease(l Lease, handles []algorithm.Handle, sentAt, heard time.Time) {
	h.lease, h.begun, h.sentAt, h.heard, h.lasts = l, sentAt, sentAt, heard, l.Lasts()
	copy(h.handles, handles)
}

// currentLocked returns the handles of the slots that h holds and, if units is set, also the handles of its
// units. All other handles are zero.
func (h *Hold) currentLocked(units bool) []algorithm.Handle {
	if units && !h.Set.Slots && h.ended {
		return h.handles // they do not change any more, so no copy is needed
	}
	handles := slices.Clone(h.handles)
	for i, m := range h.Set.Limits {
		if m.Slots && !h.slots || !m.Slots && !units {
			handles[i] = algorithm.Handle{}
		}
	}
	return handles
}

// renewsUnitsLocked reports whether reserved units must be renewed.
func (h *Hold) renewsUnitsLocked() bool {
	return h.Reserved && h.Set.Units && (h.keep || h.lease != nil) && !h.handlesLost && !h.ended
}

// lastsLocked returns how long after a renewal the first of the renewed slots and units expires.
func (h *Hold) lastsLocked() time.Duration {
	switch {
	case h.lease != nil:
		return h.lease.Lasts()
	case h.keep:
		return h.Set.ShortestHold
	default:
		return h.Set.SlotTTL
	}
}

// begin begins a renewal at now. It returns the handles that must be renewed. If nothing must be renewed, it
// returns nil and begins nothing.
func (h *Hold) begin(now time.Time) []algorithm.Handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || !h.slots && !h.renewsUnitsLocked() {
		return nil
	}
	h.renewing = make(chan struct{})
	h.begun = now
	return h.currentLocked(h.renewsUnitsLocked())
}

// haveUnits reports whether handles has the handle of reserved units.
func (h *Hold) haveUnits(handles []algorithm.Handle) bool {
	for i, m := range h.Set.Limits {
		if !m.Slots && handles[i] != (algorithm.Handle{}) {
			return true
		}
	}
	return false
}

// renewed ends a renewal of the handles in sent, which begin has begun. received has the handles after the renewal,
// and heard is when the reply came. If both received and err are nil, nothing was renewed. renewed reports whether
// the reply says that slots were lost.
func (h *Hold) renewed(sent, received []algorithm.Handle, heard time.Time, err error) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.handlesLost, h.lease = h.handlesLost || h.haveUnits(sent), nil
	case received != nil:
		h.sentAt, h.lease = h.begun, nil
		for i, m := range h.Set.Limits {
			switch {
			case sent[i] == algorithm.Handle{}: // this limit was not part of the renewal
			case m.Slots && received[i] == algorithm.Handle{}:
				lost = h.slots
			default:
				if !m.Slots && received[i] != h.handles[i] { // the same handle means that the hold has ended, or still expires at the same time
					h.heard, h.lasts = heard, 0
				}
				h.handles[i] = received[i]
			}
		}
	}
	close(h.renewing)
	h.renewing = nil
	return lost
}

// endInLeaseLocked ends h in the lease from which its units come. It reports false if h must be ended in Redis
// instead: if there is no such lease or, for reserved units, if the lease is closed, if a renewal is in flight, or
// if actual is more than was reserved.
func (h *Hold) endInLeaseLocked(actual int64) bool {
	switch {
	case h.lease == nil:
		return false
	case !h.Reserved: // the units were charged to the lease
		if actual == 0 {
			h.lease.Give(h.N) // if the lease is closed, the units stay charged
		}
		return true
	}
	return h.renewing == nil && actual <= h.N && h.lease.Settle(h.N, actual)
}

// endingLocked returns the Ending of h, whose work cost actual units. ok is false if there is nothing to end, so
// that the Keeper need not be called. h.ended must be set.
func (h *Hold) endingLocked(now time.Time, actual int64) (e Ending, ok bool) {
	e = Ending{Set: h.Set, Key: h.Key, N: h.N, Handles: h.currentLocked(true), Passed: passed(h.heard, now), Lasts: h.lasts}
	switch {
	case h.handlesLost: // the units cannot be settled, so they are charged when they expire
		e.Op, e.Handles = algorithm.OpRelease, h.currentLocked(false)
		return e, h.slots
	case h.Reserved:
		e.Op, e.Actual = algorithm.OpSettle, actual
		return e, h.N > 0 || actual > 0
	case actual == 0:
		e.Op = algorithm.OpRefund
		return e, h.N > 0
	}
	e.Op, e.Handles = algorithm.OpRelease, h.currentLocked(false)
	return e, h.slots
}

// passed returns the time from start to now, by the wall clock or by the monotonic clock, whichever shows the
// longer time. The monotonic clock may stand still while the machine is suspended, and the wall clock may be
// adjusted.
func passed(start, now time.Time) time.Duration {
	return max(now.Sub(start), now.Round(0).Sub(start))
}

// OnLost registers f, which is called if the slots of h are lost before h ends. If they have been lost already,
// OnLost calls f at once, with h locked, so f must not use h.
func (h *Hold) OnLost(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.slots {
		h.onLost = append(h.onLost, f)
	} else if h.slotsLost {
		f()
	}
}
