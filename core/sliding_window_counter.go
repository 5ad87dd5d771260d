package core

import (
	_ "embed"
	"fmt"
	"math/bits"
)

//go:embed sliding_window_counter.lua
var slidingWindowCounterScript string

var slidingWindowCounter = &algorithm{
	name:    "sliding_window_counter",
	tag:     "counter",
	script:  slidingWindowCounterScript,
	compile: func(l Limit) decider { return newCounter(l) },
}

// SlidingWindowCounter returns a [Limit] that comes close to a sliding window in
// constant memory: it counts the units in the current window, aligned to the Unix
// epoch, and in the one before, of which it takes the share that a window sliding
// behind the present still covers. It suits large limits that should be smooth,
// without a fixed window's double burst at the boundary.
//
// It is exact if the units of the window before came evenly. It keeps one string
// of about 25 bytes per key, and a decision takes constant time.
//
// The algorithm became known by Cloudflare, "How we built rate limiting capable
// of scaling to millions of domains", 2017.
func SlidingWindowCounter(r Rate, o ...LimitOption) Limit {
	return newLimit(slidingWindowCounter, r, o)
}

// A counter decides for [SlidingWindowCounter]. Its readings are the units in the
// current window and in the one before, and the start of the current one.
type counter struct {
	limit, period int64
	form          string // what is stored begins with it
	scale         scale  // of two windows
}

func newCounter(l Limit) *counter {
	c := &counter{limit: l.rate.count, period: l.rate.micros(), form: "C1 ", scale: newScale(2 * l.rate.count)}
	if l.name != "" {
		c.form = fmt.Sprintf("C1 %d ", c.period)
	}
	return c
}

func (c *counter) constants() []any { return []any{c.limit, c.period, c.form} }

func (c *counter) price(n int64) any { return min(n, c.limit+1) }

func (c *counter) plausible(r reading) bool {
	return r.x >= 0 && r.x <= 1<<31 && r.y >= 0 && r.y <= 1<<31 && r.z >= 0 && r.z <= r.t && r.t < r.z+c.period
}

func (c *counter) mark(r reading) int64 { return r.z }

func (c *counter) result(res *Result, r *reading, n int64, charged bool) {
	count, before := r.x, r.y
	res.Limit, res.Window = c.limit, micros(c.period)
	switch {
	case n > c.limit:
		res.RetryAfter = Never
	case !r.admits && n > 0:
		res.RetryAfter = micros(c.fits(r, n) - r.t)
	}
	if charged {
		count += n
	}
	left := r.z + c.period - r.t // of the current window
	weight := divCeil(before, left, c.period)
	res.Remaining = min(max(0, c.limit-count-weight), c.limit)
	switch {
	case count > 0:
		res.ResetAfter = micros(left + c.period)
	case before > 0:
		res.ResetAfter = micros(left)
	}
}

// fits returns the first instant at which n units would fit if nothing else came.
func (c *counter) fits(r *reading, n int64) int64 {
	if free := c.limit - r.x - n; free >= 0 {
		return max(r.t, r.z+c.faded(r.y, free))
	}
	return r.z + c.period + c.faded(r.x, c.limit-n)
}

// faded returns how far into a window the count before has lost enough of its
// weight to be at most free.
func (c *counter) faded(before, free int64) int64 {
	if before <= free {
		return 0
	}
	hi, lo := bits.Mul64(uint64(free), uint64(c.period))
	covered, _ := bits.Div64(hi, lo, uint64(before)) // less than the period, as free is less than before
	return c.period - int64(covered)
}

// divCeil returns a*b/c rounded up, for b at most c.
func divCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		q++
	}
	return int64(q)
}
