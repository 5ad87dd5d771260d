package model

import (
	"math/big"
	"slices"
)

// holds are the units of one limit that were admitted and are not charged yet, each with an expiry.
type holds struct {
	id      int    // changes when the holds are lost, so that later holds are not mistaken for earlier ones
	live    []hold // in the order of their expiries, one for each
	expired *int64 // the newest expiry whose units were charged; nil if none were
	fastest Limit  // the limit with the highest rate at which any of live was reserved
}

type hold struct{ expiry, units int64 }

// total returns H, the sum of all held units.
func (h *holds) total() int64 {
	sum := int64(0)
	for _, each := range h.live {
		sum += each.units
	}
	return sum
}

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

// take removes units with this expiry. They must be held.
func (h *holds) take(expiry, units int64) {
	i := slices.IndexFunc(h.live, func(each hold) bool { return each.expiry == expiry })
	if i < 0 || h.live[i].units < units {
		panic("model: settles units that are not held")
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

// charged reports whether the units with this expiry have been charged. The clock does not show this, because it may have
// stepped back since.
func (h *holds) charged(expiry int64) bool { return h.expired != nil && expiry <= *h.expired }

// Expiry returns the instant at which units expire that are held from now on: now plus the duration of the hold, rounded up
// to a multiple of a sixth of the duration.
func (l Limit) Expiry(now int64) int64 {
	length := l.hold()
	grid := max(1, length/6)
	return -windowStart(-(now + length), grid)
}

// hold returns the duration for which l holds units: Hold, or by default the time in which the whole capacity comes back,
// but at least a second and at most a minute.
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
