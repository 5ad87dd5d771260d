package core

import (
	_ "embed"
	"fmt"
	"strconv"
)

//go:embed bucket.lua
var bucketLibrary string

// A bucket decides for the algorithms whose state is a debt: the time until the
// bucket is as if never used. Units and time are exchanged at unit, exactly.
type bucket struct {
	capacity int64
	unit     ratio // the time of one unit
	one      span  // the cost of one unit
	full     span  // the debt of a bucket with no room left
	scale    scale // of debts
	shapes   bool  // an admitted call waits for its turn
	form     string
	period   int64
}

// newBucket returns the bucket of l. What is stored of it begins with version, the
// rate's count, and its period unless the key tells it.
func newBucket(l Limit, version string) *bucket {
	b := &bucket{capacity: l.Burst(), unit: newRatio(l.rate), period: l.rate.micros()}
	b.one, b.full = b.unit.times(1), b.unit.times(b.capacity)
	b.scale = newScale(b.full.w + 1)
	b.form = fmt.Sprintf("%s %d ", version, l.rate.count)
	if l.name != "" {
		b.form = fmt.Sprintf("%s %d/%d ", version, l.rate.count, b.period)
	}
	return b
}

func (b *bucket) cost(n int64) span {
	switch {
	case n == 1:
		return b.one
	case n > b.capacity:
		return span{w: huge}
	}
	return b.unit.times(n)
}

func (b *bucket) constants() []any {
	if b.unit.q == 1 {
		return []any{b.form, b.full.w, b.period}
	}
	return []any{b.form, strconv.FormatInt(b.full.w, 10), b.period, b.full.f, b.unit.q}
}

func (b *bucket) price(n int64) any {
	cost := b.cost(n)
	if b.unit.q == 1 {
		return cost.w
	}
	return fmt.Sprintf("%d %d", cost.w, cost.f)
}

func (b *bucket) plausible(r reading) bool {
	return r.x >= 0 && r.y >= 0 && r.y <= b.unit.q && !b.full.less(span{r.x, r.y})
}

// mark has nothing to tell: one unit of debt is like any other.
func (b *bucket) mark(reading) int64 { return 0 }

func (b *bucket) result(res *Result, r *reading, n int64, charged bool) {
	debt := span{r.x, r.y}
	res.Limit, res.Window = b.capacity, micros(b.full.micros())
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
}
