// Package decision has the two values that every decision consists of: a Call is what is to be
// decided, and a Reply is the answer. Leases, the deny cache, Redis, memory and the stub of a test
// each answer a Call by filling a Reply. Package core turns the Reply into the Result that users see.
package decision

import (
	"math"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
)

// A Call asks for units of one key.
type Call struct {
	Set   *limits.Set // the limits to decide by
	Key   string
	N     int64        // units
	Op    algorithm.Op // OpEvaluate, OpCharge or OpReserve
	Ends  bool         // the caller ends what is admitted, so it needs a Hold in the Reply
	Bans  bool         // a denial may ban the key
	Fresh bool         // a denial from before must not answer it

	// Waits says that the caller tries again until it is admitted. Its denials begin no ban, and
	// observers are not notified of them.
	Waits bool
}

// Spends reports whether the caller means to use units. Peek and a cost of 0 do not.
func (c *Call) Spends() bool { return c.Op != algorithm.OpEvaluate && c.N > 0 }

// Writes reports whether an admission charges or holds something.
func (c *Call) Writes() bool { return c.Spends() && !c.Set.Uncounted }

// Request returns the form of the Call that the stores take, to be decided by set. If h is not nil,
// the store writes to it what it needs to end the hold later.
func (c *Call) Request(set *limits.Set, h *hold.Hold) algorithm.HoldCall {
	asked := algorithm.HoldCall{Op: algorithm.OpEvaluate, N: c.N}
	if !c.Writes() {
		return asked
	}
	asked.Op = c.Op
	asked.Bans = c.Bans && !c.Waits && set.Exceeded(c.N) == 0 // a cost that can never be admitted bans nobody
	if h != nil {
		asked.Handles = h.Handles()
	}
	return asked
}

// NewHold returns the Hold of a Call that is about to be decided, or nil if the caller ends nothing.
// A reservation of 0 units has a Hold, too, because settling it may charge more.
func (c *Call) NewHold(set *limits.Set, now func() time.Time) *hold.Hold {
	if !c.Ends || set.Uncounted || !c.Writes() && c.Op != algorithm.OpReserve {
		return nil
	}
	return hold.New(set, c.Key, c.N, c.Op == algorithm.OpReserve, now())
}

// A Source says who decided. Its values are those of core.Source.
type Source uint8

// Who decides.
const (
	Nobody Source = iota // Redis is away, and the outage policy admits everything
	Redis
	Memory
	DenyCache
	Fallback
	Lease
	Uncounted // this process, of limits that count nothing
)

// A Reply is the answer to a Call.
type Reply struct {
	Allowed bool
	Set     *limits.Set        // the limits that have decided. In an outage they are this process's share
	N       int64              // the units that Answers are about; a repeated denial may be about fewer than the Call
	Answers []algorithm.Answer // one for each limit of Set
	Ban     algorithm.Ban      // the ban of the key, or zero. If it began earlier, Answers mean nothing
	Hold    *hold.Hold         // what the caller must end; nil if nothing
	Source  Source
	Age     time.Duration // how long ago the Answers were given
	UsedUp  time.Duration // set by the stub of a test: all units are used for this long

	inline [1]algorithm.Answer // saves an allocation: most limiters have one limit
}

// Room makes Answers a slice with one element for each limit of Set, for a store to fill.
func (r *Reply) Room() []algorithm.Answer {
	if r.Answers = r.inline[:]; len(r.Set.Members) > 1 {
		r.Answers = make([]algorithm.Answer, len(r.Set.Members))
	}
	return r.Answers
}

// CopyTo makes kept a copy of r that stays valid when r is reused.
func (r *Reply) CopyTo(kept *Reply) {
	*kept = *r
	if len(r.Answers) == 1 {
		kept.inline[0] = r.Answers[0]
		kept.Answers = kept.inline[:]
	} else {
		kept.Answers = slices.Clone(r.Answers)
	}
}

// Conclude sets Allowed from the Answers and the Ban. A cost of 0 is admitted even by a limit that is
// overdrawn because its numbers were lowered. Limits that count nothing need no Answers.
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

// Outcome returns the state of limit i after the decision. held reports whether units that are only
// held caused its denial: these may be given back at any time.
func (r *Reply) Outcome(i int, charged bool) (out algorithm.Outcome, held bool) {
	m, a, admits := &r.Set.Members[i], &r.Answers[i], r.Answers[i].Admits
	held = !admits && m.Slots
	if a.Held == 0 {
		return m.Outcome(a.Observation, r.N, admits, charged), held
	}
	out = m.Outcome(m.WithHeld(a.Observation, r.N, a.Held), r.N, admits, charged)
	if !admits && m.Outcome(a.Observation, 0, false, false).Remaining >= r.N {
		out.RetryAfter = min(out.RetryAfter, algorithm.HeldRetry) // everything held may be given back
		held = true
	}
	return out, held
}

// Remaining returns the smallest number of units that remain of any limit.
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
