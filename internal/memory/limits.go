package memory

import (
	"fmt"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Limits are limits by which a Store decides. Those of the same names share the state of a key,
// whatever their numbers are.
type Limits struct {
	members []algorithm.Member
	grouped bool              // keys begin with head, so that limits of other names have other entries
	head    string            // a NUL, the group and its length
	unused  []algorithm.State // the states of a key without an entry
	bans    algorithm.Bans
}

// NewLimits returns the Limits of members. group is the same for limits of the same names and
// kinds: the empty one for those of most decisions.
func NewLimits(members []algorithm.Member, group string, bans algorithm.Bans) *Limits {
	return &Limits{
		bans: bans, members: members, grouped: group != "", head: fmt.Sprintf("\x00%d:%s", len(group), group),
		unused: make([]algorithm.State, len(members)),
	}
}

// stored returns the form in which a key of key.Local is stored. It is that of no other key of any
// group: those without a head do not begin with a NUL, and a head says where it ends.
func (l *Limits) stored(k string) string {
	if l.grouped || k[0] == 0 {
		k = l.head + k
	}
	return k
}

// states returns those of an entry, which may be nil, as they are for l.
func (l *Limits) states(e *entry, now int64) []algorithm.State {
	switch {
	case e == nil:
		return l.unused
	case e.limits == l:
		return e.states
	}
	return l.seen(e, now)
}

// evaluate writes the answer of each limit to answers, and reports whether all admit n.
func (l *Limits) evaluate(e *entry, now, n int64, answers []algorithm.Answer) bool {
	states := l.states(e, now)
	admits := true
	for i := range l.members {
		answers[i].Evaluate(l.members[i].Evaluator, &states[i], now, n)
		admits = admits && answers[i].Admits
	}
	return admits
}

// seen returns the states of an entry that limits of other numbers have charged, as they are for l.
// The entry stays as it is: l may admit nothing.
func (l *Limits) seen(e *entry, now int64) []algorithm.State {
	states := make([]algorithm.State, len(e.states))
	for i := range states {
		states[i] = e.states[i].Seen()
		l.members[i].Adopt(&states[i], e.limits.members[i].Evaluator, now)
	}
	return states
}

// adopt has l take over an entry, which it charges. What is used stays used.
func (l *Limits) adopt(e *entry, now int64) {
	if e.limits != l {
		l.convert(e, now)
	}
}

func (l *Limits) convert(e *entry, now int64) {
	for i := range l.members {
		l.members[i].Adopt(&e.states[i], e.limits.members[i].Evaluator, now)
	}
	e.limits = l
}
