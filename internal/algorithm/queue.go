package algorithm

import (
	"slices"
)

// LeakyBucket is a bucket whose units have places in a queue. An admitted request waits for the turn of
// its place. If a place is given back before its turn, it becomes a free place, and a later request can
// take it.
var LeakyBucket = &Kind{
	Name: "leaky_bucket", Tag: "leaky", Bursts: true, Debt: true, Validate: validateBucket, New: newQueue,
	Delays: true, Unleasable: "its units are places in a queue", DefaultBurst: drainedInOneSecond,
	lua: readLua("leaky_bucket", bucketLua),
}

// maxFree is the largest number of free places that a queue remembers. If there are more, the queue
// forgets the free places nearest to its end. Nobody takes those units, and their turns pass unused.
const maxFree = 128

// A queue decides for [LeakyBucket].
//
// The units of a queue have numbers, which begin with 0 at an instant that is called the epoch. A place
// is a range of these numbers, and is free or taken. A free place that has begun loses the units that
// have begun; its other units stay free.
//
// A new epoch begins:
//   - if a charge finds the queue empty. The epoch is the instant of the charge.
//   - if the rate of the limit has changed; see Adopt.
//   - if the end of the queue is more than `longest` after the epoch, and a charge takes no free place. The
//     epoch is the instant of the charge.
//
// With a new epoch, the queue forgets its free places, and places that were taken before cannot be given back
// any more. (An exception: after a reset, the new epoch can be the same microsecond as the previous one.)
//
//	Observation  A and B as in bucket: the time from now to the end of the queue. C is about free places:
//	             see pack
//	State        A and B as in bucket: the instant at which the queue ends. C is the epoch. log has the
//	             free places in the order of their numbers. No two of them touch, and none touches the end
//	             of the queue
//	Handle       of a taken place: A the epoch, B the number of the first unit after the place
//
// The end of a queue need not be a whole number of units after the epoch, for example if the rate has
// changed. The remainder, which is less than a unit, is left out when times become numbers of units. It is
// the same for every place, so it does not change the distances between places.
type queue struct {
	bucket

	// longest is the time in which 2^37 units drain. The debt of more than 2^38 units would not be exact in Lua.
	longest int64
}

func newQueue(l Numbers) Evaluator {
	b := makeBucket(l)
	return &queue{*b, b.unit.times(1 << 37).w}
}

// pack returns the C of an Observation, which combines two numbers of units. If the cost takes a free place,
// before is the distance from the beginning of that place to the end of the queue. Otherwise before is 0: if
// the cost is admitted, its place is at the end. largest is the size of the largest free place.
func pack(before, largest int64) int64 { return before | largest<<packed }

// unpack returns the two numbers that pack has combined.
func unpack(c int64) (before, largest int64) { return c & (1<<packed - 1), c >> packed }

// packed is the number of bits that pack uses for a number of units. 30 bits are enough, because a
// capacity is at most 1e9.
const packed = 30

// units returns how many units there are between the epoch and the end of the queue, and how many of them
// have not begun at now. The units that have not begun are the last ones.
func (q *queue) units(s *State, now int64) (all, waiting int64) {
	all = q.unit.units(q.unit.sub(span{s.A, s.B}, span{w: s.C}))
	return all, q.unit.units(q.debt(s, now))
}

// waiting returns the i-th free place without its units that have begun: those whose number is below
// begun. If all of them have begun, the result is an empty place.
func waiting(free logEntries, i int, begun int64) logEntry {
	p := free[i]
	p.at = min(max(p.at, begun), p.number)
	return p
}

func (q *queue) Evaluate(s *State, now, n int64) (Observation, bool) {
	o, admits := q.observe(q.debt(s, now), now, n)
	free := entries(s)
	if len(free) == 0 {
		return o, admits
	}
	all, left := q.units(s, now)
	before, largest := int64(0), int64(0)
	for i := range free {
		p := waiting(free, i, all-left)
		size := p.number - p.at
		if before == 0 && n > 0 && n <= min(size, q.capacity) {
			before, admits = all-p.at, true
		}
		largest = max(largest, size)
	}
	o.C = pack(before, largest)
	return o, admits
}

