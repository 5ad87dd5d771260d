package redisstore

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/key"
)

// Limits are limits in the form in which scripts are given them. Those of one Store are of the same
// kinds, in the same order, and differ in their numbers and names.
type Limits struct {
	members  []algorithm.Member
	tails    []string // what follows the user's key in the Redis key of each: "}:token-1m"
	unitCost []any    // of all, as text
	holds    []any    // for how long units of each are held, as text
	timed    bool     // a constant of one depends on the time
	latest   atomic.Pointer[constants]
	bans     algorithm.Bans
	hasSlots bool // one is InFlight: no call is a plain decision
}

// constants are those of all limits, as text, for what is sent from an instant on and before
// another.
type constants struct {
	all         []any
	from, until int64
}

// banTail is what the Redis key of a ban ends with. No name of a limit has a "~".
const banTail = "}:~ban"

// NewLimits returns the Limits of members. names are what the Redis keys end with.
func NewLimits(members []algorithm.Member, names []string, bans algorithm.Bans) *Limits {
	l := &Limits{members: members, bans: bans}
	l.latest.Store(l.newConstants(0))
	for i, m := range members {
		l.tails = append(l.tails, "}:"+names[i])
		l.holds = append(l.holds, strconv.FormatInt(m.Hold, 10))
		l.timed, l.hasSlots = l.timed || m.Moves, l.hasSlots || m.Slots
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
			c.all = append(c.all, fmt.Sprint(constant))
		}
	}
	return c
}

// constants returns those of what is sent at now. They are kept: a decision does not find out what
// month it is.
func (l *Limits) constants(now int64) *constants {
	c := l.latest.Load()
	if now < c.from || now >= c.until {
		c = l.newConstants(now)
		l.latest.Store(c)
	}
	return c
}

// now returns the time of this process in microseconds, once for all that is sent together, if a
// constant depends on it.
func (s *Store) now() int64 {
	if !s.timed {
		return 0
	}
	return s.Clock().UnixMicro()
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

// work returns about how many microseconds of Redis a decision on n units takes.
func (l *Limits) work(n int64) int64 {
	sum := int64(0)
	for _, m := range l.members {
		sum += m.Work(n)
	}
	return sum
}

// scriptOf returns the script that makes the calls of members, its arguments, and how many of these
// are Redis keys. The plain decisions are the last members: if they are by the same limits as all,
// and ask for the same, the arguments of one stand for all.
func (s *Store) scriptOf(members []*Call) (script script, args []any, keys int) {
	last, now := members[len(members)-1], s.now()
	args = make([]any, scriptArgs, scriptArgs+len(last.Limits.constants(now).all)+len(members)*(3+3*len(s.members)))
	alike, mixed := true, false
	for _, m := range members {
		args = s.appendKeys(args, m)
		alike = alike && (!m.plain() || m.asks(last))
		mixed = mixed || !m.sameLimits(last)
	}
	keys, script = len(args)-scriptArgs, s.script // of one call: a Cluster is to redirect it if its slot has moved
	if len(members) > 1 {
		script = s.batchScript
	}
	if mixed {
		script = s.mixedScript
	} else {
		args = last.appendConstants(args, now)
	}
	for _, m := range members {
		if args = m.appendCall(args, mixed, now); alike && !mixed && m.plain() {
			break
		}
	}
	return script, args, keys
}

// appendConstants appends those of all limits.
func (d *Call) appendConstants(args []any, now int64) []any {
	for o := d; o != nil; o = o.next {
		args = append(args, o.Limits.constants(now).all...)
	}
	return args
}

// appendCall appends the arguments of d: of a plain decision whether to charge, and the cost for
// each limit. Each limiter with bans has one more, whether a denial bans. In a script of limits
// with other numbers each call has its own constants.
func (d *Call) appendCall(args []any, mixed bool, now int64) []any {
	if !d.plain() {
		args = d.Append(args, d.Limits.holds)
	} else {
		args = append(args, flag(d.Op == algorithm.OpCharge))
		for o := d; o != nil; o = o.next {
			args = o.Limits.appendUnits(args, o.N)
		}
	}
	for o := d; o != nil; o = o.next {
		if o.Limits.bans != nil {
			args = append(args, flag(o.Bans))
		}
	}
	if mixed {
		args = d.appendConstants(args, now)
	}
	return args
}

func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}

// appendKeys appends the Redis keys of d: those of all limits, and then those of bans. Those of one
// user's key differ only outside the braces, so a Cluster keeps them in one hash slot.
func (s *Store) appendKeys(dst []any, d *Call) []any {
	for i, o := 0, d; o != nil; i, o = i+1, o.next {
		head, k := s.stores[i].head, key.Encode(o.Key)
		for _, tail := range o.Limits.tails[:len(o.Limits.members)] {
			dst = append(dst, head+k+tail)
		}
	}
	for i, o := 0, d; o != nil && s.bans > 0; i, o = i+1, o.next {
		for _, tail := range o.Limits.tails[len(o.Limits.members):] {
			dst = append(dst, s.stores[i].head+key.Encode(o.Key)+tail)
		}
	}
	return dst
}

// slotKey returns a text with the hash slot of k's Redis keys.
func (s *Store) slotKey(k string) string { return s.head + key.Encode(k) + "}" }

// decode reads the reply to d: its numbers, so many for each limit, and those of bans. The error is
// batch.ErrRetryAlone if nothing was done. To a single call no script replies so.
func (d *Call) decode(numbers, bans []int64, each int, alone bool) error {
	if algorithm.Undone(numbers) && !alone {
		return batch.ErrRetryAlone
	}
	if len(bans) > 0 {
		if banned, err := d.decodeBans(bans); banned || err != nil {
			return err // no limit was asked
		}
	}
	for o := d; o != nil; o = o.next { // those of each limiter after the other's
		size := each * len(o.Limits.members)
		if err := algorithm.DecodeReply(numbers[:size], o.HoldCall, o.Limits.members, o.Answers); err != nil {
			return err
		}
		numbers = numbers[size:]
	}
	return nil
}

// decodeBans sets the Ban of d, and of those that are made together with it. It reports whether one
// was there before.
func (d *Call) decodeBans(reply []int64) (before bool, err error) {
	for o := d; o != nil; o = o.next {
		if o.Limits.bans == nil {
			continue
		}
		var ban algorithm.Ban
		if ban, reply, err = algorithm.DecodeBan(reply); err != nil {
			return false, err
		}
		if o.Answers != nil {
			o.inline[0].Observation = ban.Observation()
		}
		before = before || ban.Until > 0 && !ban.Began
	}
	return before, nil
}
