package memory

import (
	"slices"
	"strings"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Limits has the limits of a limiter in the form that a Store needs.
type Limits struct {
	limits []algorithm.Limit
	keys   []string          // one for each limit; limits with the same key, in different Limits, share their state
	joined string            // keys as one string, to compare them quickly
	unused []algorithm.State // the states of a key that has no entry; they are never changed
	bans   algorithm.Bans
}

// NewLimits returns limits in the form that a Store needs. keys has one key for each limit: the part of the limit's
// Redis key that follows the user's key.
func NewLimits(limits []algorithm.Limit, keys []string, bans algorithm.Bans) *Limits {
	return &Limits{
		limits: limits, keys: keys, joined: strings.Join(keys, "\x00"), bans: bans,
		unused: make([]algorithm.State, len(limits)),
	}
}

// state returns the state of limit i in e, for l to evaluate. e may be nil: nothing is used in the state then. If
// limit i is a queue, and e has other Limits than l, state returns a copy that is converted to the numbers of l. It
// leaves the entry as it is, because l may deny; for that, a plain copy suffices, because a queue only reads its
// free places when it adopts and evaluates. Limits that are not queues can evaluate a state that was stored with
// other numbers.
func (l *Limits) state(e *entry, i int, now int64) *algorithm.State {
	switch {
	case e == nil:
		return &l.unused[i]
	case e.limits == l || !l.limits[i].Delays:
		return &e.states[i]
	}
	seen := e.states[i]
	l.limits[i].Adopt(&seen, e.limits.limits[i].Evaluator, now)
	return &seen
}

// evaluate writes the answer of each limit to answers, and reports whether all limits admit n units.
func (l *Limits) evaluate(e *entry, now, n int64, answers []algorithm.Answer) bool {
	admits := true
	for i := range l.limits {
		answers[i].Evaluate(l.limits[i].Evaluator, l.state(e, i, now), now, n)
		admits = admits && answers[i].Admits
	}
	return admits
}

// adopt makes l the limits of e, and converts the states to the numbers of l. Used units stay used. The limits of e
// must have the same keys as l, but may have other numbers. adopt must be called before units are charged or
// refunded, because a queue can do neither to a state with other numbers. Holds do not depend on the numbers.
func (l *Limits) adopt(e *entry, now int64) {
	if e.limits == l {
		return
	}
	for i := range l.limits {
		l.limits[i].Adopt(&e.states[i], e.limits.limits[i].Evaluator, now)
	}
	e.limits = l
}

// A kept is the state of a limit that is not one of the current limits of the entry. limit is the limit that has
// stored the state.
type kept struct {
	limit algorithm.Limit
	key   string
	state algorithm.State
}

// rearrange gives e the keys of l, and puts the states into the order of l. It is called if the keys of e's limits
// differ from the numbers of l. A state that e already had keeps the numbers with which it was stored, until adopt is
// called. States of limits that l does not have are kept, and are dropped by a later call once nothing is used in
// them.
func (e *entry) rearrange(l *Limits, now int64) {
	all := e.kept
	for i, m := range e.limits.limits {
		all = append(all, kept{m, e.limits.keys[i], e.states[i]})
	}
	limits, states := slices.Clone(l.limits), make([]algorithm.State, len(l.limits))
	for i, key := range l.keys {
		if at := slices.IndexFunc(all, func(k kept) bool { return k.key == key }); at >= 0 {
			limits[i], states[i] = all[at].limit, all[at].state
			all = slices.Delete(all, at, at+1)
		}
	}
	e.kept = slices.DeleteFunc(all, func(k kept) bool { return k.limit.ResetAt(&k.state) <= now })
	e.limits, e.states = NewLimits(limits, l.keys, l.bans), states
}