func (q *queue) Charge(s *State, o Observation, n int64) {
	before, _ := unpack(o.C)
	if before == 0 {
		if o.A == 0 && o.B == 0 || s.A-s.C > q.longest {
			s.C, s.log = o.At, nil
		}
		end := q.ChargeHandle(o, n)
		s.A, s.B = end.A, end.B
		return
	}
	all, _ := q.trim(s, o.At)
	free := entries(s)
	i := slices.IndexFunc(free, func(p logEntry) bool { return p.at == all-before })
	if free[i].at += n; free[i].at == free[i].number {
		*s.log = slices.Delete(free, i, i+1)
	}
}

// trim removes the units that have begun from the free places of s. It returns what units returns.
func (q *queue) trim(s *State, now int64) (all, left int64) {
	all, left = q.units(s, now)
	if s.log != nil {
		for i := range *s.log {
			(*s.log)[i] = waiting(*s.log, i, all-left)
		}
		*s.log = slices.DeleteFunc(*s.log, func(p logEntry) bool { return p.at == p.number })
	}
	return all, left
}

// left returns c, the C of an Observation whose cost has been charged to s, with the size of the largest free
// place that is still left.
func (q *queue) left(s *State, c int64) int64 {
	before, _ := unpack(c)
	if before == 0 && s.log != nil {
		return c // the free places are as they were
	}
	largest := int64(0)
	for _, p := range entries(s) {
		largest = max(largest, p.number-p.at)
	}
	return pack(before, largest)
}

// handle returns the handle of a place, which is the place of n units that were charged after the queue had
// been observed as o. epoch is the epoch of the queue after the charge.
func (q *queue) handle(o Observation, n, epoch int64) Handle {
	before, _ := unpack(o.C)
	end := q.unit.add(span{o.At + o.A, o.B}, q.unit.times(n))
	return Handle{epoch, q.unit.units(q.unit.sub(q.unit.sub(end, span{w: epoch}), q.unit.times(before)))}
}

// Refund makes the place of a charge a free place. It does nothing if the turn of the place has begun, or if
// the queue has another epoch than at the charge. If the place is at the end, the queue becomes shorter
// instead.
func (q *queue) Refund(s *State, now, n int64, id Handle) {
	all, _ := q.units(s, now)
	if first := id.B - n; id.A != s.C || first < 0 || id.B > all || !q.unit.times(all-first).less(q.debt(s, now)) {
		return
	}
	q.trim(s, now)
	if s.log == nil {
		s.log = new(logEntries)
	}
	free := entries(s)
	i := 0
	for i < len(free) && free[i].at < id.B {
		i++
	}
	free = slices.Insert(free, i, logEntry{at: id.B - n, number: id.B})
	for _, j := range []int{i + 1, i} { // merge the place with the next one, and with the one before
		if j > 0 && j < len(free) && free[j-1].number == free[j].at {
			free[j-1].number = free[j].number
			free = slices.Delete(free, j, j+1)
		}
	}
	if last := free[len(free)-1]; last.number == all { // the last free place touches the end: the queue becomes shorter
		debt := q.unit.sub(q.debt(s, now), q.unit.times(last.number-last.at))
		s.A, s.B = now+debt.w, debt.f
		free = free[:len(free)-1]
	}
	*s.log = free[:min(len(free), maxFree)]
	if len(free) == 0 {
		s.log = nil
	}
}

func (q *queue) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	before, largest := unpack(o.C)
	o.C = 0
	out := q.bucket.Outcome(o, n, admits, charged && before == 0)
	if admits && n > 0 && n <= q.capacity {
		out.Delay = q.unit.sub(span{o.A, o.B}, q.unit.times(before)).micros()
	}
	out.Remaining = max(out.Remaining, min(largest, q.capacity))
	return out
}

// Valid reports whether the script can have replied o. DecodeReply has checked the two numbers that it has
// packed into o.C, except whether the second one is negative. If it is, o.C is negative.
func (q *queue) Valid(o Observation) bool {
	return o.C >= 0 && q.bucket.Valid(Observation{A: o.A, B: o.B})
}

func (q *queue) DeniedFor(o Observation, n, _ int64) int64 {
	return q.Outcome(o, n, false, false).RetryAfter
}

// Adopt begins a new epoch if the rate has changed. The epoch is now, or 1 µs after the last epoch if that
// is later, so that the two differ. The queue ends at the same instant as before (rounded up to a whole
// microsecond), because delays were promised to the requests that wait.
func (q *queue) Adopt(s *State, writer Evaluator, now int64) {
	if old, ok := writer.(*queue); ok && old.unit != q.unit {
		s.A, s.B = span{s.A, s.B}.micros(), 0
		s.C, s.log = max(now, s.C+1), nil
	}
}
