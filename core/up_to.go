package core

import (
	"context"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// maxParts bounds how many times AllowUpTo tries to charge the remaining units. A try fails if other callers
// have taken some of these units in the meantime.
const maxParts = 4

// AllowUpTo charges up to n units, as many as remain, and returns how many it charged. It suits a
// worker that takes a batch from a queue, and takes fewer jobs when fewer are admitted:
//
//	granted, res, err := lim.AllowUpTo(ctx, "imports", 100)
//	// ...
//	jobs := queue.Take(granted) // and if there is more to do, come back after res.RetryAfter
//
// The Result is Allowed if at least one unit was granted. Its RetryAfter says when the rest would
// be admitted or, if the rest is more than the capacity, when a request for the whole capacity would be
// admitted. RetryAfter is 0 if all n units were granted.
//
// AllowUpTo makes one to six ordinary decisions. The first is about n units, or about the capacity if n
// is above it. If it is denied and some units remain, AllowUpTo asks for the units that remain. Other
// callers can take some of these in the meantime; then it is denied again, and asks for what remains
// now. If units were granted, but fewer than n, the last decision asks when the rest would be admitted.
// No decision follows once the key is banned, or once [FailOpen] has admitted units because Redis does
// not answer.
//
// After four attempts to get what remains, AllowUpTo grants nothing. So it never grants more than the
// limit, but while many callers take units at the same time, it can grant less than what remains. It
// begins no [Ban], and observers are notified of one decision: with the granted units, or with n
// units if none are granted. A cost of 0 is decided as in [Limiter.AllowN].
//
// Errors are the same as for AllowN. A Limiter with a [LeakyBucket] or [InFlight] returns an error,
// because neither a place in a queue nor a slot can be granted in part.
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

// grant charges up to n units, sets res, and returns how many units it has charged.
func (l *Limiter) grant(ctx context.Context, key string, n int64, res *Result) (granted int64, err error) {
	capacity := slices.Min(l.set.Capacities)
	units := min(n, max(1, capacity)) // a limit of 0 is asked for one unit, and denies it
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
			return 0, nil // RetryAfter needs no further decision: it is about all the units, or the end of the ban
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

// decidePart makes one of the decisions of AllowUpTo. It uses no remembered denial, because
// AllowUpTo needs to know what remains now.
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
