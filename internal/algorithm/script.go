package algorithm

import (
	_ "embed"
	"errors"
	"fmt"
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
	//go:embed lua/decide.lua
	decideLua string
	//go:embed lua/decide_all.lua
	decideAllLua string
	//go:embed lua/refund.lua
	refundLua string
)

// A Member is one of the limits that a script decides.
type Member struct {
	*Kind
	Evaluator
}

// DecideScript returns the script that decides limits. The script for a single limit
// is simpler, and so faster.
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

// A composer puts a script together: what all begin with, the functions of the
// algorithms, and the part that calls them.
type composer struct {
	text      strings.Builder
	constants int // how many arguments the constants of the limits so far take
	width     int // how many arguments a decision takes, with the limits so far
}

func newComposer() *composer {
	c := &composer{width: 1} // the first says whether to charge
	c.add(Clock)
	c.add(sharedLua)
	return c
}

func (c *composer) add(lua string) { c.text.WriteString(lua + "\n") }

// addConstants adds m, whose constants and cost come after those of the limits so far.
// The script converts the constants that are numbers once, for all its decisions.
func (c *composer) addConstants(m Member) {
	for _, constant := range m.Constants() {
		c.constants++
		if _, number := constant.(int64); number {
			fmt.Fprintf(&c.text, "ARGV[%d] = ARGV[%[1]d] + 0\n", c.constants)
		}
	}
	c.width += m.costArgs
}

// finish returns the script, which ends with lua: the part that decides or refunds.
func (c *composer) finish(lua string) string {
	fmt.Fprintf(&c.text, "local first, width = %d, %d\n\n%s", c.constants+1, c.width, lua)
	return c.text.String()
}

// composeSeveral returns a script that ends with lua, for which it defines `limits`: a
// table of limits, each with the functions of its algorithm and the positions at
// which its constants and its cost begin.
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

// failed is what a script replies instead of 1 or 0 for a decision that charged
// nothing, because it failed or because the decisions before it took long, if the
// script has other decisions.
const failed = 2

// failedInPart is what it replies for a decision that failed after it had charged one
// of its limits.
const failedInPart = 3

var errInPart = errors.New("redis has charged one of the limits, and failed to charge another")

// Failed reports whether reply, to one of several decisions, says that this one failed
// and charged nothing.
func Failed(reply []int64) bool { return len(reply) > 0 && reply[0] == failed }

// DecodeReply reads the reply to one decision. It refuses what the script cannot reply:
// a faulty proxy may, or another version of this library.
func DecodeReply(reply []int64, limits []Member, into []Answer) error {
	if len(reply) != replyLen*len(limits) {
		return UnexpectedLength(len(reply), replyLen*len(limits))
	}
	if len(limits) > 1 && reply[0] == failedInPart {
		return errInPart
	}
	for i, m := range limits {
		n := reply[i*replyLen : (i+1)*replyLen]
		o := Observation{At: n[1], A: n[2], B: n[3], C: n[4]}
		if n[0] < 0 || n[0] > 1 || o.At < 0 || o.At >= maxInstant || !m.Valid(o) {
			return fmt.Errorf("unexpected reply from redis: %v", n)
		}
		into[i] = Answer{n[0] == 1, o}
	}
	return nil
}

// UnexpectedLength returns the error for a reply of the wrong length.
func UnexpectedLength(got, want int) error {
	return fmt.Errorf("unexpected reply of %d numbers from redis, want %d", got, want)
}

// ReplyLen returns how many integers the reply to one decision has.
func ReplyLen(limits int) int { return replyLen * limits }
