package model

import (
	"math/big"
	"slices"
)

// LeakyBucket is a bucket whose units have places, one after the other.
var LeakyBucket = register("leaky_bucket", algorithm{new: func() store { return &queue{} }, bucket: true, queues: true})

// maxFree is how many free places a queue keeps.
const maxFree = 128

// A queue is a bucket whose charges are served one after the other, at the rate. A charge that is taken
// back leaves a free place, which the next charge takes that finds room in it.
type queue struct {
	bucket

	epoch int     // how often the queue has been empty, or changed its rate, when a charge came
	free  []place // in order; no two of them touch, and none touches the end
}

// A place is when a charge is served.
type place struct{ from, to *big.Rat }

func (q *queue) clone() store {
	c := *q
	c.free = slices.Clone(q.free)
	return &c
}

// has reports whether q is at l's rate, and not empty.
func (q *queue) has(l Limit, t int64) bool {
	return q.left(t).Sign() > 0 && q.by.Count == l.Count && q.by.Period == l.Period
}

// restate makes l take over the state that another rate has left. Delays were promised: the places that are
// taken stay where they are.
func (q *queue) restate(l Limit, t int64) bucket {
	if q.other(l, t) {
		return bucket{stored: true, ends: whole(ceil(q.ends)), by: l}
	}
	return q.bucket
}

func (q *queue) used(l Limit, t int64) *big.Rat {
	b := q.restate(l, t)
	return b.used(l, t)
}

func (q *queue) reset(l Limit, t int64) *big.Rat {
	b := q.restate(l, t)
	return b.reset(l, t)
}

func (q *queue) retry(l Limit, t, n int64) *big.Rat {
	b := q.restate(l, t)
	return b.retry(l, t, n)
}

// open are the free places that have not begun. If a place is partly past, its last units are left.
func (q *queue) open(l Limit, t int64) []place {
	var all []place
	if !q.has(l, t) {
		return nil
	}
	for _, p := range q.free {
		units := new(big.Rat).Mul(new(big.Rat).Sub(p.to, whole(t)), l.rate())
		if rest := new(big.Rat).Sub(p.to, l.drain(whole(floor(units)))); rest.Cmp(p.from) > 0 {
			p.from = rest
		}
		if p.from.Cmp(p.to) < 0 {
			all = append(all, p)
		}
	}
	return all
}

// room is how many units fit into p.
func (l Limit) room(p place) int64 {
	return floor(new(big.Rat).Mul(new(big.Rat).Sub(p.to, p.from), l.rate()))
}

// first is the number of the first free place with room for n units, or -1.
func (l Limit) first(open []place, n int64) int {
	if n < 1 || n > l.capacity() {
		return -1
	}
	return slices.IndexFunc(open, func(p place) bool { return l.room(p) >= n })
}

// begins is when n units at t would begin that take a free place, or nil.
func (q *queue) begins(l Limit, t, n int64) *big.Rat {
	open := q.open(l, t)
	if i := l.first(open, n); i >= 0 {
		return open[i].from
	}
	return nil
}

// largest is the largest cost for which there is a free place.
func (q *queue) largest(l Limit, t int64) int64 {
	most := int64(0)
	for _, p := range q.open(l, t) {
		most = max(most, l.room(p))
	}
	return min(most, l.capacity())
}

func (q *queue) charge(l Limit, t, n int64) ticket {
	if !q.has(l, t) {
		q.epoch++
	}
	q.free = q.open(l, t)
	var taken place
	if i := l.first(q.free, n); i >= 0 {
		taken.from = q.free[i].from
		taken.to = new(big.Rat).Add(taken.from, l.drain(whole(n)))
		if q.free[i].from = taken.to; taken.to.Cmp(q.free[i].to) == 0 {
			q.free = slices.Delete(q.free, i, i+1)
		}
	} else {
		q.bucket = q.restate(l, t)
		q.bucket.charge(l, t, n)
		taken.to = q.ends
		taken.from = new(big.Rat).Sub(taken.to, l.drain(whole(n)))
	}
	return ticket{units: n, epoch: q.epoch, place: taken}
}

// refund frees a place of this epoch that has not begun.
func (q *queue) refund(l Limit, t int64, back ticket) {
	if back.epoch != q.epoch || !q.has(l, t) || back.place.from.Cmp(whole(t)) <= 0 {
		return
	}
	free := append(q.open(l, t), back.place)
	slices.SortFunc(free, func(a, b place) int { return a.from.Cmp(b.from) })
	q.free = nil
	for _, p := range free {
		if last := len(q.free) - 1; last >= 0 && q.free[last].to.Cmp(p.from) == 0 {
			q.free[last].to = p.to
		} else {
			q.free = append(q.free, p)
		}
	}
	if last := len(q.free) - 1; q.free[last].to.Cmp(q.ends) == 0 {
		q.write(l, q.free[last].from)
		q.free = q.free[:last]
	}
	q.free = q.free[:min(len(q.free), maxFree)]
}
