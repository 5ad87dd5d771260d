package model

import (
	"math/big"
	"slices"
)

// holds has the units of one limit that were admitted and are not charged yet.
type holds struct {
	id      int    // identifies these holds: after a loss, the limit has holds with another id
	live    []hold // in the order of their expiries, which all differ
	expired *int64 // the latest expiry of a hold that was charged, or nil if none was charged
	fastest Limit  // of the limits by which units of live were reserved, the one with the highest rate
}

// A hold has all units that expire at the same instant.
type hold struct{ expiry, units int64 }

// total returns the sum of all held units.
func (h *holds) total() int64 {
	sum := int64(0)
	for _, each := range h.live {
		sum += each.units
	}
	return sum
}

// add adds units that expire at expiry.
func (h *holds) add(expiry, units int64) {
	i := slices.IndexFunc(h.live, func(each hold) bool { return each.expiry >= expiry })
	switch {
	case i < 0:
		h.live = append(h.live, hold{expiry, units})
	case h.live[i].expiry == expiry:
		h.live[i].units += units
	default:
		h.live = slices.Insert(h.live, i, hold{expiry, units})
	}
}

// take removes units that expire at expiry. It panics if there are fewer.
func (h *holds) take(expiry, units int64) {
	i := slices.IndexFunc(h.live, func(each hold) bool { return each.expiry == expiry })
	if i < 0 || h.live[i].units < units {
		panic("model: what is settled is not held")
	}
	if h.live[i].units -= units; h.live[i].units == 0 {
		h.live = slices.Delete(h.live, i, i+1)
	}
}

// due removes the holds that have expired at now, and returns them in the order of their expiries.
func (h *holds) due(now int64) []hold {
	n := 0
	for n < len(h.live) && h.live[n].expiry <= now {
		n++
	}
	due := slices.Clone(h.live[:n])
	h.live = slices.Delete(h.live, 0, n)
	for _, each := range due {
		if h.expired == nil || each.expiry > *h.expired {
			h.expired = &each.expiry
		}
	}
	return due
}

// charged reports whether the units that were held until expiry have been charged. This cannot be told by the clock,
// because it may have stepped back since then.
func (h *holds) charged(expiry int64) bool { return h.expired != nil && expiry <= *h.expired }

// Expiry returns the instant at which units expire that l begins to hold at now: after the time of a hold, rounded up to a
// multiple of a sixth of that time.
func (l Limit) Expiry(now int64) int64 {
	length := l.hold()
	grid := max(1, length/6)
	return -windowStart(-(now + length), grid)
}

// hold returns for how long l holds units. This is l.Hold, or by default the time in which the whole capacity becomes
// available again, but at least a second and at most a minute.
func (l Limit) hold() int64 {
	if l.Hold > 0 {
		return l.Hold
	}
	const second = 1_000_000
	whole := big.NewRat(l.Period, 1)
	if l.bucket() {
		whole = l.drain(big.NewRat(l.Burst, 1))
	}
	if whole.Cmp(big.NewRat(60*second, 1)) > 0 {
		return 60 * second
	}
	return max(second, ceil(whole))
}
