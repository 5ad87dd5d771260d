package memory

import (
	"slices"
	"strings"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Limits are the limits of a limiter, by which a Store decides.
type Limits struct {
	members []algorithm.Member
	keys    []string // one for each limit: limits with the same key share their state, whatever their numbers are
	joined  string   // the keys as one text: it is equal for Limits with the same keys in the same order
	unused  []algorithm.State
	bans    algorithm.Bans
}

// NewLimits returns the Limits of members. keys has one key for each of them: what follows the
// user's key in Redis.
func NewLimits(members []algorithm.Member, keys []string, bans algorithm.Bans) *Limits {
	return &Limits{
		members: members, keys: keys, joined: strings.Join(keys, "\x00"), bans: bans,
		unused: make([]algorithm.State, len(members)),
	}
}

// state returns the state of limit i in an entry, which may be nil, as it is for l. That of a queue
// with another rate is a copy: the entry stays as it is, for l may admit nothing.
func (l *Limits) state(e *entry, i int, now int64) *algorithm.State {
	switch {
	case e == nil:
		return &l.unused[i]
	case e.limits == l || !l.members[i].Delays:
		return &e.states[i]
	}
	seen := e.states[i].Seen()
	l.members[i].Adopt(&seen, e.limits.members[i].Evaluator, now)
	return &seen
}

// evaluate writes the answer of each limit to answers, and reports whether all admit n.
func (l *Limits) evaluate(e *entry, now, n int64, answers []algorithm.Answer) bool {
	admits := true
	for i := range l.members {
		answers[i].Evaluate(l.members[i].Evaluator, l.state(e, i, now), now, n)
		admits = admits && answers[i].Admits
	}
	return admits
}

// adopt makes l the limits of an entry with the same keys, which l is about to change. Used units
// stay used.
func (l *Limits) adopt(e *entry, now int64) {
	if e.limits == l {
		return
	}
	for i := range l.members {
		l.members[i].Adopt(&e.states[i], e.limits.members[i].Evaluator, now)
	}
	e.limits = l
}

// A kept state is that of a limit by which its entry was not charged last.
type kept struct {
	member algorithm.Member
	key    string
	state  algorithm.State
}

// rearrange puts the states of an entry into the order of l, whose keys are others. The states of
// limits that l does not have are kept as long as they count.
func (e *entry) rearrange(l *Limits, now int64) {
	all := e.kept
	for i, m := range e.limits.members {
		all = append(all, kept{m, e.limits.keys[i], e.states[i]})
	}
	members, states := slices.Clone(l.members), make([]algorithm.State, len(l.members))
	for i, key := range l.keys {
		if at := slices.IndexFunc(all, func(k kept) bool { return k.key == key }); at >= 0 {
			members[i], states[i] = all[at].member, all[at].state
			all = slices.Delete(all, at, at+1)
		}
	}
	e.kept = slices.DeleteFunc(all, func(k kept) bool { return k.member.ResetAt(&k.state) <= now })
	e.limits, e.states = NewLimits(members, l.keys, l.bans), states
}
