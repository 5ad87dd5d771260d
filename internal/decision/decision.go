// Package decision defines the two values of every decision: a Call is the question, and a Reply is the
// answer. Leases, the deny cache, Redis, memory and the stub of a test all answer a Call in the same way: they
// fill a Reply. Package core turns the Reply into the Result that users see.
package decision

import (
	"math"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
)

// A Call asks whether units of one key are admitted.
type Call struct {
	Set   *limits.Set // the limits to decide by
	Key   string
	N     int64        // how many units
	Op    algorithm.Op // OpEvaluate, OpCharge or OpReserve
	Ends  bool         // the caller will end what is admitted, and needs a Hold in the Reply to do so
	Bans  bool         // a denial may ban the key
	Fresh bool         // a remembered denial must not answer the Call

	// Waits says that the caller tries again after a denial, until it is admitted or gives up. Denials of
	// such a Call do not begin a ban. Observers are not notified of them, except of the last one, if the
	// caller then gives up with this denial as its answer.
	Waits bool
}

// Spends reports whether the caller uses units if the Call is admitted. That is not so for Peek and for a
// cost of 0.
func (c *Call) Spends() bool { return c.Op != algorithm.OpEvaluate && c.N > 0 }

// Writes reports whether units are charged or held if the Call is admitted.
func (c *Call) Writes() bool { return c.Spends() && !c.Set.Uncounted }

// Request returns the Call as an operation of a store, for a decision by the limits of set. If h is not nil,
// the store writes the handles of what it charges or holds into h.
func (c *Call) Request(set *limits.Set, h *hold.Hold) algorithm.Operation {
	operation := algorithm.Operation{Op: algorithm.OpEvaluate, N: c.N}
	if !c.Writes() {
		return operation
	}
	operation.Op = c.Op
	operation.Bans = c.Bans && !c.Waits && set.Exceeded(c.N) == 0 // a cost that can never be admitted does not ban the key
	if h != nil {
		operation.Handles = h.Handles()
	}
	return operation
}

// NewHold returns the Hold of a Call that is about to be decided by the limits of set, or that a lease has
// admitted. It returns nil if there will be nothing that the caller could end. A reservation of 0 units has a
// Hold as well, because its settlement may charge units.
func (c *Call) NewHold(set *limits.Set, now func() time.Time) *hold.Hold {
	if !c.Ends || set.Uncounted || !c.Writes() && c.Op != algorithm.OpReserve {
		return nil
	}
	return hold.New(set, c.Key, c.N, c.Op == algorithm.OpReserve, now())
}

// A Source says who has decided. Its values equal the values of core.Source.
type Source uint8

// The sources of a decision.
const (
	Nobody Source = iota // Redis is unavailable, and the outage policy admits everything
	Redis
	Memory
	DenyCache
	Fallback
	Lease
	Uncounted // this process decided: the limits count nothing
)

// A Reply is the answer to a Call.
type Reply struct {
	Allowed bool
	Set     *limits.Set        // the limits that have decided: the Call's or, if FailLocal decides, this process's share of them
	N       int64              // how many units Answers are about; may differ from the Call's if this is a remembered denial
	Answers []algorithm.Answer // one for each limit of Set; none if the Source is Nobody
	Ban     algorithm.Ban      // the ban of the key, or zero; if the ban began before the decision, Answers mean nothing
	Hold    *hold.Hold         // what the caller must end, or nil
	Source  Source
	Age     time.Duration // how old Answers and Ban are, if they are from an earlier call
	UsedUp  time.Duration // set by the stub of a test: for how long all units stay used

	inline [1]algorithm.Answer // can back Answers if there is one limit, which saves an allocation
}

// Room sets Answers to a slice with one element for each limit of Set, and returns this slice. A store fills
// it. Set must be set before.
func (r *Reply) Room() []algorithm.Answer {
	if r.Answers = r.inline[:]; len(r.Set.Limits) > 1 {
		r.Answers = make([]algorithm.Answer, len(r.Set.Limits))
	}
	return r.Answers
}

// CopyTo copies r into kept. The copy stays valid when r is used again.
func (r *Reply) CopyTo(kept *Reply) {
	*kept = *r
	if len(r.Answers) == 1 {
		kept.inline[0] = r.Answers[0]
		kept.Answers = kept.inline[:]
	} else {
		kept.Answers = slices.Clone(r.Answers)
	}
}

// Conclude sets Allowed, which is false during a ban, or if a limit does not admit. Every limit admits a cost
// of 0, even a limit that is overdrawn, for example because its numbers were lowered: Conclude corrects the
// Answers accordingly. For limits that count nothing, Conclude looks at their capacities instead of at Answers.
func (r *Reply) Conclude() {
	r.Allowed = r.Ban.Until == 0
	if r.Set.Uncounted {
		r.Allowed = r.Allowed && r.Set.Exceeded(r.N) == 0
		return
	}
	for i := range r.Answers {
		a := &r.Answers[i]
		a.Admits = a.Admits || r.N == 0
		r.Allowed = r.Allowed && a.Admits
	}
}

// Outcome returns the state of limit i after the decision. charged says whether the decision charged or held
// units. held is true if the limit denies, and either has slots or would admit without the held units. Such a
// denial may be over at any time, as soon as somebody gives slots or held units back, unless the cost is more
// slots than there are.
func (r *Reply) Outcome(i int, charged bool) (out algorithm.Outcome, held bool) {
	limit, answer, admits := &r.Set.Limits[i], &r.Answers[i], r.Answers[i].Admits
	held = !admits && limit.Slots
	if answer.Held == 0 {
		return limit.Outcome(answer.Observation, r.N, admits, charged), held
	}
	out = limit.Outcome(limit.WithHeld(answer.Observation, r.N, answer.Held), r.N, admits, charged)
	if !admits && limit.Outcome(answer.Observation, 0, false, false).Remaining >= r.N {
		out.RetryAfter = min(out.RetryAfter, algorithm.HeldRetry) // without the held units, the limit would admit
		held = true
	}
	return out, held
}

// Remaining returns how many units remain in the limit that has the fewest left. charged is as for Outcome.
// Remaining returns 0 during a ban. It must not be called for limits that count nothing.
func (r *Reply) Remaining(charged bool) int64 {
	if r.Ban.Until > 0 {
		return 0
	}
	least := int64(math.MaxInt64)
	for i := range r.Answers {
		out, _ := r.Outcome(i, charged)
		least = min(least, out.Remaining)
	}
	return least
}
