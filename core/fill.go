package core

import (
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
)

// fill sets res to the Result that users see for the Reply r to the Call c. Every decision of a single
// Limiter gets its Result here.
func (res *Result) fill(c *decision.Call, r *decision.Reply) {
	switch {
	case r.Source == decision.Nobody:
		*res = Result{Allowed: true, LimiterName: c.Set.Limiter, LimitName: c.Set.Names[0], At: time.Now()}
		return
	case r.Ban.Until > 0:
		res.fillBanned(r)
	case r.Set.Uncounted:
		res.fillUncounted(r)
	default:
		res.fillAnswers(c, r)
	}
	if r.Age > 0 {
		res.age(r.Age)
	}
	if r.UsedUp > 0 {
		res.useUp(r.UsedUp)
	}
}

// fillAnswers sets res from the answers of the limits.
func (res *Result) fillAnswers(c *decision.Call, r *decision.Reply) {
	charged := c.Writes() && r.Allowed
	if len(r.Answers) == 1 {
		res.fillOne(r, 0, charged)
		return
	}
	all := make([]Result, len(r.Answers))
	for i := range all {
		all[i].fillOne(r, i, charged)
		if !r.Allowed {
			all[i].Delay = 0 // a denied request has no place in a queue
		}
	}
	*res = combine(all, r.Allowed)
}

// fillOne sets res from the answer of limit i. charged says whether the units were charged or held.
func (res *Result) fillOne(r *decision.Reply, i int, charged bool) {
	set, a := r.Set, &r.Answers[i]
	out, held := r.Outcome(i, charged)
	res.Allowed, res.Banned, res.held = a.Admits, false, held
	res.Limit, res.Remaining = set.Capacities[i], out.Remaining
	res.RetryAfter = Never
	if out.RetryAfter != algorithm.Never {
		res.RetryAfter = micros(out.RetryAfter)
	}
	res.ResetAfter, res.Delay, res.Window = micros(out.ResetAfter), micros(out.Delay), set.Windows[i]
	if length := set.Limits[i].Length; length != nil {
		res.Window = micros(length(set.Limits[i].Evaluator, a.Observation))
	}
	res.At = time.UnixMicro(a.At)
	res.LimiterName, res.LimitName, res.Source = set.Limiter, set.Names[i], Source(r.Source)
	res.all = nil
}

// fillUncounted sets res for limits that count nothing. The Result describes the first limit of 0. If
// there is no limit of 0, the Result describes the first limit, which is Unlimited.
func (res *Result) fillUncounted(r *decision.Reply) {
	set := r.Set
	i := max(0, slices.Index(set.Capacities, 0))
	capacity := set.Capacities[i]
	*res = Result{
		Allowed: r.Allowed, Limit: capacity, Remaining: capacity, Window: set.Windows[i],
		At: time.UnixMicro(r.Answers[0].At), LimiterName: set.Limiter, LimitName: set.Names[i], Source: Source(r.Source),
	}
	if r.N > capacity {
		res.RetryAfter = Never
	}
}

// fillBanned sets res for a key that is banned. The Result says when the ban ends, but not how much the
// key has used. If r is the denial that has begun the ban, or a repetition of that denial, the LimitName is
// the name of the first limit that denied. Otherwise, the LimitName is the name of the first limit.
func (res *Result) fillBanned(r *decision.Reply) {
	set, all, chosen := r.Set, make([]Result, len(r.Set.Limits)), -1
	left := micros(r.Ban.Until - r.Ban.At)
	for i := range all {
		all[i] = Result{
			Banned: true, Limit: set.Capacities[i], RetryAfter: left, ResetAfter: left, Window: set.Windows[i],
			At: time.UnixMicro(r.Ban.At), LimiterName: set.Limiter, LimitName: set.Names[i], Source: Source(r.Source),
		}
		if chosen < 0 && !r.Answers[i].Admits {
			chosen = i
		}
	}
	*res = all[max(chosen, 0)]
	if len(all) > 1 {
		res.all = &all
	}
}

// age changes res, the Result of an earlier decision, into the Result that the same decision would have
// had d later, except that Remaining stays as it was.
func (res *Result) age(d time.Duration) {
	res.ageOne(d)
	if res.all != nil {
		for i := range *res.all {
			(*res.all)[i].ageOne(d)
		}
	}
}

func (res *Result) ageOne(d time.Duration) {
	d = d.Truncate(time.Microsecond)
	if res.RetryAfter != Never {
		res.RetryAfter = max(0, res.RetryAfter-d)
	}
	res.ResetAfter = max(0, res.ResetAfter-d)
	res.At = res.At.Add(d)
}

// useUp changes res, the Result of a key without charges, into the Result of a key whose units are
// all used for the next d. It is for the stub of a test.
func (res *Result) useUp(d time.Duration) {
	res.Remaining, res.Delay = 0, 0
	if res.Window > 0 { // slots have no Window, and nobody knows when they become free
		res.ResetAfter = d
	}
	if !res.Allowed && res.RetryAfter != Never {
		res.RetryAfter = d
	}
	if res.all != nil {
		for i := range *res.all {
			(*res.all)[i].useUp(d)
		}
	}
}
