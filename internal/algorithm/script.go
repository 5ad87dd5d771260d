package algorithm

import (
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

var (
	// Clock is the text with which every script begins. No other part of a script reads the time, so
	// tests with a clock of their own replace Clock.
	//
	//go:embed lua/clock.lua
	Clock string
	//go:embed lua/undeclared.lua
	undeclaredLua string

	preludeLua = readLua("prelude", nil)
	decideLua  = readLua("decide", nil)
	holdsLua   = readLua("holds", nil)
	bansLua    = readLua("bans", holdsLua)
)

// MaxLimits is the largest number of limits of a limiter, and of limits and bans of several limiters that
// decide together. It is bounded because a Lua function may have at most 200 local variables. A LeakyBucket
// needs more of them than any other limit.
const MaxLimits = 12

// A Limit is one of the limits of a limiter.
type Limit struct {
	*Kind
	Evaluator
	HoldDuration int64 // for how long its units are held, in microseconds, unless a call says otherwise
}

// ConstantsAt returns the constants of a script that is sent at now, by the clock of this process. A script
// that is sent from the instant from on, and before until, has the same constants.
func (m Limit) ConstantsAt(now int64) (args []any, from, until int64) {
	if w, ok := m.Evaluator.(interface {
		constantsAt(now int64) (args []any, from, until int64)
	}); ok {
		return w.constantsAt(now)
	}
	return m.Constants(), math.MinInt64, math.MaxInt64
}

// A Form says how a script gets its constants and keys.
type Form struct {
	// PerCallConstants means that each call has constants of its own. The limits of the calls are then of
	// the same kinds, but may have different numbers. Otherwise the script has constants once, for all calls.
	PerCallConstants bool
	// Undeclared means that the keys are passed to Redis as arguments: they are the first arguments, and
	// the last argument is their number. So they may be in several hash slots of one server of a Cluster.
	// Only scripts for several calls are undeclared.
	Undeclared bool
	// Groups says which limits belong to one limiter, and which limiters have bans. It may be nil if there
	// are no bans.
	Groups []Group
}

// A Group stands for one of the limiters that decide together in a script. Each limit in a script has a key
// and a cost of its own, whichever limiter it belongs to. Only bans belong to a limiter. The keys of the
// bans come after the keys of all limits.
type Group struct {
	Limits int // how many limits the limiter has
	Bans   Bans
}

// Script returns a script that carries out calls on limits. They are the limits of all Groups, in order.
func Script(limits []Limit, f Form) string {
	c := newComposer(limits, f)
	for _, g := range c.form.Groups {
		for range g.Limits {
			c.addLimit(g)
		}
		if g.Bans != nil {
			c.addBan(g.Bans)
		}
	}
	c.WriteString(Clock + "\n")
	if f.Undeclared {
		c.WriteString(undeclaredLua + "\n")
	}
	c.write(decideLua.shared)
	return c.String()
}

// A composer composes a script.
type composer struct {
	*scope // of the script

	form           Form
	limits         []Limit
	constants      int // the number of arguments that are constants, of all limits together
	behind         int // the number of arguments of each call behind the arguments of its limits: one for each ban, and its own constants
	reply          int // the number of integers that a plain decision replies for each limit in the fast branch, without free places
	next, at, cost int // the index of the next limit to be added; where its constants begin in ARGV, and its cost in a call
	included       map[*luaFile]bool
}

// newComposer returns a composer. The caller must add the limits and bans to it.
func newComposer(limits []Limit, f Form) *composer {
	c := &composer{form: f, limits: limits, reply: replyLen, at: 1, cost: 1, included: map[*luaFile]bool{bansLua: true}}
	if f.Groups == nil {
		c.form.Groups = []Group{{Limits: len(limits)}}
	}
	costs, bans, slots, wide := 0, 0, false, false
	for _, m := range limits {
		c.constants, slots, wide = c.constants+len(m.Constants()), slots || m.Slots, wide || m.Delays && len(limits) > 1
		if !m.Slots {
			costs += len(m.Cost(nil, 0))
		}
	}
	for _, g := range c.form.Groups {
		if g.Bans != nil {
			bans++
		}
	}
	zeros, first := banReplyLen*bans, 1+c.constants
	if wide {
		c.reply, zeros = otherReplyLen, 0 // a call that fails replies fewer integers, and no zero may be left behind its reply
	}
	if c.behind = bans; f.PerCallConstants {
		first, c.behind = 1, bans+c.constants
	}
	plain, other := 1+costs+c.behind, otherWidth+otherWidthEach*len(limits)+c.behind
	c.scope = &scope{
		Builder: &strings.Builder{},
		values: map[string]string{
			"script.own": strconv.FormatBool(f.PerCallConstants), "script.slots": strconv.FormatBool(slots), "script.wide": strconv.FormatBool(wide),
			"script.versions": "'" + Versions + "'", "script.first_call": strconv.Itoa(first),
			"script.limits": strconv.Itoa(len(limits)), "script.keys": strconv.Itoa(len(limits) + bans),
			"script.plain": strconv.Itoa(plain), "script.costs": strconv.Itoa(costs), "script.costs_end": strconv.Itoa(plain - 2),
			"script.other": strconv.Itoa(other), "script.renewal": strconv.Itoa(other + len(limits)),
			"script.zeros": "{ " + strings.Repeat("0, ", zeros+c.reply*len(limits)) + strings.Repeat("nil, ", 3*len(limits)) + "}",
		},
		marks: map[string]bool{"SEVERAL": len(limits) > 1, "ONCE": len(limits) == 1 && !f.PerCallConstants, "CALL": len(limits) == 1 && f.PerCallConstants},
		parts: map[string][]luaLine{"PRELUDE": slices.Clone(preludeLua.shared), "HOLDS": nil},
		each:  map[string][]*scope{"EACH LIMIT": nil, "EACH BAN": nil},
	}
	return c
}

// add adds a limit or a ban, and returns its scope. The scope has the functions of a file, the values of the
// script, and the numbers.
func (c *composer) add(each string, file *luaFile, numbers map[string]int) *scope {
	s := *c.scope
	s.functions, s.values, s.marks = file.functions, maps.Clone(c.values), maps.Clone(c.marks)
	maps.Copy(s.values, file.fields)
	for name, n := range numbers {
		s.values[name] = strconv.Itoa(n)
	}
	c.each[each] = append(c.each[each], &s)
	return &s
}

// addLimit adds the next limit, which belongs to g.
func (c *composer) addLimit(g Group) {
	i, m := c.next, c.limits[c.next]
	s := c.add("EACH LIMIT", m.lua, map[string]int{
		"limit.number": i + 1, "limit.first": c.at, "limit.position": c.cost, "limit.reply": i * c.reply, "limit.wide_reply": i * otherReplyLen,
		"limit.handle": otherWidth + otherWidthEach*i, "limit.duration": otherWidth + otherWidthEach*len(c.limits) + i,
	})
	s.values["constants_at"] = strconv.Itoa(c.at)
	if c.form.PerCallConstants {
		s.values["constants_at"] = fmt.Sprintf("at + width - %d", c.constants-c.at+1)
	}
	s.suffixes = map[string]string{"_i": "_" + strconv.Itoa(i+1), "_b": "_" + strconv.Itoa(len(c.each["EACH BAN"])+1)}
	if len(c.limits) == 1 {
		s.suffixes["_i"] = ""
	}
	s.marks["BANS"] = len(g.Bans) > 0 && !m.Slots // only a denial because of charged units bans, and slots are never charged
	s.parts = map[string][]luaLine{"CONSTANTS": m.lua.constants}
	if !m.Slots {
		c.parts["HOLDS"] = holdsLua.shared
	}
	c.include(m.lua)
	c.next, c.at, c.cost = i+1, c.at+len(m.Constants()), c.cost+len(m.Cost(nil, 0))
}

// include adds the shared part of a file, and of its base, to the script, unless it has been added. It stops at
// bansLua, which newComposer marks as included: bans.lua has no shared part, and HOLDS stands for the one of holds.lua.
func (c *composer) include(file *luaFile) {
	if !c.included[file] {
		c.included[file] = true
		c.include(file.base)
		c.parts["PRELUDE"] = append(c.parts["PRELUDE"], file.shared...)
	}
}

// addBan adds the bans of a group. The limits of the group must have been added.
func (c *composer) addBan(bans Bans) {
	number := len(c.each["EACH BAN"]) + 1
	s := c.add("EACH BAN", bansLua, map[string]int{"ban.longest": MaxBan, "ban.key": len(c.limits) + number, "ban.flag": c.behind - number + 1})
	s.values["ban.levels"] = "{ " + strings.Trim(strings.ReplaceAll(fmt.Sprint([]int64(bans)), " ", ", "), "[]") + " }"
	s.suffixes = map[string]string{"_b": "_" + strconv.Itoa(number)}
}

// A call that is not a plain decision has otherWidth arguments, and otherWidthEach more for each limit. A
// renewal has one more for each limit, behind all of these.
const (
	otherWidth     = 3
	otherWidthEach = 2
)
