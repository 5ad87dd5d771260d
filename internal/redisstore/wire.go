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

// Limits are the limits of a limiter, prepared as arguments of scripts. All Limits of one Store
// have the same kinds of limits in the same order, with different numbers and names.
type Limits struct {
	limits        []algorithm.Limit
	tails         []string // how the Redis key of each limit ends after the user's key, such as "}:token-1m"; then banTail, if there are bans
	unitCost      []any    // the cost of one unit for each limit, as text
	holdDurations []any    // how long units of each limit are held, as text
	timed         bool     // a constant of a limit depends on the time
	latest        atomic.Pointer[constants]
	bans          algorithm.Bans
	hasSlots      bool // a limit is InFlight, so no call is a plain decision
}

// constants contains the constants of all limits, as text. They apply to calls that are sent at or after
// from and before until, which are in microseconds.
type constants struct {
	all         []any
	from, until int64
}

// banTail is the end of the Redis key of a ban. No limit's key ends like this, because there a "~"
// always follows a name.
const banTail = "}:~ban"

// NewLimits returns the Limits of a limiter. names has the ends of the Redis keys of the limits.
func NewLimits(limits []algorithm.Limit, names []string, bans algorithm.Bans) *Limits {
	l := &Limits{limits: limits, bans: bans}
	l.latest.Store(l.newConstants(0))
	for i, m := range limits {
		l.tails = append(l.tails, "}:"+names[i])
		l.holdDurations = append(l.holdDurations, strconv.FormatInt(m.HoldDuration, 10))
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

// differ reports whether a limit of l and one of other have the same Redis key and different numbers.
func (l *Limits) differ(other *Limits) bool {
	for i, m := range l.limits {
		if j := slices.Index(other.tails, l.tails[i]); j >= 0 && !slices.Equal(m.Constants(), other.limits[j].Constants()) {
			return true
		}
	}
	return false
}

// newConstants returns the constants for calls that are sent at now.
func (l *Limits) newConstants(now int64) *constants {
	c := &constants{from: math.MinInt64, until: math.MaxInt64}
	for _, m := range l.limits {
		args, from, until := m.ConstantsAt(now)
		c.from, c.until = max(c.from, from), min(c.until, until)
		for _, constant := range args {
			c.all = append(c.all, fmt.Sprint(constant))
		}
	}
	return c
}

// constants returns the constants for calls that are sent at now. It remembers them, so that few
// decisions have to find out, for instance, which month it is.
func (l *Limits) constants(now int64) *constants {
	c := l.latest.Load()
	if now < c.from || now >= c.until {
		c = l.newConstants(now)
		l.latest.Store(c)
	}
	return c
}

// now returns the time of this process in microseconds, or 0 if no constant depends on the time. The
// clock is read once for all calls in a script.
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
	for _, m := range l.limits {
		dst = m.Cost(dst, n)
	}
	return dst
}

// work estimates how many microseconds Redis takes for a decision on n units.
func (l *Limits) work(n int64) int64 {
	sum := int64(0)
	for _, m := range l.limits {
		sum += m.Work(n)
	}
	return sum
}

// scriptOf returns the script that makes calls, its arguments, and how many of these arguments are
// Redis keys. The first scriptArgs arguments are left empty for script.command. Plain decisions must
// come last in calls. If all calls have the same limits and all plain decisions ask for the same, only
// the arguments of the first plain decision are sent. The script then uses its last arguments again for
// each of the remaining calls.
func (s *Store) scriptOf(calls []*Call) (script script, args []any, keys int) {
	last, now := calls[len(calls)-1], s.now()
	perCall := len(s.limits) + otherWidth + otherWidthEach*len(s.limits) // keys and arguments
	args = make([]any, scriptArgs, scriptArgs+len(last.Limits.constants(now).all)+len(calls)*perCall)
	alike, mixed := true, false
	for _, d := range calls {
		args = s.appendKeys(args, d)
		alike = alike && (!d.plain() || d.sameDecision(last))
		mixed = mixed || !d.sameLimits(last)
	}
	keys, script = len(args)-scriptArgs, s.script // it declares its keys, so a Cluster redirects the call if the slot has moved
	if len(calls) > 1 {
		script = s.batchScript
	}
	if mixed {
		script = s.mixedScript
	} else {
		args = last.appendConstants(args, now)
	}
	for _, d := range calls {
		if args = d.appendCall(args, mixed, now); alike && !mixed && d.plain() {
			break
		}
	}
	return script, args, keys
}

// otherWidth and otherWidthEach estimate how many arguments a call has besides its keys:
// otherWidth, and otherWidthEach more for each limit. A call that is not a plain decision has at
// least that many: see [algorithm.Operation.Append].
const (
	otherWidth     = 3
	otherWidthEach = 2
)

// appendConstants appends the constants of all limits of d.
func (d *Call) appendConstants(args []any, now int64) []any {
	for o := d; o != nil; o = o.next {
		args = append(args, o.Limits.constants(now).all...)
	}
	return args
}

// appendCall appends the arguments of d. For a plain decision, these are whether to charge, and the
// cost for each limit. For each limiter with bans, one more argument follows: whether a denial
// bans. In a mixed script, the constants of the call come last.
func (d *Call) appendCall(args []any, mixed bool, now int64) []any {
	if !d.plain() {
		args = d.Append(args, d.Limits.holdDurations)
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

// flag returns b as an argument of a script.
func flag(b bool) any {
	if b {
		return "1"
	}
	return "0"
}

// appendKeys appends the Redis keys of d and of the calls that are made together with it: first the keys of
// all limits, and then the keys of bans. All Redis keys of one user's key have the same text within the
// braces, so a Cluster keeps them in one hash slot.
func (s *Store) appendKeys(dst []any, d *Call) []any {
	for i, o := 0, d; o != nil; i, o = i+1, o.next {
		head, k := s.stores[i].head, key.Encode(o.Key)
		for _, tail := range o.Limits.tails[:len(o.Limits.limits)] {
			dst = append(dst, head+k+tail)
		}
	}
	for i, o := 0, d; o != nil && s.limitersWithBans > 0; i, o = i+1, o.next {
		for _, tail := range o.Limits.tails[len(o.Limits.limits):] {
			dst = append(dst, s.stores[i].head+key.Encode(o.Key)+tail)
		}
	}
	return dst
}

// slotKey returns a text that has the same hash slot as the Redis keys of k.
func (s *Store) slotKey(k string) string { return s.head + key.Encode(k) + "}" }

// decode reads the reply to d, and sets its Answers, Handles and Ban. numbers contains the integers about the
// limits, and each says how many integers there are for one limit. banNumbers contains the integers about bans.
// If the script has done nothing for d, decode returns batch.ErrRetryAlone. lone says that d was the only call
// of the round trip: the script of such a call never replies that it has done nothing, so this reply is then
// an error.
func (d *Call) decode(numbers, banNumbers []int64, each int, lone bool) error {
	if algorithm.Undone(numbers) && !lone {
		return batch.ErrRetryAlone
	}
	if len(banNumbers) > 0 {
		if banned, err := d.decodeBans(banNumbers); banned || err != nil {
			return err // if a key was banned before, no limit has decided
		}
	}
	for o := d; o != nil; o = o.next { // one limiter after the other
		size := each * len(o.Limits.limits)
		if err := algorithm.DecodeReply(numbers[:size], o.Operation, o.Limits.limits, o.Answers); err != nil {
			return err
		}
		numbers = numbers[size:]
	}
	return nil
}

// decodeBans sets the Ban of d, and of the calls that are made together with d. banned is true if a key was
// banned already when the script began to decide.
func (d *Call) decodeBans(reply []int64) (banned bool, err error) {
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
		banned = banned || ban.Until > 0 && !ban.Began
	}
	return banned, nil
}
