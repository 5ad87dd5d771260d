package core

import (
	_ "embed"
	"fmt"
)

//go:embed bucket.lua
var bucketLibrary string

// A bucket decides for the algorithms whose state is a debt: the time until the
// bucket is as if never used. Units and time are exchanged at unit, exactly.
type bucket struct {
	capacity int64
	unit     ratio // the time of one unit
	full     span  // the debt of a bucket with no room left
	shapes   bool  // an admitted call waits for its turn
	tail     []any // the arguments after the cost
}

func newBucket(l Limit) *bucket {
	b := &bucket{capacity: l.Burst(), unit: newRatio(l.rate)}
	b.full = b.unit.times(b.capacity)
	stored := ""
	if l.name != "" {
		stored = fmt.Sprintf(" %d", l.rate.micros())
	}
	b.tail = []any{b.full.w, b.full.f, b.unit.q, l.rate.count, l.rate.micros(), stored}
	return b
}

func (b *bucket) cost(n int64) span {
	if n > b.capacity {
		return span{w: huge}
	}
	return b.unit.times(n)
}

func (b *bucket) args(dst []any, n int64) []any {
	cost := b.cost(n)
	return append(append(dst, cost.w, cost.f), b.tail...)
}

func (b *bucket) plausible(r reading) bool {
	return r.x >= 0 && r.y >= 0 && r.y <= b.unit.q && !b.full.less(span{r.x, r.y})
}

// mark has nothing to tell: one unit of debt is like any other.
func (b *bucket) mark(reading) int64 { return 0 }

func (b *bucket) result(r reading, n int64, charged bool) Result {
	debt := span{r.x, r.y}
	res := Result{Limit: b.capacity, Window: micros(b.full.micros())}
	switch {
	case n > b.capacity:
		res.RetryAfter = Never
	case !r.admits && n > 0:
		res.RetryAfter = micros(b.unit.sub(b.unit.add(debt, b.cost(n)), b.full).micros())
	case b.shapes && n > 0:
		res.Delay = micros(debt.micros())
	}
	if charged {
		debt = b.unit.add(debt, b.cost(n))
	}
	res.Remaining = b.unit.units(b.unit.sub(b.full, debt))
	res.ResetAfter = micros(debt.micros())
	return res
}
