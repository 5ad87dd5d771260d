package core

import (
	"hash/maphash"
	"slices"
	"sync"
)

// maxDerived bounds how many derived Limiters are remembered. When one more must be remembered, all others
// are forgotten. If With then gets the limits of a forgotten Limiter, it makes a new one.
const maxDerived = 100_000

// derived remembers the Limiters that With has returned.
type derived struct {
	mu     sync.RWMutex
	byHash map[uint64][]*Limiter
	count  int
}

// seed is the seed of the hashes of limits.
var seed = maphash.MakeSeed()

func hashOf(limits []Limit) uint64 {
	sum := uint64(len(limits))
	for i := range limits {
		sum = sum*31 + maphash.Comparable(seed, limits[i])
	}
	return sum
}

func (d *derived) get(hash uint64, limits []Limit) *Limiter {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, l := range d.byHash[hash] {
		if slices.Equal(l.configured, limits) {
			return l
		}
	}
	return nil
}

// put remembers l and returns it. If another call of With has just put a Limiter with the same limits,
// put returns that Limiter instead.
func (d *derived) put(hash uint64, l *Limiter) *Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.byHash[hash] {
		if slices.Equal(other.configured, l.configured) {
			return other
		}
	}
	if d.byHash == nil || d.count >= maxDerived {
		d.byHash, d.count = make(map[uint64][]*Limiter), 0
	}
	d.byHash[hash] = append(d.byHash[hash], l)
	d.count++
	return l
}
