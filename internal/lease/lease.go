// Package lease has what this process has leased of hot keys: units that are held for it in Redis,
// which it spends by itself.
//
//	lease.go     Lease: units that may be spent until they are given back, in one atomic word
//	hot_key.go   which keys are hot, and how many units of each are worth leasing
//	exchange.go  Leases: beside the requests the last lease of their key is settled, and another taken
package lease

import (
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// A lease is for at most 1/share of what remains.
const share = 8

// An Instant is what the clocks of this process say: the wall clock, which may be set, and the
// monotonic one, which may stand while the machine is suspended.
type Instant struct {
	Wall, Mono time.Duration
	Read       time.Time // what both were read from
}

// Since returns how long ago an instant was, by the clock that says more.
func (t Instant) Since(before Instant) time.Duration {
	return max(t.Wall-before.Wall, t.Mono-before.Mono)
}

// spendable returns how long a lease may be spent, counted from when it was asked for: Redis counts
// d from later. The 1 ms and 0.1 % are for clocks that go at different rates.
func spendable(d time.Duration) time.Duration { return d - time.Millisecond - d/1000 }

// A Lease is units that this process may spend.
type Lease struct {
	Handles []algorithm.Handle // under which each limit holds them

	hot     *HotKey
	lasts   time.Duration // until Redis charges it
	units   int64
	sent    Instant            // the request for it
	granted Instant            // the reply
	answers []algorithm.Answer // of the call that took it
	state   atomic.Uint64
}

// Lasts returns for how long Redis holds the units.
func (le *Lease) Lasts() time.Duration { return le.lasts }

// Sent returns when the request for it was sent.
func (le *Lease) Sent() Instant { return le.sent }

// SettleHandles returns the handles by which it is settled at an instant.
func (le *Lease) SettleHandles(now Instant) []algorithm.Handle {
	return algorithm.MarkExpired(le.hot.limits.Members, le.Handles, now.Since(le.granted).Microseconds(), le.lasts.Microseconds())
}

// Age returns how old its answers are.
func (le *Lease) Age(now Instant) time.Duration { return max(0, now.Since(le.granted)) }

// Spend takes n units, to spend or to reserve. before is how many the lease had given out; ok is
// false if it has not so many. le may be nil.
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

// Answers appends the answers to a request whose units were taken after others.
func (le *Lease) Answers(to []algorithm.Answer, before int64) []algorithm.Answer {
	to = append(to, le.answers...)
	for i := range to {
		to[i].Held += before
	}
	return to
}

// The state of a lease is one word: units that are left, units given to Reserve, whose Settle
// charges them apart from the lease, how often it was asked, up to maxAsks, and whether it is
// closed.
const (
	unitBits     = 28
	maxLeased    = 1<<unitBits - 1
	reservedUnit = 1 << unitBits
	ask          = 1 << (2 * unitBits)
	maxAsks      = 15
	leaseClosed  = 1 << 63
)

func leftIn(state uint64) int64     { return int64(state & maxLeased) }
func reservedIn(state uint64) int64 { return int64(state >> unitBits & maxLeased) }
func asksIn(state uint64) int64     { return int64(state >> (2 * unitBits) & maxAsks) }

// take takes n units, to spend or to reserve. It returns how many were taken before, and false if n
// are not left, or the lease is closed.
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
		if asksIn(old) < maxAsks {
			next += ask
		}
		if le.state.CompareAndSwap(old, next) {
			return le.units - left, true
		}
	}
}

// Give returns n units that were not spent. It reports false if the lease is closed.
func (le *Lease) Give(n int64) bool { return le.change(n, 0) }

// Settle returns what of n reserved units was not spent. It reports false if the lease is closed.
func (le *Lease) Settle(n, actual int64) bool { return le.change(n-actual, n) }

// change adds to the units that are left, and takes off those that are reserved.
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
