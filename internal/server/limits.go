package server

import (
	"fmt"
	"strconv"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// Limits are limits in the form in which scripts are given them. Those of one Store are
// of the same kinds, in the same order, and differ in their numbers and names.
type Limits struct {
	members   []algorithm.Member
	tails     []string // what follows the user's key in the Redis key of each: "}:token-1m"
	constants []any    // of all, as text
	durations []any    // the same for the script hold: each limit's constants and the duration of its holds
	unitCost  []any    // of all, as text
}

// NewLimits returns the Limits of members. names are what the Redis keys end with.
func NewLimits(members []algorithm.Member, names []string) *Limits {
	l := &Limits{members: members}
	for i, m := range members {
		l.tails = append(l.tails, "}:"+names[i])
		for _, constant := range m.Constants() {
			text := any(fmt.Sprint(constant))
			l.constants = append(l.constants, text)
			l.durations = append(l.durations, text)
		}
		l.durations = append(l.durations, strconv.FormatInt(m.Hold, 10))
		for _, cost := range m.Cost(nil, 1) {
			l.unitCost = append(l.unitCost, fmt.Sprint(cost))
		}
	}
	return l
}

// appendCost appends whether to charge, and the cost for each limit.
func (l *Limits) appendCost(dst []any, c algorithm.HoldCall) []any {
	if c.Op == algorithm.OpCharge {
		dst = append(dst, "1")
	} else {
		dst = append(dst, "0")
	}
	if c.N == 1 {
		return append(dst, l.unitCost...)
	}
	for _, m := range l.members {
		dst = m.Cost(dst, c.N)
	}
	return dst
}

// work returns about how many microseconds of Redis a decision on n units takes.
func (l *Limits) work(n int64) int64 {
	sum := int64(0)
	for _, m := range l.members {
		sum += m.Work(n)
	}
	return sum
}
