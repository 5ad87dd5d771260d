// Package lease manages units of frequently used keys that are held in Redis for this process, which spends
// them without further calls to Redis.
//
//	lease.go     Lease: units that may be spent until they are given back, in one atomic word
//	hot_key.go   which keys are hot, and how many units of each are worth leasing
//	exchange.go  Leases: settles the last lease of a key and takes the next, in the background
package lease

import (
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A lease takes at most 1/share of the units that remain.
const share = 8

// An Instant is a reading of both clocks of this process: the wall clock, which may be set, and the
// monotonic clock, which may stand still while the machine is suspended.
type Instant struct {
	Wall, Mono time.Duration
	Read       time.Time // the reading of the monotonic clock and the wall clock as a time.Time
}

// Since returns how long before t another instant was, by the clock that shows the longer time.
func (t Instant) Since(before Instant) time.Duration {
	return max(t.Wall-before.Wall, t.Mono-before.Mono)
}

// spendable returns how long a lease of duration d may be spent, counted from when its request was sent.
// Redis counts d from when it received the request, which is later. The millisecond and the 0.1 % are for
// clocks that run at different rates.
func spendable(d time.Duration) time.Duration { return d - time.Millisecond - d/1000 }

// A Lease has units that this process may spend until spendable(lasts) has passed since sent.
type Lease struct {
	// Handles has the handle under which each limit holds the units.
	Handles []algorithm.Handle

	hot     *HotKey
	lasts   time.Duration // how long Redis holds the units before it charges them
	units   int64
	sent    Instant            // when the request was sent
	granted Instant            // when the reply came
	answers []algorithm.Answer // the answers of the call that took the lease
	state   atomic.Uint64      // see unitBits
}

// Lasts returns for how long Redis holds the units.
func (le *Lease) Lasts() time.Duration { return le.lasts }

// Sent returns when the request for the lease was sent.
func (le *Lease) Sent() Instant { return le.sent }

// SettleHandles returns the handles for a settlement of the lease that is sent at now.
func (le *Lease) SettleHandles(now Instant) []algorithm.Handle {
	return algorithm.MarkExpired(le.hot.limits.Limits, le.Handles, now.Since(le.granted).Microseconds(), le.lasts.Microseconds())
}

// Age returns how long ago Redis answered the request for the lease.
func (le *Lease) Age(now Instant) time.Duration { return max(0, now.Since(le.granted)) }

// Spend takes n units from the lease, to spend them or, if reserve is set, to reserve them. before is how
// many units had been taken before. ok is false if fewer than n units are left, or if the lease is closed
// or too old. le may be nil.
func (le *Lease) Spend(n int64, reserve bool, now Instant) (before int64, ok bool) {
	if le == nil || n > le.units {
		return 0, false
	}
	age, last := now.Since(le.sent), spendable(le.lasts)
	if reserve {
		last /= 2 // a reservation is renewed in the second half
	}
	if age < 0 || age >= last {
		return 0, false
	}
	return le.take(n, reserve)
}

// Answers appends to a slice the answers to a request that took units after others had taken before.
func (le *Lease) Answers(to []algorithm.Answer, before int64) []algorithm.Answer {
	to = append(to, le.answers...)
	for i := range to {
		to[i].Held += before
	}
	return to
}

// The state of a lease is one word: units that are left, units given to Reserve, whose Settle
// charges them apart from the lease, how many decisions it made, up to maxDecisions, and whether it is
// closed.
const (
	// The state of a lease is one word, from its lowest bit:
	//
	//	28 bits  how many units are left
	//	28 bits  how many units were reserved: settling such a reservation charges them apart from the lease
	//	 4 bits  how often units were taken, at most maxAsks
	//	 1 bit   whether the lease is closed, as the highest bit
	unitBits     = 28
	maxLeased    = 1<<unitBits - 1
	reservedUnit = 1 << unitBits
	ask          = 1 << (2 * unitBits)
	maxDecisions = 15
	leaseClosed  = 1 << 63
)

func leftIn(state uint64) int64      { return int64(state & maxLeased) }
func reservedIn(state uint64) int64  { return int64(state >> unitBits & maxLeased) }
func decisionsIn(state uint64) int64 { return int64(state >> (2 * unitBits) & maxDecisions) }

// take takes n units, to spend or to reserve. It returns how many were taken before. ok is false if fewer
// than n are left, or if the lease is closed.
func (le *Lease) take(n int64, reserve bool) (before int64, ok bool) {
	for {
		old := le.state.Load()
		left := leftIn(old)
		if old&leaseClosed != 0 || left < n {
			return 0, false
		}
		next := old - uint64(n)
		if reserve {
			next += uint64(n) * reservedUnit
		}
		if decisionsIn(old) < maxDecisions {
			next += ask
		}
		if le.state.CompareAndSwap(old, next) {
			return le.units - left, true
		}
	}
}

// Give gives back n units that were taken but not spent. It returns false if the lease is closed.
func (le *Lease) Give(n int64) bool { return le.change(n, 0) }

// Settle settles a reservation of n units, of which actual were spent, and gives the rest back to the
// lease. It returns false if the lease is closed.
func (le *Lease) Settle(n, actual int64) bool { return le.change(n-actual, n) }

// change adds to the units that are left, and subtracts from the units that are reserved. It returns false
// if the lease is closed.
func (le *Lease) change(left, reserved int64) bool {
	for {
		old := le.state.Load()
		if old&leaseClosed != 0 {
			return false
		}
		if le.state.CompareAndSwap(old, old+uint64(left)-uint64(reserved)*reservedUnit) {
			return true
		}
	}
}
