package model

import (
	"math/big"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// FixedWindow is modeled by its last window.
var FixedWindow = register("fixed_window", algorithm{new: func() store { return &fixedWindow{} }, spends: spends.Windows})

// fixedWindow is the window that was charged last. It may have ended.
type fixedWindow struct {
	stored bool
	start  int64
	units  int64
}

func (w *fixedWindow) clone() store {
	c := *w
	return &c
}

// clock is never before the start of the stored window. The count of an earlier window is not stored any more, so its
// units would be admitted a second time.
func (w *fixedWindow) clock(_ Limit, now int64) int64 {
	if w.stored {
		return max(now, w.start)
	}
	return now
}

// open reports whether a window is stored and has not ended at t.
func (w *fixedWindow) open(l Limit, t int64) bool {
	return w.stored && t < w.start+l.Period
}

func (w *fixedWindow) window(l Limit) (start, end int64, ok bool) {
	if !w.stored {
		return 0, 0, false
	}
	return w.start, w.start + l.Period, true
}

func (w *fixedWindow) used(l Limit, t int64) *big.Rat {
	if !w.open(l, t) {
		return new(big.Rat)
	}
	return whole(w.units)
}

// reset returns the time until the end of the window. A window that is stored always has used units.
func (w *fixedWindow) reset(l Limit, t int64) *big.Rat {
	if !w.open(l, t) {
		return new(big.Rat)
	}
	return whole(w.start + l.Period - t)
}

// retry returns the same as reset, because all units of a window leave together.
func (w *fixedWindow) retry(l Limit, t, _ int64) *big.Rat { return w.reset(l, t) }

func (w *fixedWindow) charge(l Limit, t, n int64) ticket {
	if !w.open(l, t) {
		start := t
		if l.Aligned {
			start = windowStart(t, l.Period)
		}
		*w = fixedWindow{stored: true, start: start}
	}
	w.units += n
	return ticket{units: n, start: w.start}
}

// refund takes units back from the window that was charged, if it is still open.
func (w *fixedWindow) refund(l Limit, t int64, back ticket) {
	if !w.open(l, t) || w.start != back.start {
		return
	}
	w.units -= back.units
	if w.units <= 0 { // the next charge opens its own window
		*w = fixedWindow{}
	}
}
