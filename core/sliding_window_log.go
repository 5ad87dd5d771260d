package core

import (
	_ "embed"
	"fmt"
)

//go:embed sliding_window_log.lua
var slidingWindowLogScript string

var slidingWindowLog = &algorithm{
	name:     "sliding_window_log",
	tag:      "log",
	script:   slidingWindowLogScript,
	validate: validateLog,
	compile: func(l Limit) decider {
		return &log{limit: l.rate.count, period: l.rate.micros(), scale: newScale(l.rate.count)}
	},
}

// maxLog is the largest count of a SlidingWindowLog, whose memory grows with it.
const maxLog = 100_000

// SlidingWindowLog returns a [Limit] that is exact in every window: in no period,
// wherever it begins, is more than the rate's count admitted. It remembers when
// each unit was admitted. It suits small limits that must hold to the letter,
// such as logins or payments.
//
// Its memory grows with the limit: a sorted set with an entry for each unit in
// the window, of about 20 bytes up to 128 of them and 118 bytes beyond, and time
// that grows with the cost. New refuses a count above 100,000: use
// [SlidingWindowCounter] there.
func SlidingWindowLog(r Rate, o ...LimitOption) Limit { return newLimit(slidingWindowLog, r, o) }

func validateLog(l Limit) error {
	if l.rate.count > maxLog {
		return fmt.Errorf("the count is %d, a sliding window log allows at most %d: use SlidingWindowCounter", l.rate.count, maxLog)
	}
	return nil
}

// A log decides for [SlidingWindowLog]. Its readings are the units used, the
// first member to add or the instant at which there is room, and the instant of
// the newest unit.
type log struct {
	limit, period int64
	scale         scale
}

func (l *log) constants() []any { return []any{l.limit, l.period} }

func (l *log) price(n int64) any { return min(n, l.limit+1) }

func (l *log) plausible(r reading) bool {
	return r.x >= 0 && r.x < maxInstant && r.y >= 0 && r.y < maxInstant && r.z >= 0 && r.z <= r.t
}

func (l *log) mark(r reading) int64 { return r.y }

func (l *log) result(res *Result, r *reading, n int64, charged bool) {
	res.Limit, res.Window = l.limit, micros(l.period)
	switch {
	case n > l.limit:
		res.RetryAfter = Never
	case !r.admits && n > 0:
		res.RetryAfter = micros(max(0, r.y-r.t))
	}
	used, newest := r.x, r.z
	if charged {
		used, newest = used+n, r.t
	}
	res.Remaining = max(0, l.limit-used)
	if used > 0 {
		res.ResetAfter = micros(max(0, newest+l.period-r.t))
	}
}
