package algorithm

import (
	_ "embed"
	"fmt"
	"strings"
)

var (
	// Clock is the text with which every script begins, and the only one that asks
	// for the time: a test that drives the clock of a real Redis replaces it.
	//
	//go:embed lua/clock.lua
	Clock string
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/decide.lua
	decideLua string
	//go:embed lua/decide_all.lua
	decideAllLua string
	//go:embed lua/refund.lua
	refundLua string
)

// A Member is one of the limits of a script.
type Member struct {
	*Kind
	Evaluator
}

// DecideScript returns the script that decides on limits. A single limit gets a
// simpler one: it does not pay for the generality that several need.
func DecideScript(limits []Member) string {
	if len(limits) > 1 {
		return composeSeveral(limits, false, decideAllLua)
	}
	c := newComposer()
	c.add(limits[0].decideLua)
	c.addConstants(limits[0])
	return c.finish(decideLua)
}

// RefundScript returns the script that takes back what was charged to limits.
func RefundScript(limits []Member) string { return composeSeveral(limits, true, refundLua) }

// A composer puts a script together: what all begin with, the algorithms of the
// limits, and what is done with them.
type composer struct {
	text      strings.Builder
	constants int // of the limits so far
	width     int // the arguments of a decision so far
}

func newComposer() *composer {
	c := &composer{width: 1} // whether to charge
	c.add(Clock)
	c.add(sharedLua)
	return c
}

func (c *composer) add(lua string) { c.text.WriteString(lua + "\n") }

// addConstants has the script turn a limit's numbers in ARGV from text into
// numbers, once for all its decisions.
func (c *composer) addConstants(m Member) {
	for _, constant := range m.Constants() {
		c.constants++
		if _, number := constant.(int64); number {
			fmt.Fprintf(&c.text, "ARGV[%d] = ARGV[%[1]d] + 0\n", c.constants)
		}
	}
	c.width += m.costArgs
}

// finish ends the script with what it does.
func (c *composer) finish(lua string) string {
	fmt.Fprintf(&c.text, "local first, width = %d, %d\n\n%s", c.constants+1, c.width, lua)
	return c.text.String()
}

// composeSeveral returns a script over a Lua table of limits: each with the
// functions of its algorithm, and where its constants and its cost begin.
func composeSeveral(limits []Member, refund bool, lua string) string {
	c := newComposer()
	exports := "evaluate = evaluate, charge = charge"
	if refund {
		exports += ", refund = refund"
	}
	added := make(map[*Kind]bool)
	var table strings.Builder
	for _, m := range limits {
		if !added[m.Kind] {
			added[m.Kind] = true
			source := m.decideLua
			if refund {
				source += m.refundLua
			}
			c.add("local function " + m.Name + "(constants, cost)\n" + source +
				"return { constants = constants, cost = cost, " + exports + " }\nend")
		}
		fmt.Fprintf(&table, "%s(%d, %d), ", m.Name, c.constants+1, c.width)
		c.addConstants(m)
	}
	c.add("local limits = {" + table.String() + "}")
	return c.finish(lua)
}

// replyLen is how many integers a script replies for each limit.
const replyLen = 5

// failed is what a script replies instead of 1 or 0 for a decision that failed, and
// charged nothing, while others of the same script did not; or that it did not make,
// because those before it took long.
const failed = 2

// Failed reports whether reply, that of one of several decisions, is of one that
// failed and is to be sent again.
func Failed(reply []int64) bool { return len(reply) > 0 && reply[0] == failed }

// DecodeReply reads the reply to one decision. What replied may be a proxy,
// another version of this library or a fault, so nothing is believed that the
// script cannot have said.
func DecodeReply(reply []int64, limits []Member, into []Observation) error {
	if len(reply) != replyLen*len(limits) {
		return UnexpectedLength(len(reply), replyLen*len(limits))
	}
	for i, m := range limits {
		n := reply[i*replyLen : (i+1)*replyLen]
		o := Observation{Admits: n[0] == 1, At: n[1], A: n[2], B: n[3], C: n[4]}
		if n[0]>>1 != 0 || o.At < 0 || o.At >= maxInstant || !m.Valid(o) {
			return fmt.Errorf("unexpected reply from redis: %v", n)
		}
		into[i] = o
	}
	return nil
}

// UnexpectedLength is the error of a reply of another length than the script's.
func UnexpectedLength(got, want int) error {
	return fmt.Errorf("unexpected reply of %d numbers from redis, want %d", got, want)
}

// ReplyLen returns how many integers a decision on so many limits replies.
func ReplyLen(limits int) int { return replyLen * limits }
