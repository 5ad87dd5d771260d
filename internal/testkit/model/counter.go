package model

import (
	"math/big"

	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// SlidingWindowCounter is modeled by two windows.
var SlidingWindowCounter = register("sliding_window_counter", algorithm{new: func() store { return &slidingCounter{} }, spends: spends.Counter})

// slidingCounter has two neighboring aligned windows as they were at the last charge.
type slidingCounter struct {
	stored    bool
	start     int64 // the start of the later window
	cur, prev int64 // the units in the later window, and in the one before it
}

func (s *slidingCounter) clone() store {
	c := *s
	return &c
}

// clock returns an instant that is never before the later window, because the units of earlier windows are not stored.
func (s *slidingCounter) clock(_ Limit, now int64) int64 {
	if s.stored {
		return max(now, s.start)
	}
	return now
}

// at returns the windows that matter at t: the window of t and the one before it.
func (s *slidingCounter) at(l Limit, t int64) slidingCounter {
	v := slidingCounter{stored: true, start: windowStart(t, l.Period)}
	switch {
	case !s.stored:
	case v.start == s.start:
		v.cur, v.prev = s.cur, s.prev
	case v.start == s.start+l.Period:
		v.prev = s.cur
	}
	return v
}

// used returns p*(1-e/T) + c.
func (s *slidingCounter) used(l Limit, t int64) *big.Rat {
	v := s.at(l, t)
	weight := big.NewRat(v.start+l.Period-t, l.Period)
	return weight.Add(weight.Mul(weight, whole(v.prev)), whole(v.cur))
}

// retry returns the time until the first whole microsecond at which n fits. The count only falls while nothing is charged.
// So it suffices to solve for the instant in the window in which the count can become low enough: the present window if c
// leaves room for n, and otherwise the next one, where c has become p.
func (s *slidingCounter) retry(l Limit, t, n int64) *big.Rat {
	v := s.at(l, t)
	start, fading, room := v.start, v.prev, l.Count-n-v.cur
	if room < 0 {
		start, fading, room = v.start+l.Period, v.cur, l.Count-n
	}
	// fading*(1-e/T) <= room, so e >= T*(1-room/fading)
	e := big.NewRat(room, fading)
	e.Sub(whole(1), e)
	e.Mul(e, whole(l.Period))
	return whole(start + ceil(e) - t)
}

func (s *slidingCounter) reset(l Limit, t int64) *big.Rat {
	v := s.at(l, t)
	switch {
	case v.cur > 0: // the units fade during the whole next window
		return whole(v.start + 2*l.Period - t)
	case v.prev > 0:
		return whole(v.start + l.Period - t)
	}
	return new(big.Rat)
}

func (s *slidingCounter) charge(l Limit, t, n int64) ticket {
	*s = s.at(l, t)
	s.cur += n
	return ticket{units: n, start: s.start}
}

// refund stores the windows as they are at t, as a charge would. If there is nothing to refund, it stores nothing. It does
// not refund a charge to the window before: after a reset, nothing shows whether that is the same window.
func (s *slidingCounter) refund(l Limit, t int64, back ticket) {
	v := s.at(l, t)
	if back.start != v.start || v.cur == 0 {
		return
	}
	v.cur = max(0, v.cur-back.units)
	if v.cur == 0 && v.prev == 0 {
		v = slidingCounter{}
	}
	*s = v
}
