package server

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// heldFor is for how long a key is taken to have holds after some were seen.
const heldFor = 10 * time.Second

// heldKeys remembers which keys have had holds lately: their decisions take the script
// hold, and a first try with the faster one would cost a round trip. Each slot stands
// for many keys, because that script decides for any key.
type heldKeys struct {
	seed  maphash.Seed
	begun time.Time
	used  atomic.Bool        // any key was added: most limiters hold nothing
	until [1024]atomic.Int64 // for how long, counted from begun
}

func (h *heldKeys) init() { h.seed, h.begun = maphash.MakeSeed(), time.Now() }

func (h *heldKeys) slot(k string) *atomic.Int64 {
	return &h.until[maphash.String(h.seed, k)%uint64(len(h.until))]
}

func (h *heldKeys) add(k string) {
	h.slot(k).Store(int64(time.Since(h.begun) + heldFor))
	h.used.Store(true)
}

func (h *heldKeys) has(k string) bool {
	if !h.used.Load() {
		return false
	}
	until := h.slot(k).Load()
	return until != 0 && int64(time.Since(h.begun)) < until
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
		s.held.add(d.key)
	}
	return err
}
