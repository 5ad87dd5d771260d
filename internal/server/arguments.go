package server

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/key"
)

// Limits are limits in the form in which scripts are given them. Those of one Store are
// of the same kinds, in the same order, and differ in their numbers and names.
type Limits struct {
	members  []algorithm.Member
	tails    []string // what follows the user's key in the Redis key of each: "}:token-1m"
	unitCost []any    // of all, as text
	moves    bool     // the constants of one are those of an instant
	latest   atomic.Pointer[constants]
	bans     algorithm.Bans

	replyEach int // integers of the reply to a plain decision, for each
}

// constants are those of all limits, as text, for what is sent from an instant on and before another.
type constants struct {
	plain       []any
	hold        []any // for the script hold: each limit's constants and the duration of its holds
	from, until int64
}

// banTail is what the Redis key of a ban ends with. No name of a limit has a "~".
const banTail = "}:~ban"

// NewLimits returns the Limits of members. names are what the Redis keys end with.
func NewLimits(members []algorithm.Member, names []string, bans algorithm.Bans) *Limits {
	l := &Limits{members: members, bans: bans, replyEach: algorithm.ReplyLen(members) / len(members)}
	l.latest.Store(l.newConstants(0))
	for i, m := range members {
		l.tails = append(l.tails, "}:"+names[i])
		l.moves = l.moves || m.Moves
		for _, cost := range m.Cost(nil, 1) {
			l.unitCost = append(l.unitCost, fmt.Sprint(cost))
		}
	}
	if bans != nil {
		l.tails = append(l.tails, banTail)
	}
	return l
}

// differ reports whether a limit of other with the same Redis key has other numbers.
func (l *Limits) differ(other *Limits) bool {
	for i, m := range l.members {
		if j := slices.Index(other.tails, l.tails[i]); j >= 0 && !slices.Equal(m.Constants(), other.members[j].Constants()) {
			return true
		}
	}
	return false
}

func (l *Limits) newConstants(now int64) *constants {
	c := &constants{from: math.MinInt64, until: math.MaxInt64}
	for _, m := range l.members {
		args, from, until := m.ConstantsAt(now)
		c.from, c.until = max(c.from, from), min(c.until, until)
		for _, constant := range args {
			text := any(fmt.Sprint(constant))
			c.plain, c.hold = append(c.plain, text), append(c.hold, text)
		}
		c.hold = append(c.hold, strconv.FormatInt(m.Hold, 10))
	}
	return c
}

// constants returns those of what is sent at now. They are kept: a decision does not find out what month it is.
func (l *Limits) constants(now int64) *constants {
	c := l.latest.Load()
	if now < c.from || now >= c.until {
		c = l.newConstants(now)
		l.latest.Store(c)
	}
	return c
}

// now returns the time of this process in microseconds, once for all that is sent together, if a constant depends on it.
func (s *Store) now() int64 {
	if !s.moves {
		return 0
	}
	return s.Clock().UnixMicro()
}

// replyLen returns how many integers the reply to one call has.
func (s *Store) replyLen(needsHold bool) int {
	sum := 0
	for _, part := range s.stores {
		all, _ := part.Limits.replyLen(needsHold)
		sum += all
	}
	return sum
}

// appendCost appends whether to charge, and the cost for each limit.
func (d *Decision) appendCost(dst []any) []any {
	if d.Op == algorithm.OpCharge {
		dst = append(dst, "1")
	} else {
		dst = append(dst, "0")
	}
	for o := d; o != nil; o = o.next {
		dst = o.Limits.appendUnits(dst, o.N)
	}
	return d.appendBans(dst)
}

// appendUnits appends the cost of n units for each limit.
func (l *Limits) appendUnits(dst []any, n int64) []any {
	if n == 1 {
		return append(dst, l.unitCost...)
	}
	for _, m := range l.members {
		dst = m.Cost(dst, n)
	}
	return dst
}

// appendBans appends whether a denial bans, for each limiter with bans.
func (d *Decision) appendBans(dst []any) []any {
	for o := d; o != nil; o = o.next {
		dst = o.Limits.appendBans(dst, o.HoldCall)
	}
	return dst
}

// appendBans appends whether a denial bans, for a limiter with bans.
func (l *Limits) appendBans(dst []any, c algorithm.HoldCall) []any {
	switch {
	case l.bans == nil:
		return dst
	case c.Bans:
		return append(dst, "1")
	}
	return append(dst, "0")
}

// replyLen returns how many integers the reply to one call has, and how many of them are about the ban.
func (l *Limits) replyLen(needsHold bool) (all, ban int) {
	each := l.replyEach
	if needsHold {
		each = algorithm.HoldReplyLen(1)
	}
	if l.bans != nil {
		ban = each
	}
	return each*len(l.members) + ban, ban
}

// work returns about how many microseconds of Redis a decision on n units takes.
func (l *Limits) work(n int64) int64 {
	sum := int64(0)
	for _, m := range l.members {
		sum += m.Work(n)
	}
	return sum
}

// appendConstants appends those of all limits.
func (d *Decision) appendConstants(args []any, needsHold bool, now int64) []any {
	for o := d; o != nil; o = o.next {
		args = append(args, o.Limits.constants(now).of(needsHold)...)
	}
	return args
}

// of returns those for the script hold, or for the other.
func (c *constants) of(needsHold bool) []any {
	if needsHold {
		return c.hold
	}
	return c.plain
}

// appendCall appends the arguments of d for the script hold.
func (d *Decision) appendCall(args []any) []any {
	if d.next != nil {
		return d.appendCallTogether(args)
	}
	return d.Limits.appendCall(args, d.HoldCall)
}

func (l *Limits) appendCall(args []any, c algorithm.HoldCall) []any {
	return l.appendBans(c.Append(args, len(l.members)), c)
}

// appendKeys appends the Redis keys of one call of d: those of all limits, and then those of bans. Those of one
// user's key differ only outside the braces, so a Cluster keeps them in one hash slot.
func (s *Store) appendKeys(dst []any, d *Decision) []any {
	for i, o := 0, d; o != nil; i, o = i+1, o.next {
		head, k := s.stores[i].head, key.Encode(o.Key)
		for _, tail := range o.Limits.tails[:len(o.Limits.members)] {
			dst = append(dst, head+k+tail)
		}
	}
	for i, o := 0, d; o != nil; i, o = i+1, o.next {
		for _, tail := range o.Limits.tails[len(o.Limits.members):] {
			dst = append(dst, s.stores[i].head+key.Encode(o.Key)+tail)
		}
	}
	return dst
}

// slotKey returns a text with the hash slot of k's Redis keys.
func (s *Store) slotKey(k string) string { return s.head + key.Encode(k) + "}" }
