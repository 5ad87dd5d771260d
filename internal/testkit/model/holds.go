package model

import (
	"math/big"
	"slices"
)

// holds are units of one limit that were admitted and are not charged yet, each until
// an expiry.
type holds struct {
	id      int    // which holds these are: others than before, once they were lost
	live    []hold // by expiry, one of each
	expired *int64 // the newest expiry that was charged; nil: none was
	fastest Limit  // the one with the highest rate by which any of live were reserved
}

type hold struct{ expiry, units int64 }

// total is H, the sum of all held units.
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

// take removes units of one expiry, and of no other.
func (h *holds) take(expiry, units int64) {
	i := slices.IndexFunc(h.live, func(each hold) bool { return each.expiry == expiry })
	if i < 0 || h.live[i].units < units {
		panic("model: what is settled is not held")
	}
	if h.live[i].units -= units; h.live[i].units == 0 {
		h.live = slices.Delete(h.live, i, i+1)
	}
}

// due removes the holds that are expired at now, and returns them in order of expiry.
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

// charged reports whether the units of an expiry were charged when it came. The clock
// does not say so, because it may have stepped back since.
func (h *holds) charged(expiry int64) bool { return h.expired != nil && expiry <= *h.expired }

// Expiry is the instant at which units expire that are held from now on: now and the
// hold, rounded up to a sixth of the hold.
func (l Limit) Expiry(now int64) int64 {
	length := l.hold()
	grid := max(1, length/6)
	return -windowStart(-(now + length), grid)
}

// hold is for how long l holds units: Hold, or by default the time in which the whole
// capacity comes back, but at least a second and at most a minute.
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
