package core

import (
	"context"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// maxParts is how often AllowUpTo asks for what remains, while others take units at the same time.
const maxParts = 4

// AllowUpTo charges as many of n units as there are, and returns how many that is: for a worker that
// takes a batch from a queue, and takes fewer jobs when fewer are admitted. The Result is Allowed if
// at least one unit was granted. Its RetryAfter is when the rest would be admitted, or a whole
// capacity if the rest is more than that; it is 0 if all were granted.
//
//	granted, res, err := lim.AllowUpTo(ctx, "imports", 100)
//	// ...
//	jobs := queue.Take(granted) // and if there is more to do: come back after res.RetryAfter
//
// It is made of ordinary decisions: one if n units are admitted or none remain, and otherwise at
// least three, of which the last asks about the rest. If others take units between them, it asks
// again, four times at most, and then grants none. So it never grants more than the limit, but in a crowd it may grant less than there is. It
// begins no [Ban], and observers see one decision, with the units that were granted. A cost of 0 is
// decided as by [Limiter.AllowN].
//
// Errors are those of AllowN. A Limiter with a [LeakyBucket] or [InFlight] refuses: a part of a place
// in a queue, or of a slot, is of no use.
func (l *Limiter) AllowUpTo(ctx context.Context, key string, n int64) (granted int64, res Result, err error) {
	if l.set.Slots || l.set.Queues {
		return 0, Result{}, errNoParts
	}
	if err := checkCall(ctx, key, n); err != nil {
		return 0, Result{}, err
	}
	l.catchUp()
	start := time.Now()
	granted, err = l.grant(ctx, key, n, &res)
	event := Event{Kind: EventDecision, Result: res, Cost: granted, Took: time.Since(start), Err: err}
	if granted == 0 {
		event.Cost = n
	}
	l.family.events.emit(ctx, key, event)
	return granted, res, err
}

// grant charges up to n units, and sets res.
func (l *Limiter) grant(ctx context.Context, key string, n int64, res *Result) (granted int64, err error) {
	capacity := slices.Min(l.set.Capacities)
	units := min(n, max(1, capacity)) // a limit of 0 denies the first one
	for part := 0; ; part++ {
		if err := l.decidePart(ctx, key, units, algorithm.OpCharge, res); err != nil {
			*res = Result{}
			return 0, err
		}
		if res.Allowed {
			granted = units
			break
		}
		remaining := res.remaining()
		if res.Banned || part == 0 && remaining <= 0 {
			return 0, nil // and RetryAfter is that of all units
		}
		if part == maxParts || remaining <= 0 {
			break
		}
		units = min(units, remaining)
	}
	if rest := min(n-granted, capacity); rest > 0 && res.Source != SourceNone {
		var state Result
		if l.decidePart(ctx, key, rest, algorithm.OpEvaluate, &state) == nil {
			res.RetryAfter = state.RetryAfter
		}
	}
	return granted, nil
}

// decidePart makes one of the decisions of AllowUpTo. A remembered denial would not do: what remained
// then is not what remains now.
func (l *Limiter) decidePart(ctx context.Context, key string, n int64, op algorithm.Op, res *Result) error {
	req := l.newRequest(key, n, op)
	defer req.recycle()
	req.call.Bans, req.call.Fresh = false, true
	err := l.family.answer(ctx, req)
	if err == nil {
		res.fill(&req.call, &req.reply)
	}
	return err
}
