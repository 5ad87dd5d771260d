package algorithm

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
)

var bucketLua = readLua("token_bucket", bansLua)

// TokenBucket and GCRA, and LeakyBucket, are the three bucket algorithms. They decide alike and
// store alike: the one instant at which the full capacity is available again. GCRA calls it the
// theoretical arrival time; a token bucket is full then, and a leaky bucket empty. A leaky bucket
// also delays what it admits, and has another default capacity: see queue.go.
var (
	TokenBucket = &Kind{
		Name: "token_bucket", Tag: "token", Bursts: true, Debt: true, Validate: validateBucket, New: newBucket,
		lua: bucketLua,
	}
	GCRA = &Kind{
		Name: "gcra", Tag: "gcra", Bursts: true, Debt: true, Validate: validateBucket, New: newBucket,
		lua: bucketLua,
	}
)

// maxDrainYears bounds the time in which a full bucket drains: beyond it microseconds since the
// epoch would not be exact in Redis.
const maxDrainYears = 100

func validateBucket(l Numbers) error {
	const year = 365 * 24 * 3600 * 1_000_000
	if newRatio(l.Count, l.Period).times(l.Burst).w > maxDrainYears*year {
		return fmt.Errorf("a burst of %d takes longer to drain than the %d years allowed: lower Burst or raise the rate",
			l.Burst, maxDrainYears)
	}
	return nil
}

// drainedInOneSecond returns the units that drain in one second, from 1 to 1e9: the default
// capacity of a leaky bucket.
func drainedInOneSecond(count, period int64) int64 {
	if count < 1 || period < 1 {
		return 1 // the rate is refused elsewhere
	}
	hi, lo := bits.Mul64(uint64(count), 1_000_000)
	if hi >= uint64(period) {
		return 1_000_000_000
	}
	n, _ := bits.Div64(hi, lo, uint64(period))
	return min(max(1, int64(n)), 1_000_000_000)
}

// A bucket decides for the bucket algorithms. It measures what is used as a debt: the time until
// the full capacity is available again. A charge adds the time of its units to the debt, which
// shrinks as time passes.
//
//	Observation  the debt: A whole microseconds and B parts of 1/q. It is above the
//	             capacity if more was charged than fits, and huge if it is that or more.
//	             Of what is stored at another rate, C is how long it still takes there;
//	             else C is 0
//	State        the instant at which the debt ends: A and B likewise. C is the rate at
//	             which it is stored, as in bucket
type bucket struct {
	capacity int64
	unit     ratio  // the time of one unit
	unitCost span   // the same as a span
	maxDebt  span   // the debt when nothing remains
	form     string // a version and the rate, with which a value in Redis begins; see lua/token_bucket.lua
	period   int64
	rate     int64 // units in a microsecond: the bits of a float64
}

func newBucket(l Numbers) Evaluator { return makeBucket(l) }

func makeBucket(l Numbers) *bucket {
	b := &bucket{capacity: l.Burst, unit: newRatio(l.Count, l.Period), period: l.Period}
	b.unitCost, b.maxDebt = b.unit.times(1), b.unit.times(b.capacity)
	b.rate = int64(math.Float64bits(float64(l.Count) / float64(l.Period)))
	b.form = fmt.Sprintf("B1 %d ", l.Count)
	if l.Named {
		b.form = fmt.Sprintf("B1 %d/%d ", l.Count, l.Period)
	}
	return b
}

// cost returns the debt that n units add, or huge.
func (b *bucket) cost(n int64) span {
	if n == 1 {
		return b.unitCost
	}
	return b.unit.times(n)
}

// debt returns what remains at now of the debt of s.
func (b *bucket) debt(s *State, now int64) span {
	if s.A < now {
		return span{}
	}
	return span{s.A - now, s.B}
}

// Evaluate restates what another rate has left. The units that are used stay used: they take
// another time.
func (b *bucket) Evaluate(s *State, now, n int64) (Observation, bool) {
	debt, left := b.debt(s, now), int64(0)
	if s.C != b.rate {
		left = debt.micros()
		debt = span{w: restated(left, s.C, b.rate)}
	}
	o, admits := b.observe(debt, now, n)
	o.C = left
	return o, admits
}

// observe returns what Evaluate does where a debt is at this rate.
func (b *bucket) observe(debt span, now, n int64) (Observation, bool) {
	admits := !b.maxDebt.less(b.unit.add(debt, b.cost(n)))
	return Observation{At: now, A: debt.w, B: debt.f}, admits
}

func rate(bits int64) float64 { return math.Float64frombits(uint64(bits)) }

// up rounds a time up, by more than its own factors were rounded. So does Lua. It is at most huge.
func up(micros float64) int64 {
	return int64(math.Ceil(min(micros*(1+1.0/(1<<50)), huge)))
}

// restated returns the time that units take at the rate to, if they take d at the rate from.
func restated(d, from, to int64) int64 { return up(float64(d) * (rate(from) / rate(to))) }

// Charge takes over what another rate has left, but for a faster one of which more is used than
// this limit could have admitted: others were promised how that drains.
func (b *bucket) Charge(s *State, o Observation, n int64) {
	end := b.ChargeHandle(o, n)
	if b.keeps(o) {
		end = Handle{A: o.At + o.C + up(float64(n)/rate(s.C))}
	} else {
		s.C = b.rate
	}
	s.A, s.B = min(end.A, maxInstant-1), end.B
}

