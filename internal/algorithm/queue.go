package algorithm

import (
	"slices"
)

// LeakyBucket is a bucket whose units have places in a queue. An admitted request waits for the turn of
// its place. A place that is given back before its turn is free for the next request.
var LeakyBucket = &Kind{
	Name: "leaky_bucket", Tag: "leaky", Bursts: true, Debt: true, Validate: validateBucket, New: newQueue,
	Delays: true, Unleasable: "its units are places in a queue", DefaultBurst: drainedInOneSecond,
	lua: readLua("leaky_bucket", bucketLua),
}

// maxFree is the largest number of free places that a queue keeps. Further places that are given back
// stay unused.
const maxFree = 128

// A queue decides for [LeakyBucket]. Its epoch is the instant at which it was last empty or changed its
// rate. Units are counted from the epoch, and a place consists of consecutive units. A place of another
// epoch belongs to another queue. If a part of a free place is in the past, its last whole units stay free.
//
//	Observation  as a bucket's; C says more of free places, see unpack
//	State        as a bucket's; C is the epoch. The log has the free places in order, each from unit `at` to
//	             before unit `number`. No two of them touch, and none touches the end
//	Handle       A the epoch, B the number of the unit after the place
//
// Times that are not multiples of a unit from the epoch are rounded down, all of them by the same amount.
type queue struct {
	bucket

	longest int64 // the longest epoch: Lua can count no more units
}

func newQueue(l Numbers) Evaluator {
	b := makeBucket(l)
	return &queue{*b, b.unit.times(1 << 37).w}
}

// pack returns the C of an Observation. It combines how many units before the end of the queue the taken
// place begins (0 for a place at the end), and the size of the largest free place.
func pack(before, largest int64) int64 { return before | largest<<packed }

func unpack(c int64) (before, largest int64) { return c & (1<<packed - 1), c >> packed }

// packed is the number of bits for a number of units, because a capacity is at most 1e9.
const packed = 30

// units returns how many units there have been since the epoch, and how many of the last ones have not
// begun at now.
func (q *queue) units(s *State, now int64) (all, waiting int64) {
	all = q.unit.units(q.unit.sub(span{s.A, s.B}, span{w: s.C}))
	return all, q.unit.units(q.debt(s, now))
}

// waiting returns the parts of the free places of s, from the i-th on, that have not begun at now.
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

// trim removes the parts of the free places of s that have begun.
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

// left returns the C of an Observation with the largest free place that remains after a charge.
func (q *queue) left(s *State, c int64) int64 {
	before, _ := unpack(c)
	if before == 0 {
		return c
	}
	largest := int64(0)
	for _, p := range entries(s) {
		largest = max(largest, p.number-p.at)
	}
	return pack(before, largest)
}

// handle returns the handle of the charge of n units that followed o, in an epoch.
func (q *queue) handle(o Observation, n, epoch int64) Handle {
	before, _ := unpack(o.C)
	end := q.unit.add(span{o.At + o.A, o.B}, q.unit.times(n))
	return Handle{epoch, q.unit.units(q.unit.sub(q.unit.sub(end, span{w: epoch}), q.unit.times(before)))}
}

// Refund frees the place of a charge, unless its turn has begun or it belongs to another queue.
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
	if last := free[len(free)-1]; last.number == all { // the free place is at the end, so the queue becomes shorter
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

// Valid reports whether an Observation is valid that DecodeReply has packed.
func (q *queue) Valid(o Observation) bool {
	return o.C >= 0 && q.bucket.Valid(Observation{A: o.A, B: o.B})
}

func (q *queue) DeniedFor(o Observation, n, _ int64) int64 {
	return q.Outcome(o, n, false, false).RetryAfter
}

// Adopt begins a new epoch if the rate has changed. Taken places stay where they are, because their delays
// were promised.
func (q *queue) Adopt(s *State, before Evaluator, now int64) {
	if old, ok := before.(*queue); ok && old.unit != q.unit {
		s.A, s.B = span{s.A, s.B}.micros(), 0
		s.C, s.log = max(now, s.C+1), nil
	}
}
