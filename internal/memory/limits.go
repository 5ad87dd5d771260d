package memory

import (
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// Limits are limits by which a Store decides. Those of the same names share the state of
// a key, whatever their numbers are.
type Limits struct {
	members []algorithm.Member
	group   string            // what keys begin with, so that limits of other names have other entries
	unused  []algorithm.State // the states of a key without an entry
}

// NewLimits returns the Limits of members. group is the same for limits of the same
// names and kinds: the empty one for those of most decisions.
func NewLimits(members []algorithm.Member, group string) *Limits {
	return &Limits{members: members, group: group, unused: make([]algorithm.State, len(members))}
}

// local returns the form in which a key is stored.
func (l *Limits) local(k string) string {
	k = key.Local(k)
	if l.group != "" {
		k = l.group + k
	}
	return k
}

// evaluate writes the answer of each limit to answers, and reports whether all admit n.
func (l *Limits) evaluate(e *entry, now, n int64, answers []algorithm.Answer) bool {
	states := l.unused
	if e != nil {
		states = e.states
	}
	admits := true
	for i := range l.members {
		answers[i].Evaluate(l.members[i].Evaluator, &states[i], now, n)
		admits = admits && answers[i].Admits
	}
	return admits
}

// adopt has l take over an entry that limits of other numbers decided last. What is used
// stays used.
func (l *Limits) adopt(e *entry, now int64) {
	for i := range l.members {
		l.members[i].Adopt(&e.states[i], e.limits.members[i].Evaluator, now)
	}
	e.limits = l
}
