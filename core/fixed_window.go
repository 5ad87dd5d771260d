package core

import _ "embed"

//go:embed fixed_window.lua
var fixedWindowScript string

var fixedWindow = &algorithm{
	name:    "fixed_window",
	tag:     "fixed",
	script:  fixedWindowScript,
	compile: func(l Limit) decider { return newWindow(l) },
}

// FixedWindow returns a [Limit] that counts: at most the rate's count in each
// window of the rate's period. A window opens with its first admitted request
// and lasts for the period; with [Aligned] windows start at multiples of the
// period since the Unix epoch. It suits quotas that people know by heart, such
// as 5000 a day.
//
// It is the cheapest algorithm and the coarsest: around the boundary of two
// windows up to twice the limit may pass within one period. It keeps one string
// of about 25 bytes per key, and a decision takes constant time.
func FixedWindow(r Rate, o ...LimitOption) Limit { return newLimit(fixedWindow, r, o) }

// A window decides for [FixedWindow]. Its readings are the units used, the start
// of the window and its length.
type window struct {
	limit, period  int64
	aligned, named bool
	scale          scale
}

func newWindow(l Limit) *window {
	return &window{
		limit:   l.rate.count,
		period:  l.rate.micros(),
		aligned: l.aligned,
		named:   l.name != "",
		scale:   newScale(l.rate.count),
	}
}

func (w *window) constants() []any {
	kind := ""
	switch {
	case w.aligned && w.named:
		kind = "aligned named"
	case w.aligned:
		kind = "aligned"
	case w.named:
		kind = "named"
	}
	return []any{w.limit, w.period, kind}
}

func (w *window) price(n int64) any { return min(n, w.limit+1) }

func (w *window) plausible(r reading) bool {
	return r.x >= 0 && r.x < maxInstant && r.y >= 0 && r.z > 0 && r.y+r.z > r.t && r.y+r.z < maxInstant
}

func (w *window) mark(r reading) int64 { return r.y }

func (w *window) result(res *Result, r *reading, n int64, charged bool) {
	used, remains := r.x, micros(r.y+r.z-r.t)
	res.Limit, res.Window = w.limit, micros(w.period)
	switch {
	case n > w.limit:
		res.RetryAfter = Never
	case !r.admits && n > 0:
		res.RetryAfter = remains
	}
	if charged {
		used += n
	}
	res.Remaining = max(0, w.limit-used)
	if used > 0 {
		res.ResetAfter = remains
	}
}