func (b *bucket) keeps(o Observation) bool { return o.C > 0 && o.C < o.A && o.A > b.maxDebt.w }

// chargeExpired charges n units whose hold expired at now. They drain, with what is stored, at the
// fastest rate at which they were reserved, or at that of what is stored if it is faster. So it does
// not matter whose decision it is that finds them.
func (b *bucket) chargeExpired(s *State, now, n int64) {
	if n == 0 {
		return
	}
	stored := b.debt(s, now)
	drains := s.holds.rate
	if stored != (span{}) && rate(s.C) > rate(drains) {
		drains = s.C
	}
	if drains == b.rate {
		force(b, s, now, n) // without rounding
		return
	}
	left := stored.micros()
	if s.C != drains {
		left = restated(left, s.C, drains)
	}
	s.A, s.B, s.C = min(now+left+up(float64(n)/rate(drains)), maxInstant-1), 0, drains
}

// Refund reduces the debt only if the charge is the last: what drained since, and what others were
// charged on top, cannot be told apart otherwise.
func (b *bucket) Refund(s *State, now, n int64, id Handle) {
	if id != (Handle{s.A, s.B}) || s.C != b.rate {
		return
	}
	debt := b.unit.sub(b.debt(s, now), b.cost(n))
	s.A, s.B = now+debt.w, debt.f
}

func (b *bucket) ResetAt(s *State) int64 { return span{s.A, s.B}.micros() }

func (b *bucket) Usage(s *State, now int64) float64 {
	return float64(b.debt(s, now).w) / float64(b.maxDebt.w+1)
}

func (b *bucket) Constants() []any {
	return []any{b.form, b.maxDebt.w, b.maxDebt.f, b.unit.q, b.period}
}

func (b *bucket) Cost(args []any, n int64) []any {
	cost := b.cost(n)
	return append(args, cost.w, cost.f)
}

func (b *bucket) Valid(o Observation) bool {
	return o.A >= 0 && o.A <= huge && o.B >= 0 && o.B < b.unit.q && o.C >= 0 && o.C < maxInstant
}

// ChargeHandle is the instant at which the debt ends with the charge.
func (b *bucket) ChargeHandle(o Observation, n int64) Handle {
	debt := b.unit.add(span{o.A, o.B}, b.cost(n))
	return Handle{o.At + debt.w, debt.f}
}

func (b *bucket) WithHeld(o Observation, _, held int64) Observation {
	debt := b.unit.add(span{o.A, o.B}, b.cost(held))
	left := int64(0)
	if b.keeps(o) {
		left = o.drains(debt.w)
	}
	return Observation{o.At, min(debt.w, huge), debt.f, left}
}

// drains returns in which time a part of the debt of o drains at the rate that is stored. Of a debt
// that is huge it is not known what part that is: it returns the time of all.
func (o Observation) drains(debt int64) int64 {
	switch {
	case o.C == 0:
		return debt
	case o.A >= huge:
		return o.C
	}
	return up(float64(debt) * (float64(o.C) / float64(o.A)))
}

// DeniedFor goes by the faster of both rates: whoever charges next may restate.
func (b *bucket) DeniedFor(o Observation, n, _ int64) int64 {
	if o.C > o.A {
		o.C = 0
	}
	return b.Outcome(o, n, false, false).RetryAfter
}

// Adopt has nothing to do: s says at which rate its debt drains.
func (b *bucket) Adopt(*State, Evaluator, int64) {}

// MaxCharge is all: Charge bounds when a debt ends.
func (b *bucket) MaxCharge(_ Observation, n int64) int64 { return n }

func (b *bucket) Capacity() (units, window int64) { return b.capacity, b.maxDebt.micros() }

// Outcome has all drain at the rate that is stored, until something is charged.
func (b *bucket) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	debt := span{o.A, o.B}
	var out Outcome
	switch {
	case n > b.capacity:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = o.drains(b.unit.sub(b.unit.add(debt, b.cost(n)), b.maxDebt).micros())
	}
	if charged {
		debt, o.C = b.unit.add(debt, b.cost(n)), 0
	}
	out.Remaining = b.unit.units(b.unit.sub(b.maxDebt, debt))
	out.ResetAfter = cmp.Or(o.C, debt.micros())
	return out
}

// A ratio is the time of one unit, period/count microseconds, as p/q in lowest terms. Every sum of
// such times is a multiple of 1/q, and so is exact as a [span].
type ratio struct{ p, q int64 }

func newRatio(count, period int64) ratio {
	for a, b := period, count; ; a, b = b, a%b { // Euclid: a becomes the greatest common divisor
		if b == 0 {
			return ratio{period / a, count / a}
		}
	}
}

// A span is an amount of time: w whole microseconds and f parts of 1/q, which are less than one.
type span struct{ w, f int64 }

// huge stands for any time that is too long to be exact. It is longer than the maxDebt of any
// bucket that is allowed.
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

// units returns how many whole units take no longer than s, if that can be told.
func (r ratio) units(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.w), uint64(r.q))
	lo, carry := bits.Add64(lo, uint64(s.f), 0)
	if hi+carry >= uint64(r.p) {
		return huge
	}
	n, _ := bits.Div64(hi+carry, lo, uint64(r.p))
	return int64(min(n, huge))
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
