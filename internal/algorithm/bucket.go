package algorithm

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
)

var bucketLua = readLua("token_bucket", bansLua)

// TokenBucket and GCRA are two names of one algorithm. Both store one instant: when the full capacity is
// available again. GCRA calls it the theoretical arrival time. A token bucket is full of tokens then.
//
// LeakyBucket, in queue.go, is the third bucket algorithm. It decides and stores alike: its queue is empty at
// the instant that is stored. It also delays the requests that it admits, can give back places, and has
// another default capacity.
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

// maxDrainYears bounds the time in which the debt of the whole capacity drains. After a longer time, the
// instant at which the debt ends, in microseconds since the Unix epoch, might not be exact in Redis.
const maxDrainYears = 100

func validateBucket(l Numbers) error {
	const year = 365 * 24 * 3600 * 1_000_000
	if newRatio(l.Count, l.Period).times(l.Burst).w > maxDrainYears*year {
		return fmt.Errorf("a burst of %d takes longer to drain than the %d years allowed: lower Burst or raise the rate",
			l.Burst, maxDrainYears)
	}
	return nil
}

// drainedInOneSecond returns how many units drain in one second, but at least 1 and at most 1e9. It is the
// default capacity of a leaky bucket.
func drainedInOneSecond(count, period int64) int64 {
	if count < 1 || period < 1 {
		return 1 // an invalid rate, which is refused elsewhere
	}
	hi, lo := bits.Mul64(uint64(count), 1_000_000)
	if hi >= uint64(period) {
		return 1_000_000_000
	}
	n, _ := bits.Div64(hi, lo, uint64(period))
	return min(max(1, int64(n)), 1_000_000_000)
}

// A bucket decides for [TokenBucket] and [GCRA]. It measures the used units as a debt: the time until
// the full capacity is available again. A charge adds the time of its units to the debt, which
// shrinks as time passes.
//
//	Observation  A and B are the debt: A whole microseconds and B parts of 1/q of a microsecond, see
//	             ratio. The debt exceeds maxDebt if more was charged than fits, and A is huge if the debt is
//	             too long to be exact. If the debt was stored at another rate than b's, C is the time until
//	             it has drained at that rate; otherwise C is 0
//	State        A and B are the instant at which the debt ends, in the same form. C is the rate at which
//	             the debt drains, in the form of the field rate
//	Handle       A and B are the instant at which the debt would end, as it was just after the charge
type bucket struct {
	capacity int64
	unit     ratio  // the time in which one unit drains
	unitCost span   // the same time as a span
	maxDebt  span   // the time in which the capacity drains: the debt at which nothing remains
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

// cost returns the debt that n units add, which is at most huge.
func (b *bucket) cost(n int64) span {
	if n == 1 {
		return b.unitCost
	}
	return b.unit.times(n)
}

// debt returns how much of the debt of s has not drained at now.
func (b *bucket) debt(s *State, now int64) span {
	if s.A < now {
		return span{}
	}
	return span{s.A - now, s.B}
}

// Evaluate observes the debt. If s was stored at another rate, Evaluate converts its debt to the rate of b:
// the used units stay used, so the time in which they drain changes.
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

// observe returns the results of Evaluate for a debt at the rate of b.
func (b *bucket) observe(debt span, now, n int64) (Observation, bool) {
	admits := !b.maxDebt.less(b.unit.add(debt, b.cost(n)))
	return Observation{At: now, A: debt.w, B: debt.f}, admits
}

// rate returns the units per microsecond that the field rate of a bucket, or State.C, has as bits.
func rate(bits int64) float64 { return math.Float64frombits(uint64(bits)) }

// up rounds a time up to whole microseconds. It first adds more than the products and quotients that led to
// micros can have been rounded down, so that the result is never too short. The Lua file does the same.
// The result is at most huge.
func up(micros float64) int64 {
	return int64(math.Ceil(min(micros*(1+1.0/(1<<50)), huge)))
}

// restated returns in which time some units drain at the rate to, if they drain in d at the rate from.
func restated(d, from, to int64) int64 { return up(float64(d) * (rate(from) / rate(to))) }

// Charge charges n units. If s was stored at another rate, its whole debt drains at the rate of b from now
// on. There is one exception, see keeps: the debt then keeps the rate at which it was stored, and the n
// units drain at that rate, too.
func (b *bucket) Charge(s *State, o Observation, n int64) {
	end := b.ChargeHandle(o, n)
	if b.keeps(o) {
		end = Handle{A: o.At + o.C + up(float64(n)/rate(s.C))}
	} else {
		s.C = b.rate
	}
	s.A, s.B = min(end.A, maxInstant-1), end.B
}

// keeps reports whether the debt that was observed keeps draining at the rate at which it was stored, even
// if b charges more. That is so if that rate is faster than b's, and the debt is larger than b could have
// admitted: earlier callers got results that say when this debt will have drained, and it must not take longer.
func (b *bucket) keeps(o Observation) bool { return o.C > 0 && o.C < o.A && o.A > b.maxDebt.w }

// chargeExpired charges n units whose hold expired at now. The whole debt then drains at one rate: the
// fastest rate at which the held units were reserved, or the rate of the stored debt if there is a debt and
// its rate is faster. So the result does not depend on which limiter finds the expired hold.
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
		force(b, s, now, n) // the time of n units at the rate of b is exact
		return
	}
	left := stored.micros()
	if s.C != drains {
		left = restated(left, s.C, drains)
	}
	s.A, s.B, s.C = min(now+left+up(float64(n)/rate(drains)), maxInstant-1), 0, drains
}

