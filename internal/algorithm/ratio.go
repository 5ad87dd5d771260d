package algorithm

import "math/bits"

// A ratio is the time of one unit, period/count microseconds, as p/q in lowest terms.
// Every sum of such times is a multiple of 1/q, and so is exact as a [span].
type ratio struct{ p, q int64 }

func newRatio(count, period int64) ratio {
	for a, b := period, count; ; a, b = b, a%b { // Euclid: a becomes the greatest common divisor
		if b == 0 {
			return ratio{period / a, count / a}
		}
	}
}

// A span is an amount of time: w whole microseconds and f parts of 1/q, which are
// less than one.
type span struct{ w, f int64 }

// huge stands for any time that is too long to be exact. It is longer than the maxDebt
// of any bucket that is allowed.
const huge = 1 << 60

// times returns the time that n units take, or huge.
func (r ratio) times(n int64) span {
	hi, lo := bits.Mul64(uint64(n), uint64(r.p))
	if hi >= uint64(r.q) {
		return span{w: huge}
	}
	w, f := bits.Div64(hi, lo, uint64(r.q))
	if w > huge {
		return span{w: huge}
	}
	return span{int64(w), int64(f)}
}

// units returns how many whole units take no longer than s.
func (r ratio) units(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.w), uint64(r.q))
	lo, carry := bits.Add64(lo, uint64(s.f), 0)
	n, _ := bits.Div64(hi+carry, lo, uint64(r.p))
	return int64(n)
}

func (r ratio) add(a, b span) span {
	s := span{a.w + b.w, a.f + b.f}
	if s.f >= r.q {
		s.w, s.f = s.w+1, s.f-r.q
	}
	return s
}

// sub returns a-b, or zero where b is longer.
func (r ratio) sub(a, b span) span {
	if a.less(b) {
		return span{}
	}
	s := span{a.w - b.w, a.f - b.f}
	if s.f < 0 {
		s.w, s.f = s.w-1, s.f+r.q
	}
	return s
}

func (s span) less(o span) bool { return s.w < o.w || s.w == o.w && s.f < o.f }

// micros returns s in whole microseconds, rounded up.
func (s span) micros() int64 {
	if s.f > 0 {
		return s.w + 1
	}
	return s.w
}
