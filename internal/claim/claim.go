// Package claim lets a result be refunded once, although it is a value that can be
// copied.
package claim

import "sync/atomic"

// A Claim is the right to refund what was charged for a result. All copies of the
// result have the same Claim. The zero Claim, if nothing was charged, cannot be taken.
type Claim struct {
	set *Set
	bit uint8
}

// Take takes the Claim. It reports false if the Claim or a copy of it was taken before.
func (c Claim) Take() bool {
	if c.set == nil {
		return false
	}
	bit := uint64(1) << c.bit
	return c.set.taken.Or(bit)&bit == 0
}

// Owner returns the owner of the Claim's Set, or 0 for the zero Claim.
func (c Claim) Owner() uint64 {
	if c.set == nil {
		return 0
	}
	return c.set.Owner
}

// A Set is what the copies of a Claim share. Up to 64 Claims share one, so that not
// each of them costs an allocation.
type Set struct {
	Owner uint64 // identifies the limiter that charged
	taken atomic.Uint64
}

// Only returns the one Claim of a Set that is for no other.
func (s *Set) Only() Claim { return Claim{set: s} }

// A Source makes Claims. It is not safe for concurrent use.
type Source struct {
	Owner uint64
	set   *Set
	used  uint8
}

// Next returns a new Claim.
func (s *Source) Next() Claim {
	if s.set == nil || s.used == 64 {
		s.set, s.used = &Set{Owner: s.Owner}, 0
	}
	s.used++
	return Claim{s.set, s.used - 1}
}

// A Shared makes Claims, and is safe for concurrent use. The first use of it needs an Owner.
type Shared struct {
	Owner   uint64
	current atomic.Pointer[sharedSet]
}

type sharedSet struct {
	Set

	used atomic.Uint32
}

// Next returns a new Claim.
func (s *Shared) Next() Claim {
	for {
		current := s.current.Load()
		if current != nil {
			if used := current.used.Add(1); used <= 64 {
				return Claim{&current.Set, uint8(used - 1)}
			}
		}
		next := &sharedSet{Set: Set{Owner: s.Owner}}
		next.used.Store(1)
		if s.current.CompareAndSwap(current, next) {
			return Claim{&next.Set, 0}
		}
	}
}