// Refund reduces the debt only if the charge was the last one, and b has the rate at which the debt is stored.
// After further charges it is not known how many of the n units have drained already.
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

// ChargeHandle returns the instant at which the debt ends after the charge.
func (b *bucket) ChargeHandle(o Observation, n int64) Handle {
	debt := b.unit.add(span{o.A, o.B}, b.cost(n))
	return Handle{o.At + debt.w, debt.f}
}

// WithHeld adds the debt of the held units. They drain at the rate at which Charge would make them drain.
func (b *bucket) WithHeld(o Observation, _, held int64) Observation {
	debt := b.unit.add(span{o.A, o.B}, b.cost(held))
	left := int64(0)
	if b.keeps(o) {
		left = o.drains(debt.w)
	}
	return Observation{o.At, min(debt.w, huge), debt.f, left}
}

// drains returns in which time a debt drains at the rate at which the debt of o was stored. If the debt of o is
// huge, its true size is not known, so the two debts cannot be compared, and drains returns the time in which
// the debt of o drains.
func (o Observation) drains(debt int64) int64 {
	switch {
	case o.C == 0:
		return debt
	case o.A >= huge:
		return o.C
	}
	return up(float64(debt) * (float64(o.C) / float64(o.A)))
}

// DeniedFor assumes that the debt drains at the faster one of two rates, b's and the rate at which it was
// stored: the next charge decides which of them applies.
func (b *bucket) DeniedFor(o Observation, n, _ int64) int64 {
	if o.C > o.A {
		o.C = 0
	}
	return b.Outcome(o, n, false, false).RetryAfter
}

// Adopt does nothing: State.C says at which rate the debt drains.
func (b *bucket) Adopt(*State, Evaluator, int64) {}

// MaxCharge returns n, because Charge bounds the instant at which the debt ends.
func (b *bucket) MaxCharge(_ Observation, n int64) int64 { return n }

func (b *bucket) Capacity() (units, window int64) { return b.capacity, b.maxDebt.micros() }

// Outcome assumes that the debt drains at the rate at which it was stored, unless units were charged: then
// it drains at the rate of b.
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

// A ratio is the time in which one unit drains, period/count microseconds, as the fraction p/q in lowest
// terms. Every sum of such times is a multiple of 1/q of a microsecond, so a [span] represents it exactly.
type ratio struct{ p, q int64 }

func newRatio(count, period int64) ratio {
	for a, b := period, count; ; a, b = b, a%b { // Euclid: a becomes the greatest common divisor
		if b == 0 {
			return ratio{period / a, count / a}
		}
	}
}

// A span is an amount of time: w whole microseconds and f parts of 1/q of a microsecond. f is less than q.
type span struct{ w, f int64 }

// huge, in microseconds, stands for every time that is too long for exact arithmetic. It is longer than the
// maxDebt of every valid bucket.
const huge = 1 << 60

// times returns the time in which n units drain. It is at most huge.
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

// units returns how many whole units drain within s. It is at most huge.
func (r ratio) units(s span) int64 {
	hi, lo := bits.Mul64(uint64(s.w), uint64(r.q))
	lo, carry := bits.Add64(lo, uint64(s.f), 0)
	if hi+carry >= uint64(r.p) {
		return huge
	}
	n, _ := bits.Div64(hi+carry, lo, uint64(r.p))
	return int64(min(n, huge))
}

// add returns a+b.
func (r ratio) add(a, b span) span {
	s := span{a.w + b.w, a.f + b.f}
	if s.f >= r.q {
		s.w, s.f = s.w+1, s.f-r.q
	}
	return s
}

// sub returns a-b, or zero if b is longer than a.
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
