package model

import (
	"math/big"
	"slices"
)

// LeakyBucket is a bucket whose units are served one after the other.
var LeakyBucket = register("leaky_bucket", algorithm{new: func() store { return &queue{} }, bucket: true, queues: true})

// maxFree is how many free places a queue remembers.
const maxFree = 128

// A queue is a bucket whose charges are served one after the other, at the rate. A charge that is taken back leaves a free
// place, which the next charge that fits takes.
type queue struct {
	bucket

	epoch int     // how often a charge found the queue empty or at another rate
	free  []place // in order; no place touches another or the end of the queue
}

// A place is the time in which a charge is served.
type place struct{ from, to *big.Rat }

func (q *queue) clone() store {
	c := *q
	c.free = slices.Clone(q.free)
	return &c
}

// has reports whether q has l's rate and is not empty.
func (q *queue) has(l Limit, t int64) bool {
	return q.left(t).Sign() > 0 && q.by.Count == l.Count && q.by.Period == l.Period
}

// restate makes l take over the state that another rate has left. The promised delays do not change: taken places stay
// where they are.
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

// open returns the free places that have not begun. If a place is partly past, its remaining part counts.
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

// room returns how many units fit into p.
func (l Limit) room(p place) int64 {
	return floor(new(big.Rat).Mul(new(big.Rat).Sub(p.to, p.from), l.rate()))
}

// first returns the index of the first free place with room for n units, or -1.
func (l Limit) first(open []place, n int64) int {
	if n < 1 || n > l.capacity() {
		return -1
	}
	return slices.IndexFunc(open, func(p place) bool { return l.room(p) >= n })
}

// begins returns when n units at t would be served if they take a free place, or nil if none has room.
func (q *queue) begins(l Limit, t, n int64) *big.Rat {
	open := q.open(l, t)
	if i := l.first(open, n); i >= 0 {
		return open[i].from
	}
	return nil
}

// largest returns the largest cost for which there is a free place.
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

// refund frees a place of the present epoch that has not begun.
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
