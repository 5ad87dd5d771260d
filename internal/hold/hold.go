// Package hold has what is held for a reservation until it ends: units that may be given back, and
// slots.
//
//	hold.go   Hold: what one reservation has, and how it ends
//	renew.go  Renewer: renews what must not expire meanwhile, and notices what is lost
package hold

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/limits"
)

// A Keeper is where units are held: in Redis, in the memory of this process, or in a stub.
type Keeper interface {
	// End does what e says, once. ctx bounds only the waiting.
	End(ctx context.Context, e Ending) error
	// Renew carries out renewals, each once.
	Renew(all []*Renewal)
}

// An Ending is how units end that are held or charged.
type Ending struct {
	Set     *limits.Set
	Key     string
	Op      algorithm.Op // OpSettle, OpRefund or OpRelease
	N       int64        // units that are held or were charged
	Actual  int64        // of OpSettle: what is charged in their place
	Handles []algorithm.Handle
	Passed  time.Duration // since the reply by which units are held, by the clocks of this process
	Freed   func()        // called when slots have been freed, or nil
}

// A Lease is where units come from that were leased. Each method reports false if the lease has
// been closed.
type Lease interface {
	Give(n int64) bool           // takes back n units that were charged
	Settle(n, actual int64) bool // takes back what was not spent of n units that were reserved
	Lasts() time.Duration
}

// A Hold is what one reservation has of the limits of a Set, under one handle of each: slots and
// reserved units are held, and may expire; other units are charged.
type Hold struct {
	Set      *limits.Set
	Key      string
	N        int64
	Reserved bool // by Reserve. Without it only slots are held, and the other limits were charged
	Keeper   Keeper
	// SlotsMove: a renewal gives slots another handle, as in memory. In Redis they keep theirs.
	SlotsMove bool

	inline [1]algorithm.Handle // of most handles: one allocation less

	mu          sync.Mutex
	handles     []algorithm.Handle
	lease       Lease         // whose units it has, until they are held by themselves; or nil
	slots       bool          // it has slots
	keep        bool          // reserved units are renewed, and not only slots
	ended       bool          // by Renewer.End
	handlesLost bool          // a renewal's reply was lost: those of units may be out of date
	slotsLost   bool          // they expired, or may have
	onLost      []func()      // called then
	asked       time.Time     // when the call was sent by which it is held
	begun       time.Time     // when the last renewal was
	heard       time.Time     // when the reply came by which units are held
	queued      bool          // a renewal is about to begin, or is in flight
	renewing    chan struct{} // closed when the renewal in flight has ended; nil if there is none
}

// New returns the Hold of a call that is about to be sent.
func New(set *limits.Set, key string, n int64, reserved bool, now time.Time) *Hold {
	h := &Hold{Set: set, Key: key, N: n, Reserved: reserved, slots: set.Slots && n > 0, asked: now, begun: now}
	if h.handles = h.inline[:]; len(set.Members) > len(h.inline) {
		h.handles = make([]algorithm.Handle, len(set.Members))
	}
	return h
}

// Handles returns where the call is to write the handles of what it charges or holds.
func (h *Hold) Handles() []algorithm.Handle { return h.handles }

// HasSlots reports whether slots were taken.
func (h *Hold) HasSlots() bool { return h.Set.Slots && h.N > 0 }

// HasUnits reports whether units were reserved.
func (h *Hold) HasUnits() bool { return h.Reserved && h.N > 0 && h.Set.Units }

// Ended reports whether somebody has ended h.
func (h *Hold) Ended() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ended
}

// FromLease has the units be those of a lease that was asked for at an instant. If they are
// reserved, handles are those of the lease.
func (h *Hold) FromLease(l Lease, handles []algorithm.Handle, asked time.Time) {
	h.lease, h.begun, h.asked = l, asked, asked
	copy(h.handles, handles)
}

// currentLocked returns the handles of the slots, and if units is set those of the units; the
// others are zero.
func (h *Hold) currentLocked(units bool) []algorithm.Handle {
	if units && !h.Set.Slots && h.ended {
		return h.handles // they change no more
	}
	handles := slices.Clone(h.handles)
	for i, m := range h.Set.Members {
		if m.Slots && !h.slots || !m.Slots && !units {
			handles[i] = algorithm.Handle{}
		}
	}
	return handles
}

// renewsUnitsLocked reports whether reserved units are renewed.
func (h *Hold) renewsUnitsLocked() bool {
	return h.Reserved && h.Set.Units && (h.keep || h.lease != nil) && !h.handlesLost && !h.ended
}

// lastsLocked returns for how long what is renewed is held.
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

// begin starts a renewal. It returns the handles to renew, or nil if there is nothing.
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

// renewed ends a renewal of the handles sent. It has the handles now; with neither these nor an
// error nothing was renewed. It reports whether slots were lost.
func (h *Hold) renewed(sent, now []algorithm.Handle, heard time.Time, err error) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.handlesLost, h.lease = h.keep || h.lease != nil, nil
	case now != nil:
		h.asked, h.lease, h.heard = h.begun, nil, heard
		for i, m := range h.Set.Members {
			switch {
			case sent[i] == algorithm.Handle{}: // it was not to be renewed
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

// endInLeaseLocked ends h if its units are of a lease that can take back what was not spent.
func (h *Hold) endInLeaseLocked(actual int64) bool {
	switch {
	case h.lease == nil:
		return false
	case !h.Reserved: // they were charged
		if actual == 0 {
			h.lease.Give(h.N) // a closed lease takes nothing back
		}
		return true
	}
	return h.renewing == nil && actual <= h.N && h.lease.Settle(h.N, actual)
}

// endingLocked returns how h ends at now, whose work cost actual units; ok is false if there is
// nothing to send. h has been marked as ended.
func (h *Hold) endingLocked(now time.Time, actual int64) (e Ending, ok bool) {
	e = Ending{Set: h.Set, Key: h.Key, N: h.N, Handles: h.currentLocked(true), Passed: passed(h.heard, now)}
	switch {
	case h.handlesLost: // units are charged when they expire
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

// passed returns how long ago an instant was, by the clock that says more: the monotonic one may
// stand while the machine is suspended, and the wall clock may be set.
func passed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since))
}

// OnLost has f called when the slots are lost before h ends, at once if they were.
func (h *Hold) OnLost(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.slots {
		h.onLost = append(h.onLost, f)
	} else if h.slotsLost {
		f()
	}
}
