package core

import (
	"math"
	"math/bits"
)

// A state is what a store in memory keeps of one limit of one key. Its numbers
// are the algorithm's own; the zero state is that of a key never used.
type state struct {
	x, y, z int64
	log     []logEntry
}

// A stateful decides in Go what the algorithm's Lua file decides in Redis. The
// clock never steps back here, and the limit never changes.
type stateful interface {
	// look writes to r what a decision on n units finds at now.
	look(r *reading, s *state, now, n int64)
	// charge charges n units on top of what r found.
	charge(s *state, r *reading, n int64)
	// refund gives back n units that were charged under mark.
	refund(s *state, now, n, mark int64)
	// until returns the instant at which s is as if never used.
	until(s *state) int64
	// level returns how far the limit was used at the last charge, from 0 to levels-1.
	level(s *state) int
}

// These three call the methods of d. The compiler knows then what becomes of r and
// res, and leaves them on the stack; through the interface they would have to be
// copied, which took a third of a decision.

func look(d decider, r *reading, s *state, now, n int64) {
	switch d := d.(type) {
	case *bucket:
		d.look(r, s, now, n)
	case *window:
		d.look(r, s, now, n)
	case *counter:
		d.look(r, s, now, n)
	case *log:
		d.look(r, s, now, n)
	}
}

func charge(d decider, s *state, r *reading, n int64) {
	switch d := d.(type) {
	case *bucket:
		d.charge(s, r, n)
	case *window:
		d.charge(s, r, n)
	case *counter:
		d.charge(s, r, n)
	case *log:
		d.charge(s, r, n)
	}
}

func result(d decider, res *Result, r *reading, n int64, charged bool) {
	switch d := d.(type) {
	case *bucket:
		d.result(res, r, n, charged)
	case *window:
		d.result(res, r, n, charged)
	case *counter:
		d.result(res, r, n, charged)
	case *log:
		d.result(res, r, n, charged)
	}
}

// A scale tells levels of use apart without a division: it is 1/full, of 64 bits.
type scale uint64

func newScale(full int64) scale { return math.MaxUint64 / scale(full) }

func (c scale) level(used int64) int {
	level, _ := bits.Mul64(uint64(used)*levels, uint64(c))
	return int(min(level, levels-1))
}

// In a bucket's state the debt ends at x + y/q; z is the instant of the last
// charge.

func (b *bucket) debt(s *state, now int64) span {
	if s.x < now {
		return span{}
	}
	return span{s.x - now, s.y}
}

func (b *bucket) owe(s *state, now int64, debt span) { s.x, s.y, s.z = now+debt.w, debt.f, now }

func (b *bucket) look(r *reading, s *state, now, n int64) {
	debt := b.debt(s, now)
	admits := !b.full.less(b.unit.add(debt, b.cost(n)))
	*r = reading{admits: admits, t: now, x: debt.w, y: debt.f}
}

func (b *bucket) charge(s *state, r *reading, n int64) {
	b.owe(s, r.t, b.unit.add(span{r.x, r.y}, b.cost(n)))
}

func (b *bucket) refund(s *state, now, n, _ int64) {
	b.owe(s, now, b.unit.sub(b.debt(s, now), b.cost(n)))
}

func (b *bucket) until(s *state) int64 { return span{s.x, s.y}.micros() }

func (b *bucket) level(s *state) int { return b.scale.level(s.x - s.z) }

// In a window's state x units are used since y, and the window ends at z.

func (w *window) look(r *reading, s *state, now, n int64) {
	used, start := s.x, s.y
	if now >= s.z || used == 0 {
		used, start = 0, now
		if w.aligned {
			start = now - now%w.period
		}
	}
	*r = reading{admits: used+min(n, w.limit+1) <= w.limit, t: now, x: used, y: start, z: w.period}
}

func (w *window) charge(s *state, r *reading, n int64) { s.x, s.y, s.z = r.x+n, r.y, r.y+r.z }

func (w *window) refund(s *state, _, n, mark int64) {
	if s.y == mark {
		s.x = max(0, s.x-n)
	}
}

func (w *window) until(s *state) int64 {
	if s.x == 0 {
		return 0
	}
	return s.z
}

func (w *window) level(s *state) int { return w.scale.level(s.x) }

// In a counter's state x units are in the window that began at z, and y in the
// one before.

func (c *counter) look(r *reading, s *state, now, n int64) {
	count, before, start := s.x, s.y, now-now%c.period
	switch {
	case start > s.z+c.period:
		count, before = 0, 0
	case start > s.z:
		count, before = 0, count
	}
	*r = reading{t: now, x: count, y: before, z: start}
	r.admits = n <= c.limit && c.fits(r, n) <= now
}

func (c *counter) charge(s *state, r *reading, n int64) { s.x, s.y, s.z = r.x+n, r.y, r.z }

func (c *counter) refund(s *state, _, n, mark int64) {
	switch s.z {
	case mark:
		s.x = max(0, s.x-n)
	case mark + c.period:
		s.y = max(0, s.y-n)
	}
}

func (c *counter) until(s *state) int64 {
	switch {
	case s.x > 0:
		return s.z + 2*c.period
	case s.y > 0:
		return s.z + c.period
	}
	return 0
}

func (c *counter) level(s *state) int { return c.scale.level(s.x + s.y) }

// In a log's state x units are in the log.

// A logEntry is one admitted call: when, the first of its numbers and how many.
type logEntry struct{ t, first, n int64 }

func (l *log) look(r *reading, s *state, now, n int64) {
	for len(s.log) > 0 && s.log[0].t <= now-l.period {
		s.x -= s.log[0].n
		s.log = s.log[1:]
	}
	*r = reading{admits: n <= l.limit && s.x+n <= l.limit, t: now, x: s.x, y: now}
	if len(s.log) == 0 {
		return
	}
	newest := s.log[len(s.log)-1]
	r.y, r.z = max(now, newest.first+newest.n), newest.t
	if !r.admits && n <= l.limit {
		r.y = l.leaves(s, s.x+n-l.limit) + l.period
	}
}

// leaves returns the instant of the last of the n oldest units.
func (l *log) leaves(s *state, n int64) int64 {
	for _, e := range s.log {
		if n -= e.n; n <= 0 {
			return e.t
		}
	}
	return 0 // not reached: there are at least n
}

func (l *log) charge(s *state, r *reading, n int64) {
	s.x += n
	s.log = append(s.log, logEntry{r.t, r.y, n})
}

func (l *log) refund(s *state, _, n, mark int64) {
	for i, e := range s.log {
		if e.first == mark && e.n == n {
			s.x -= n
			s.log = append(s.log[:i], s.log[i+1:]...)
			return
		}
	}
}

func (l *log) until(s *state) int64 {
	if len(s.log) == 0 {
		return 0
	}
	return s.log[len(s.log)-1].t + l.period
}

func (l *log) level(s *state) int { return l.scale.level(s.x) }
