// Package hold manages what is held for a reservation until it ends: units that may be given back, and
// slots.
//
//	hold.go   Hold: what one reservation holds, and how it ends
//	renew.go  Renewer: renews what must not expire before its reservation ends, and notices what is lost
package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// A Keeper stores what is held: Redis, the memory of this process, or a stub.
type Keeper interface {
	// End carries out e once. ctx bounds only how long End waits for the reply.
	End(ctx context.Context, e Ending) error
	// Renew carries out each renewal once. It calls Begin and End of each, and returns after the last End.
	Renew(all []*Renewal)
}

// An Ending says how held or charged units end.
type Ending struct {
	Set     *limits.Set
	Key     string
	Op      algorithm.Op // OpSettle, OpRefund or OpRelease
	N       int64        // how many units are held or were charged
	Actual  int64        // for OpSettle: how many units are charged in place of N
	Handles []algorithm.Handle
	Passed  time.Duration // how much time has passed, by the clocks of this process, since the reply by which units are held
	Freed   func()        // called after slots have been freed; nil if there are none
}

// A Lease is where a Hold's units come from if this process had leased them. Give and Settle return false
// if the lease has been closed.
type Lease interface {
	Give(n int64) bool           // gives back n units that were charged
	Settle(n, actual int64) bool // settles n reserved units, of which actual were spent
	Lasts() time.Duration        // how long Redis holds the lease's units
}

// A Hold has what one reservation holds or has charged in the limits of a Set. Each limit knows it by a
// handle. Slots and reserved units are held, and expire unless they are renewed. Other units are charged.
type Hold struct {
	Set *limits.Set
	Key string
	N   int64
	// Reserved says that the Hold was made by Reserve. Otherwise only slots are held, and the other limits
	// have been charged.
	Reserved bool
	Keeper   Keeper
	// SlotsMove says that slots get another handle with each renewal, as in memory. In Redis their handle
	// stays the same.
	SlotsMove bool

	// inline backs handles if there is one limit, which saves an allocation.
	inline [1]algorithm.Handle

	// mu guards the fields below. A new Hold is not shared yet, so New, FromLease and Renewer.Add set
	// fields without the lock.
	mu          sync.Mutex
	handles     []algorithm.Handle
	lease       Lease         // where the units come from, until they are held apart from the lease; or nil
	slots       bool          // whether it holds slots
	keep        bool          // whether reserved units are renewed, and not only slots
	ended       bool          // whether Renewer.End was called
	handlesLost bool          // whether the reply to a renewal was lost, so that the handles of units may be out of date
	slotsLost   bool          // whether the slots have expired, or may have
	onLost      []func()      // called when the slots are lost
	sentAt      time.Time     // when the call was sent by which everything is held now
	begun       time.Time     // when the last renewal began
	heard       time.Time     // when the reply came by which units are held now
	queued      bool          // whether a renewal is about to begin or in flight
	renewing    chan struct{} // closed when the renewal in flight ends; nil if there is none
}

// New returns the Hold of a call that is about to be sent. The call writes its handles into Handles.
func New(set *limits.Set, key string, n int64, reserved bool, now time.Time) *Hold {
	h := &Hold{Set: set, Key: key, N: n, Reserved: reserved, slots: set.Slots && n > 0, sentAt: now, begun: now}
	if h.handles = h.inline[:]; len(set.Limits) > len(h.inline) {
		h.handles = make([]algorithm.Handle, len(set.Limits))
	}
	return h
}

// Handles returns the slice into which a call writes the handles of the units that it charges or holds. It
// has one element for each limit.
func (h *Hold) Handles() []algorithm.Handle { return h.handles }

// HasSlots reports whether the reservation has taken slots.
func (h *Hold) HasSlots() bool { return h.Set.Slots && h.N > 0 }

// HasUnits reports whether the reservation has reserved units.
func (h *Hold) HasUnits() bool { return h.Reserved && h.N > 0 && h.Set.Units }

// Ended reports whether h has been ended.
func (h *Hold) Ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// FromLease records that the units come from a lease whose request was sent at the instant sentAt. handles
// are the handles of the lease, which settle the units if they are reserved. FromLease must be called
// before Renewer.Add.
func (h *Hold) FromLease(l Lease, handles []algorithm.Handle, sentAt time.Time) {
	h.lease, h.begun, h.sentAt = l, sentAt, sentAt
	copy(h.handles, handles)
}

// currentLocked returns the handles of what h holds: of slots, and also of units if units is set. The other
// handles are zero.
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

// lastsLocked returns how long what must be renewed is held.
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

// begin begins a renewal. It returns the handles that must be renewed, or nil if there are none.
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

// renewed ends a renewal of the handles sent. now has the handles after the renewal, and heard is when the
// reply came. Without now and without err, nothing was renewed. renewed reports whether slots were lost.
func (h *Hold) renewed(sent, now []algorithm.Handle, heard time.Time, err error) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.handlesLost, h.lease = h.keep || h.lease != nil, nil
	case now != nil:
		h.sentAt, h.lease, h.heard = h.begun, nil, heard
		for i, m := range h.Set.Limits {
			switch {
			case sent[i] == algorithm.Handle{}: // not part of the renewal
			case m.Slots && now[i] == algorithm.Handle{}:
				lost = h.slots
			default:
				h.handles[i] = now[i]
			}
		}
	}
	close(h.renewing)
	h.renewing = nil
	return lost
}

// endInLeaseLocked ends h in the lease of its units, if the lease can take back the units that were not
// spent. It reports whether h has ended: Redis need not be called then.
func (h *Hold) endInLeaseLocked(actual int64) bool {
	switch {
	case h.lease == nil:
		return false
	case !h.Reserved: // the units were charged to the lease
		if actual == 0 {
			h.lease.Give(h.N) // does nothing if the lease has been closed
		}
		return true
	}
	return h.renewing == nil && actual <= h.N && h.lease.Settle(h.N, actual)
}

// endingLocked returns how h must end, if its work cost actual units. ok is false if the Keeper need not be
// called. h must have been marked as ended.
func (h *Hold) endingLocked(now time.Time, actual int64) (e Ending, ok bool) {
	e = Ending{Set: h.Set, Key: h.Key, N: h.N, Handles: h.currentLocked(true), Passed: passed(h.heard, now)}
	switch {
	case h.handlesLost: // the units are charged when they expire
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

// passed returns how much time has passed, by the clock that shows the longer time. The monotonic clock may
// stand still while the machine is suspended, and the wall clock may be set.
func passed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since))
}

// OnLost arranges a call of f when slots are lost before h ends. If they have been lost already, OnLost
// calls f at once, with h locked: f must not use h.
func (h *Hold) OnLost(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.slots {
		h.onLost = append(h.onLost, f)
	} else if h.slotsLost {
		f()
	}
}
