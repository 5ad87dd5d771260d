package algorithm

import (
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

var (
	// Clock is the text with which every script begins, and the only part that asks
	// for the time: tests with a clock of their own replace it.
	//
	//go:embed lua/clock.lua
	Clock string
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/undeclared.lua
	undeclaredLua string
	//go:embed lua/decide.lua
	decideLua string
	//go:embed lua/decide_all.lua
	decideAllLua string
	//go:embed lua/record.lua
	recordLua string
	//go:embed lua/hold.lua
	holdLua string
	//go:embed lua/hold_limit.lua
	holdLimitLua string
	//go:embed lua/hold_in_string.lua
	holdInStringLua string
	//go:embed lua/hold_in_log.lua
	holdInLogLua string
)

// A Member is one of the limits of a limiter.
type Member struct {
	*Kind
	Evaluator
	Hold int64 // for how long its units are held, in microseconds
}

// A Form is how a script is given constants and keys.
type Form struct {
	// Own: each decision has constants of its own, because its limits have other numbers.
	// They are of the same kinds. Else the script has constants once, for all decisions.
	Own bool
	// Undeclared: Redis does not know the keys as keys. They are the first arguments, and the
	// last one is their number. So they may be in several hash slots of one server of a
	// Cluster. Such a script is for several decisions: for one it could not reply the error.
	Undeclared bool
}

// DecideScript returns the script that decides limits. The script for a single limit
// is simpler, and so faster.
func DecideScript(limits []Member, f Form) string {
	c := newComposer(f)
	fmt.Fprintf(&c.text, "local each = %d\n", replyEach(limits))
	if len(limits) > 1 {
		c.addSeveral(limits)
		return c.finish(decideAllLua)
	}
	c.add(limits[0].decideLua)
	c.addConstants(limits[0])
	return c.finish(decideLua)
}

// HoldScript returns the script for all that is more than a plain decision: holds,
// decisions on keys that have holds, refunds and resets. For undeclared see [Form].
func HoldScript(limits []Member, undeclared bool) string {
	c := newComposer(Form{Undeclared: undeclared})
	fmt.Fprintf(&c.text, "local several = #KEYS > %d\n", len(limits))
	c.add(recordLua)
	added := make(map[*Kind]bool)
	var table strings.Builder
	for i, m := range limits {
		switch {
		case added[m.Kind]:
		case m.Slots:
			c.add("local function " + m.Name + "(c, duration, queues, scratch)\n" + m.holdLua + "end")
		default:
			storage := holdInStringLua
			if m.storesLog {
				storage = holdInLogLua
			}
			c.add("local function " + m.Name + "(c, duration, queues, scratch)\nlocal started, now = now, now\n" +
				storage + m.decideLua + m.refundLua + m.holdLua + holdLimitLua + "end")
		}
		added[m.Kind] = true
		constants := c.constants + 1
		c.addConstants(m)
		c.addNumber() // the duration
		fmt.Fprintf(&table, "%s(%d, %d, %v, #ARGV + %d), ", m.Name, constants, c.constants, m.Delays, 1+maxCostArgs*i)
	}
	c.add("local limits = {" + table.String() + "}")
	c.width = holdWidth + holdWidthEach*len(limits)
	return c.finish(holdLua)
}

// maxCostArgs is how many arguments the cost of a limit takes at most.
const maxCostArgs = 2

// holdWidth is how many arguments of HoldScript a call takes, and holdWidthEach how many
// more for each limit.
const (
	holdWidth     = 3
	holdWidthEach = 2
)

// A composer puts a script together: what all begin with, the functions of the
// algorithms, and the part that calls them.
type composer struct {
	text      strings.Builder
	constants int   // how many arguments the constants of the limits so far take
	numbers   []int // which of them are numbers
	width     int   // how many arguments a decision takes, with the limits so far
	mixed     bool  // each decision has constants of its own
}

func newComposer(f Form) *composer {
	c := &composer{width: 1, mixed: f.Own} // the first says whether to charge
	c.add(Clock)
	if f.Undeclared {
		c.add(undeclaredLua)
	}
	c.add(sharedLua)
	return c
}

func (c *composer) add(lua string) { c.text.WriteString(lua + "\n") }

// addConstants adds m, whose constants and cost come after those of the limits so far.
func (c *composer) addConstants(m Member) {
	for _, constant := range m.Constants() {
		if _, number := constant.(int64); number {
			c.addNumber()
		} else {
			c.constants++
		}
	}
	c.width += m.costArgs
}

func (c *composer) addNumber() {
	c.constants++
	c.numbers = append(c.numbers, c.constants)
}

// finish ends the script with lua, the part that decides or holds, and returns it. Before
// that part the constants that are numbers are converted: once for all decisions, or in
// a mixed script by the Lua function own, which returns where those of a decision begin.
func (c *composer) finish(lua string) string {
	if c.mixed {
		c.add("local function own(at)")
		for _, i := range c.numbers {
			fmt.Fprintf(&c.text, "ARGV[at + %d] = ARGV[at + %[1]d] + 0\n", c.width+i-1)
		}
		fmt.Fprintf(&c.text, "return at + %d\nend\nlocal first, width = 1, %d\n\n%s", c.width, c.width+c.constants, lua)
		return c.text.String()
	}
	for _, i := range c.numbers {
		fmt.Fprintf(&c.text, "ARGV[%d] = ARGV[%[1]d] + 0\n", i)
	}
	fmt.Fprintf(&c.text, "local first, width, own = %d, %d, nil\n\n%s", c.constants+1, c.width, lua)
	return c.text.String()
}

// addSeveral adds the definition of `limits`: a table of limits, each with the
// functions of its algorithm and the positions at which its constants and its cost
// begin.
func (c *composer) addSeveral(limits []Member) {
	added := make(map[*Kind]bool)
	var table strings.Builder
	for _, m := range limits {
		if !added[m.Kind] {
			added[m.Kind] = true
			c.add("local function " + m.Name + "(constants, cost)\n" + m.decideLua +
				"return { constants = constants, cost = cost, evaluate = evaluate, charge = charge }\nend")
		}
		fmt.Fprintf(&table, "%s(%d, %d), ", m.Name, c.constants+1, c.width)
		c.addConstants(m)
	}
	c.add("local limits = {" + table.String() + "}")
}

// How many integers a script replies for each limit.
const (
	replyLen      = 5
	queueReplyLen = 7 // where one of the limits is a queue
	holdReplyLen  = 8 // of HoldScript
)

// What a script replies instead of 1 or 0.
const (
	undone = 2 // nothing was done: it failed, or the calls before it took long
	isHeld = 3 // nothing was done: the key has holds, so HoldScript must decide
	partly = 4 // it failed, and something has changed
)

// Undone reports whether reply, to one of several calls, says that nothing was done.
func Undone(reply []int64) bool { return len(reply) > 0 && reply[0] == undone }

// IsHeld reports whether reply says that nothing was done because the key has holds.
func IsHeld(reply []int64) bool { return len(reply) > 0 && reply[0] == isHeld }

// ErrPartly is the error of a call that failed after it had changed something: it must
// not be repeated.
var ErrPartly = errors.New("redis has changed some of the limits, and failed then")

// ErrReply is the error of a reply that the scripts never give: it is one call's, and says nothing about the server.
var ErrReply = errors.New("unexpected reply from redis")

// DecodeReply reads the reply to one decision. It refuses what the script never replies:
// a faulty proxy might, or another version of this library. It writes the handles of what was charged
// to those of the call, if they are not nil.
func DecodeReply(reply []int64, call HoldCall, limits []Member, into []Answer) error {
	size := replyEach(limits)
	if len(reply) != size*len(limits) {
		return UnexpectedLength(len(reply), size*len(limits))
	}
	if reply[0] == partly {
		return ErrPartly
	}
	for i, m := range limits {
		n := reply[i*size : (i+1)*size]
		o, ok := m.observation(n)
		if n[0] < 0 || n[0] > 1 || !ok {
			return fmt.Errorf("%w: %v", ErrReply, n)
		}
		into[i] = Answer{Admits: n[0] == 1, Observation: o}
		if call.Handles != nil {
			call.Handles[i] = m.chargeHandle(o, call.N, n)
		}
	}
	return nil
}

// chargeHandle returns the handle of n units that were charged after o, from the integers of one limit.
func (m Member) chargeHandle(o Observation, n int64, reply []int64) Handle {
	if q, ok := m.Evaluator.(*queue); ok {
		return q.handle(o, n, reply[6])
	}
	return m.ChargeHandle(o, n)
}

// observation returns what a decision observed, from the integers of one limit, and whether it is valid.
func (m Member) observation(n []int64) (Observation, bool) {
	o := Observation{At: n[1], A: n[2], B: n[3], C: n[4]}
	if m.Delays {
		if before, largest := n[4], n[5]; before|largest|n[6] < 0 || max(before, largest) >= 1<<packed {
			return o, false
		}
		o.C = pack(n[4], n[5])
	}
	return o, o.At >= 0 && o.At < maxInstant && m.Valid(o)
}

// HoldReplyLen returns how many integers the reply of HoldScript to one call has.
func HoldReplyLen(limits int) int { return holdReplyLen * limits }

// DecodeHoldReply reads the reply of HoldScript to one call. It writes answers for
// operations that decide, and the Handles of the call, if not nil, for those that charge or hold.
func DecodeHoldReply(reply []int64, call HoldCall, limits []Member, answers []Answer) error {
	if len(reply) != holdReplyLen*len(limits) {
		return UnexpectedLength(len(reply), holdReplyLen*len(limits))
	}
	if reply[0] == partly {
		return ErrPartly
	}
	op, handles := call.Op, call.Handles
	for i, m := range limits {
		n := reply[i*holdReplyLen : (i+1)*holdReplyLen]
		held, handle := n[5], Handle{n[6], n[7]}
		o, ok := m.observation(n)
		decides := op <= OpReserve
		if n[0] < 0 || n[0] > 1 || held < 0 || held >= maxInstant || handle.A < 0 || handle.B < 0 || decides && !ok {
			return fmt.Errorf("%w: %v", ErrReply, n)
		}
		if m.Delays {
			held = 0 // there it is the largest free place
		}
		if decides {
			answers[i] = Answer{n[0] == 1, o, held}
		}
		switch {
		case handles == nil:
		case m.Slots: // the zero Handle if they were lost
			handles[i] = handle
		case op == OpCharge || op == OpReserve && m.Delays:
			handles[i] = m.chargeHandle(o, call.N, n)
		case op == OpReserve || op == OpRenew && handle.A > 0:
			handles[i] = handle
		}
	}
	return nil
}

// A HoldCall is one call of HoldScript.
type HoldCall struct {
	Op   Op
	N, M int64 // units; for OpSettle the actual cost, and for what holds the id of holds, or 0 for any
	// Handles are those of what OpSettle, OpRefund, OpRenew and OpRelease are about, one for
	// each limit. For what decides they are where the reply's are written, if they are not nil; of
	// OpReserve A is for how long units are held, if it is not 0.
	Handles []Handle
}

// NewHoldID returns an id for holds that begin.
func NewHoldID() int64 { return 1 + rand.Int64N(1<<48) } // it is no secret, and only tells holds apart

// Append appends the arguments of the call for so many limits.
func (c HoldCall) Append(args []any, limits int) []any {
	m := c.M
	if m == 0 && (c.Op == OpReserve || c.Op == OpCharge) {
		m = NewHoldID()
	}
	args = append(args, string(c.Op), min(c.N, maxInstant), m) // more fits nowhere, and Lua would round it
	for i := range limits {
		if c.Handles != nil {
			args = append(args, c.Handles[i].A, c.Handles[i].B)
		} else {
			args = append(args, 0, 0)
		}
	}
	return args
}

// UnexpectedLength returns the error for a reply of the wrong length.
func UnexpectedLength(got, want int) error {
	return fmt.Errorf("%w: %d numbers, want %d", ErrReply, got, want)
}

// ReplyLen returns how many integers the reply to one decision has.
func ReplyLen(limits []Member) int { return replyEach(limits) * len(limits) }

func replyEach(limits []Member) int {
	if slices.ContainsFunc(limits, func(m Member) bool { return m.Delays }) {
		return queueReplyLen
	}
	return replyLen
}
