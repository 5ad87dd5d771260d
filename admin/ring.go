package admin

import (
	"sync"
	"sync/atomic"
	"time"
)

// A ring counts several things in slots of time, and keeps the latest slots. Counting takes no lock, except
// for the first count in a slot.
type ring struct {
	every time.Duration
	mu    sync.Mutex // held while a slot is reused for a later time
	slots []slot
}

type slot struct {
	number atomic.Int64 // counts the slots since the Watch began, from 1
	counts []atomic.Uint32
}

// newRing returns a ring that keeps the present slot and n slots before it, with the given number of counts
// in each.
func newRing(every time.Duration, n, counts int) *ring {
	r := &ring{every: every, slots: make([]slot, n+1)}
	for i := range r.slots {
		r.slots[i].counts = make([]atomic.Uint32, counts)
	}
	return r
}

// at returns the counts of the slot at now, the time since the Watch began.
func (r *ring) at(now time.Duration) []atomic.Uint32 {
	number := int64(now/r.every) + 1
	s := &r.slots[number%int64(len(r.slots))]
	if s.number.Load() != number {
		r.begin(s, number)
	}
	return s.counts
}

// begin gives the slot s a later number, and clears its counts.
func (r *ring) begin(s *slot, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.number.Load() >= number { // another caller has begun the slot, or this caller is late
		return
	}
	for i := range s.counts {
		s.counts[i].Store(0)
	}
	s.number.Store(number)
}

// last calls f for each slot before the present one in which something was counted, the oldest first.
// The oldest slot that the ring keeps has i = 0.
func (r *ring) last(now time.Duration, f func(i int, counts []atomic.Uint32)) {
	n, present := int64(len(r.slots)), int64(now/r.every)+1
	for i := range n - 1 {
		number := present - (n - 1) + i
		s := &r.slots[((number%n)+n)%n]
		if s.number.Load() == number {
			f(int(i), s.counts)
		}
	}
}
