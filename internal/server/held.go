package server

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// heldFor is for how long a key is taken to have holds after some were seen.
const heldFor = 10 * time.Second

// heldSlots is how many slots there are for the keys that have holds.
const heldSlots = 4096

// heldKeys remembers which keys have had holds lately: their decisions take the script
// hold, and a first try with the faster one would cost a round trip.
type heldKeys struct {
	seed  maphash.Seed
	begun time.Time
	slots atomic.Pointer[[heldSlots]atomic.Uint64] // made with the first hold: most limiters hold nothing
}

// A slot is the tag of its key, or 0 where it stands for all of its keys, because it had to
// remember more than one: the script hold decides for any key. Below that is until when,
// in milliseconds since begun.
const heldUntilBits = 40

func (h *heldKeys) init() { h.seed, h.begun = maphash.MakeSeed(), time.Now() }

// at returns the slot of k, and its tag.
func (h *heldKeys) at(slots *[heldSlots]atomic.Uint64, k string) (slot *atomic.Uint64, tag uint64) {
	hash := maphash.String(h.seed, k)
	return &slots[hash%heldSlots], hash>>heldUntilBits | 1
}

func (h *heldKeys) now() uint64 { return uint64(time.Since(h.begun) / time.Millisecond) }

// add remembers k for so long, or for longer if it is already.
func (h *heldKeys) add(k string, lasts time.Duration) {
	slots := h.slots.Load()
	if slots == nil {
		h.slots.CompareAndSwap(nil, new([heldSlots]atomic.Uint64))
		slots = h.slots.Load()
	}
	slot, own := h.at(slots, k)
	now := h.now()
	for {
		old, tag, until := slot.Load(), own, now+uint64(lasts/time.Millisecond)+1
		if oldTag, oldUntil := old>>heldUntilBits, old%(1<<heldUntilBits); oldUntil > now {
			until = max(until, oldUntil)
			if oldTag != own {
				tag = 0
			}
		}
		if slot.CompareAndSwap(old, tag<<heldUntilBits|until) {
			return
		}
	}
}

func (h *heldKeys) has(k string) bool {
	slots := h.slots.Load()
	if slots == nil {
		return false
	}
	slot, own := h.at(slots, k)
	old := slot.Load()
	tag, until := old>>heldUntilBits, old%(1<<heldUntilBits)
	return until > 0 && (tag == own || tag == 0) && h.now() < until
}

// needsHold reports whether d takes the script hold.
func (s *Store) needsHold(d decision) bool {
	return s.slots || d.Op >= algorithm.OpReserve || d.lease != nil || s.held.has(d.key)
}

// decodeOne reads the reply to d.
func (s *Store) decodeOne(reply []int64, d decision, needsHold bool) error {
	if !needsHold {
		return algorithm.DecodeReply(reply, d.limits.members, d.answers)
	}
	if d.lease != nil {
		return s.decodeWithLease(reply, d)
	}
	err := algorithm.DecodeHoldReply(reply, d.HoldCall, d.limits.members, d.answers, d.holds)
	if err == nil && d.Op == algorithm.OpReserve {
		s.held.add(d.key, heldFor)
	}
	return err
}
