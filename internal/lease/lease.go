// Package lease manages leases of frequently used keys. A lease is a number of units that Redis holds for this
// process, which spends them without further calls to Redis.
//
//	lease.go     Lease: the units of one lease, whose state is one atomic word
//	hot_key.go   which keys are hot, and how many units of each are worth leasing
//	exchange.go  Leases: settles the last lease of a key and takes the next one, in the background
package lease

import (
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// share says how large a lease may be: at most 1/share of the units that remained when Redis last replied.
const share = 8

// An Instant is a reading of both clocks of this process: the wall clock, which may be adjusted, and the
// monotonic clock, which may stand still while the machine is suspended.
type Instant struct {
	Wall, Mono time.Duration // Wall counts from the Unix epoch, and Mono from an arbitrary origin
}

// Since returns the time from earlier to t, by the clock that shows the longer time.
func (t Instant) Since(earlier Instant) time.Duration {
	return max(t.Wall-earlier.Wall, t.Mono-earlier.Mono)
}

// spendable returns for how long a lease of duration d may be spent, counted from when its request was sent.
// Redis counts d from the time at which it received the request, which is later. spendable is a little
// shorter than d, by a millisecond and 0.1 %, because clocks run at different rates. This is only the bound:
// usually a lease is closed earlier, so that its settlement reaches Redis before d is over; see margin.
func spendable(d time.Duration) time.Duration { return d - time.Millisecond - d/1000 }

// A Lease has units that this process may spend until the lease is closed, but no longer than spendable(lasts)
// after sent.
type Lease struct {
	// Handles has the handle under which each limit holds the units.
	Handles []algorithm.Handle

	hot     *HotKey
	lasts   time.Duration      // for how long Redis holds the units before it charges them
	units   int64              // how many units the lease had at the beginning
	sent    Instant            // when the request was sent
	granted Instant            // when the reply came
	answers []algorithm.Answer // the answers of the call that took the lease
	state   atomic.Uint64      // see unitBits
}

// Lasts returns for how long Redis holds the units.
func (le *Lease) Lasts() time.Duration { return le.lasts }

// Sent returns when the request for the lease was sent.
func (le *Lease) Sent() Instant { return le.sent }

// SettleHandles returns the handles for a settlement that is sent at now. See algorithm.MarkExpired.
func (le *Lease) SettleHandles(now Instant) []algorithm.Handle {
	return algorithm.MarkExpired(le.hot.limits.Limits, le.Handles, now.Since(le.granted).Microseconds(), le.lasts.Microseconds())
}

// Age returns how long before now Redis answered the request for the lease.
func (le *Lease) Age(now Instant) time.Duration { return max(0, now.Since(le.granted)) }

// Spend takes n units from the lease, to spend them or, if reserve is set, to reserve them. It returns how
// many units of the lease were already taken, without those that were given back. ok is false, and nothing is
// taken, if le is nil, if fewer than n units are left, if the lease is closed or too old, or if its request was
// sent after now.
func (le *Lease) Spend(n int64, reserve bool, now Instant) (taken int64, ok bool) {
	if le == nil || n > le.units {
		return 0, false
	}
	age, last := now.Since(le.sent), spendable(le.lasts)
	if reserve {
		last /= 2 // a reservation needs time for a renewal before the lease ends; the renewal gives the units a hold of their own
	}
	if age < 0 || age >= last {
		return 0, false
	}
	return le.take(n, reserve)
}

// open reports whether le is not nil, and is not closed.
func (le *Lease) open() bool { return le != nil && le.state.Load()&leaseClosed == 0 }

// Answers appends one answer for each limit to a slice, and returns the slice. The answers are for a request that
// has spent units of the lease; taken is what Spend returned for it. They are the answers of Redis to the request
// for the lease, except that the taken units count as held, too.
func (le *Lease) Answers(to []algorithm.Answer, taken int64) []algorithm.Answer {
	to = append(to, le.answers...)
	for i := range to {
		to[i].Held += taken
	}
	return to
}

// The state of a lease is one word, from its lowest bit:
//
//	28 bits  how many units are left
//	28 bits  how many units are reserved and not settled yet
//	 4 bits  how many decisions used the lease; the count stops at maxDecisions
//	 1 bit   the highest bit: whether the lease is closed
//
// When a lease is closed, its reserved units are not settled with it. Each reservation settles its own.
const (
	unitBits     = 28
	maxLeased    = 1<<unitBits - 1
	reservedUnit = 1 << unitBits
	oneDecision  = 1 << (2 * unitBits)
	maxDecisions = 15
	leaseClosed  = 1 << 63
)

func leftIn(state uint64) int64      { return int64(state & maxLeased) }
func reservedIn(state uint64) int64  { return int64(state >> unitBits & maxLeased) }
func decisionsIn(state uint64) int64 { return int64(state >> (2 * unitBits) & maxDecisions) }

// take is Spend without the check of the time: ok is false only if fewer than n units are left, or if the lease is
// closed.
func (le *Lease) take(n int64, reserve bool) (taken int64, ok bool) {
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
			next += oneDecision
		}
		if le.state.CompareAndSwap(old, next) {
			return le.units - left, true
		}
	}
}

// Give gives back n units that were taken but not spent. It returns false if the lease is closed.
func (le *Lease) Give(n int64) bool { return le.change(n, 0) }

// Settle settles n units that were reserved and of which actual were spent, and gives the others back to the
// lease. actual must not be more than n. Settle returns false if the lease is closed.
func (le *Lease) Settle(n, actual int64) bool { return le.change(n-actual, n) }

// change adds left to the units that are left, and subtracts reserved from the units that are reserved. It
// returns false if the lease is closed.
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
