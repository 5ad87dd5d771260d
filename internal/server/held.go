package server

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// heldFor is for how long a key is taken to have holds after some were seen.
const heldFor = 10 * time.Second

// heldCells is how many cells there are for the keys that have holds.
const heldCells = 4096

// heldKeys remembers which keys have had holds lately: their decisions take the script
// hold, and a first try with the faster one would cost a round trip.
type heldKeys struct {
	seed  maphash.Seed
	begun time.Time
	cells atomic.Pointer[[heldCells]atomic.Uint64] // made with the first hold: most limiters hold nothing
}

// A cell is the tag of its key, or 0 where it stands for all of its keys, because it had to
// remember more than one: the script hold decides for any key. Below that is until when,
// in milliseconds since begun.
const heldUntilBits = 40

func (h *heldKeys) init() { h.seed, h.begun = maphash.MakeSeed(), time.Now() }

// at returns the cell of k, and its tag.
func (h *heldKeys) at(cells *[heldCells]atomic.Uint64, k string) (cell *atomic.Uint64, tag uint64) {
	hash := maphash.String(h.seed, k)
	return &cells[hash%heldCells], hash>>heldUntilBits | 1
}

func (h *heldKeys) now() uint64 { return uint64(time.Since(h.begun) / time.Millisecond) }

// add remembers k for so long, or for longer if it is already.
func (h *heldKeys) add(k string, lasts time.Duration) {
	cells := h.cells.Load()
	if cells == nil {
		h.cells.CompareAndSwap(nil, new([heldCells]atomic.Uint64))
		cells = h.cells.Load()
	}
	cell, own := h.at(cells, k)
	now := h.now()
	for {
		old, tag, until := cell.Load(), own, now+uint64(lasts/time.Millisecond)+1
		if oldTag, oldUntil := old>>heldUntilBits, old%(1<<heldUntilBits); oldUntil > now {
			until = max(until, oldUntil)
			if oldTag != own {
				tag = 0
			}
		}
		if cell.CompareAndSwap(old, tag<<heldUntilBits|until) {
			return
		}
	}
}

func (h *heldKeys) has(k string) bool {
	cells := h.cells.Load()
	if cells == nil {
		return false
	}
	cell, own := h.at(cells, k)
	old := cell.Load()
	tag, until := old>>heldUntilBits, old%(1<<heldUntilBits)
	return until > 0 && (tag == own || tag == 0) && h.now() < until
}
