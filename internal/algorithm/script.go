package algorithm

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

var (
	// Clock is the text with which every script begins, and the only part that asks for the time:
	// tests with a clock of their own replace it.
	//
	//go:embed lua/clock.lua
	Clock string
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/undeclared.lua
	undeclaredLua string
	//go:embed lua/decide.lua
	decideLua string
	//go:embed lua/newer.lua
	newerLua string
	//go:embed lua/mistyped.lua
	mistypedLua string
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

	holdLimit, holdInString, holdInLog = parseLua(holdLimitLua), parseLua(holdInStringLua), parseLua(holdInLogLua)
	newer                              = fill(newerLua, "VERSIONS", versions)
)

// MaxLimits bounds the limits of a limiter, and the limits and bans that several decide by
// together: a Lua function has 200 variables, and queues take the most.
const MaxLimits = 12

// mostHanded bounds the limits whose values are handed on to what is no plain decision: more are
// read again, to spare variables.
const mostHanded = 8

// A Member is one of the limits of a limiter.
type Member struct {
	*Kind
	Evaluator
	Hold int64 // for how long its units are held, in microseconds
}

// ConstantsAt returns the constants of a script that is sent at now, by the clock of this process,
// and from and until when they are the same.
func (m Member) ConstantsAt(now int64) (args []any, from, until int64) {
	if w, ok := m.Evaluator.(interface {
		constantsAt(now int64) (args []any, from, until int64)
	}); ok {
		return w.constantsAt(now)
	}
	return m.Constants(), math.MinInt64, math.MaxInt64
}

// A Form is how a script is given constants and keys.
type Form struct {
	// Own: each decision has constants of its own, because its limits have other numbers. They are
	// of the same kinds. Else the script has constants once, for all decisions.
	Own bool
	// Undeclared: Redis does not know the keys as keys. They are the first arguments, and the last
	// one is their number. So they may be in several hash slots of one server of a Cluster. Such a
	// script is for several decisions: for one it could not reply the error.
	Undeclared bool
	// Bans: those of the limiter, whose key comes after those of the limits.
	Bans Bans
	// Groups are the limiters whose limits are decided together, each on a key and a cost of its
	// own; nil for one limiter. Each has its Bans, whose keys come after those of all limits.
	Groups []Group
}

// A Group is one of several limiters, of those that a script decides together.
type Group struct {
	Limits int // how many it has
	Bans   Bans
}

// Script returns the script of limits.
func Script(limits []Member, f Form) string {
	c := &composer{Form: f, limits: len(limits), several: len(limits) > 1, each: replyLen}
	for _, m := range limits {
		c.constants += len(m.Constants())
		c.costs += len(m.lua.cost)
		c.slots, c.charges = c.slots || m.Slots, c.charges || !m.Slots
		if m.Delays && c.several {
			c.each = otherReplyLen
		}
	}
	behind := 0 // constants, of each call
	if f.Own {
		behind = c.constants
	}
	ban := f.banTexts(len(limits), behind)
	for i, m := range limits {
		c.add(m, i, ban.denied[i])
	}

	size, plain := len(limits)+ban.count, 1+c.costs+ban.count+behind
	other := otherWidth + otherWidthEach*len(limits) + ban.count + behind
	zeros := c.each * len(limits)
	if c.each == replyLen { // else what fails replies fewer
		zeros += banReplyLen * ban.count
	}
	isPlain, made := "op == '1' or op == '0'", mistypedLua+c.made.String()
	c.holds.WriteString("local mistyped\n")
	if c.slots {
		isPlain = "false"
	}
	if c.charges {
		c.holds.WriteString("local parse, unfold, fold, speed, fastest\n")
		made = recordLua + made
	}
	return c.begin(plain) + fill(decideLua,
		"-- ZEROS", strings.Repeat("0, ", zeros)+strings.Repeat("nil, ", 3*len(limits)), "-- LIMITS", strconv.Itoa(len(limits)),
		"-- SIZE", strconv.Itoa(size), "-- PLAIN", isPlain, "-- WIDTHS", fmt.Sprintf("%d or op == '6' and %d or %d", plain, other+len(limits), other),
		"-- FUNCTIONS\n", sharedLua+c.functions.String(), "-- HOLDS\n", c.holds.String(), "-- VALUES\n", c.values.String(), "-- LOOK\n", ban.look,
		"-- EVALUATE\n", c.evaluate.String(), "-- CHARGE\n", c.charge.String(),
		"-- OTHER\n", ban.again+fill(holdLua, "-- FUNCTIONS\n", made, "-- BLOCK\n", ban.block,
			"-- LOOK\n", c.look.String(), "-- ACT\n", c.act.String(), "-- BLOCKED\n", ban.blocked),
		"-- BAN\n", ban.begin, "-- REPLY\n", ban.reply)
}

// A composer puts the texts of the limits of a script together.
type composer struct {
	Form

	limits           int
	several          bool // limits: what each finds for its charge has names of its own
	slots, charges   bool // one has slots, so that no call is plain; one has none
	each             int  // integers of the reply to a plain decision, for each limit
	constants, costs int  // how many there are

	numbers []int // which constants of the limits so far are numbers
	given   int   // how many these are
	paid    int   // how many costs they have

	functions, holds, values, evaluate, charge strings.Builder // see lua/decide.lua
	made, look, act                                  strings.Builder // see lua/hold.lua
}

// begin returns what stands before decide.lua. Arguments that are for many calls become numbers
// there.
func (c *composer) begin(plain int) string {
	var text strings.Builder
	text.WriteString(Clock + "\n")
	if c.Undeclared {
		text.WriteString(undeclaredLua + "\n")
	}
	if c.Own {
		return text.String() + "local first = 1\n"
	}
	for _, i := range c.numbers {
		_, _ = fmt.Fprintf(&text, "ARGV[%d] = ARGV[%[1]d] + 0\n", i)
	}
	_, _ = fmt.Fprintf(&text, "local first, last = %d, #ARGV - %d\nif #KEYS > 1 then\n", c.constants+1, plain-1)
	for i := range c.costs {
		_, _ = fmt.Fprintf(&text, "ARGV[last + %d] = ARGV[last + %[1]d] + 0\n", i+1)
	}
	return text.String() + "end\n"
}

// add adds m, the limit at index i. denied is for where it denies: slots never do by what is
// charged.
func (c *composer) add(m Member, i int, denied string) {
	for _, text := range m.lua.functions {
		if !strings.Contains(c.functions.String(), text) {
			c.functions.WriteString(text)
		}
	}
	given, each := c.define(m, i)
	switch {
	case c.several: // each has names of its own
		given += each
		if c.limits <= mostHanded {
			fmt.Fprintf(&c.values, "local value%d\n", i+1)
		}
	case c.Own:
		c.values.WriteString("local value\n" + given + each)
		given = ""
	default:
		c.holds.WriteString(given)
		c.values.WriteString("local value\n" + each)
		given = ""
	}
	if m.Slots {
		denied = ""
	}
	if !c.slots {
		c.addPlain(m, i, given, denied)
	}
	c.addOther(m, i, given, denied)
}

// define returns the definition of the names by which the texts of m find its constants, and of
// those of its key and costs. Where the call is not plain the costs are false.
func (c *composer) define(m Member, i int) (given, each string) {
	constants := make([]string, 0, 5)
	values := append(make([]string, 0, 1+len(m.lua.cost)), fmt.Sprintf("KEYS[base + %d]", i+1))
	for _, constant := range m.Constants() {
		c.given++
		value := fmt.Sprintf("ARGV[%d]", c.given)
		if c.Own {
			value = fmt.Sprintf("ARGV[at + width - %d]", c.constants-c.given+1)
		}
		if _, number := constant.(int64); number {
			c.numbers = append(c.numbers, c.given)
			if c.Own {
				value += " + 0"
			}
		}
		constants = append(constants, value)
	}
	for range m.lua.cost {
		c.paid++
		values = append(values, fmt.Sprintf("plain and ARGV[at + %d] + 0", c.paid))
	}
	local := func(names, values []string) string {
		return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + "\n"
	}
	return local(m.lua.constants, constants), local(append([]string{"key"}, m.lua.cost...), values)
}

// addPlain adds what a plain decision does with m.
func (c *composer) addPlain(m Member, i int, given, denied string) {
	number, names := strconv.Itoa(i+1), slices.Concat(found, m.lua.keeps)
	list, own := strings.Join(names, ", "), strings.Join(names, number+", ")+number
	look := given + "local admits, largest, " + list + "\n"
	if c.several {
		look = "local " + own + "\nif not other then\nlocal value\n" + look
	}
	if denied != "" {
		denied = "\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"])
	}
	evaluate := m.lua.parts["check"] + m.lua.parts["evaluate"] + "if not admits then all = false " + denied + "end\n" +
		"if foreign then other = true end\n"
	r, admits, denies := i*c.each, 1, 0
	if c.each == otherReplyLen {
		admits, denies = otherReply+1, otherReply
		evaluate += fmt.Sprintf("reply[r + %d], reply[r + %d], reply[r + %d] = largest or 0, 0, 0\n", r+6, r+7, r+8)
	}
	evaluate += fmt.Sprintf("reply[r + %d], reply[r + %d], reply[r + %d] = admits and %d or %d, t, a\n", r+1, r+2, r+3, admits, denies) +
		fmt.Sprintf("reply[r + %d], reply[r + %d] = b, c\n", r+4, r+5)
	if m.Delays && !c.several {
		evaluate += fmt.Sprintf("if free then reply[r + 1], reply[r + 6], reply[r + 7], reply[r + 8] = reply[r + 1] + %d, largest, 0, 0 end\n", otherReply)
	}
	if !m.storesLog { // most values are short, and of these no record is looked for
		evaluate = "value = redis.pcall('GET', key)\n" +
			"if value and (value.err or #value > 40 and string.find(value, '|', 1, true)) then\nother = true\nelse\n" + evaluate + "end\n"
	}
	charge := fmt.Sprintf("acting = %d\nlocal text, lasts\n", i+1)
	if c.several {
		if c.limits <= mostHanded {
			evaluate += fmt.Sprintf("value%d = value\n", i+1)
		}
		evaluate += own + " = " + list + "\nend\n"
		charge += given + "local largest, " + list + " = nil, " + own + "\n"
	}
	charge += m.lua.parts["charge"]
	if !m.storesLog {
		charge += "err = redis.pcall('SET', key, text, 'PX', string.format(whole, lasts / 1000 + grace + 1)).err\n"
	}
	switch {
	case m.Delays && c.several:
		charge += fmt.Sprintf("reply[r + %d], reply[r + %d] = largest or 0, epoch\n", r+6, r+7)
	case m.Delays:
		charge += fmt.Sprintf("if reply[r + 1] < %d then reply[r + 5] = epoch else reply[r + 6], reply[r + 7] = largest or 0, epoch end\n", otherReply)
	}
	if c.several {
		charge = "if not err then\n" + charge + "end\n"
	}
	c.evaluate.WriteString(look + evaluate)
	c.charge.WriteString(charge)
}

// addOther adds what the other branch does with m.
func (c *composer) addOther(m Member, i int, given, denied string) {
	at := otherWidth + otherWidthEach*i
	asks := fmt.Sprintf("handle, expiry = ARGV[at + %d] + 0, ARGV[at + %d] + 0\n", at, at+1)
	names := slices.Concat([]string{"key"}, m.lua.constants, m.lua.cost, []string{"handle", "expiry", "duration", "units"})
	if c.slots {
		asks = "local " + asks
	} else {
		asks = "local handle, expiry, units = 0, 0, plain and " + strings.Join(m.lua.cost, " + ") + " or units\n" +
			"if not plain then\n" + asks + "end\n"
	}
	asks += fmt.Sprintf("local duration = op == '6' and ARGV[at + %d] + 0 or handle\n", otherWidth+otherWidthEach*c.limits+i)
	if m.Debt {
		length := m.lua.parts["length"]
		if c.Own {
			asks += length
		} else {
			if c.made.Len() == 0 {
				c.holds.WriteString("local costs\n") // one variable, for queues have no others left
				c.made.WriteString("costs = {}\n")
			}
			c.made.WriteString("do\n" + given + length + fmt.Sprintf("costs[%d] = cost\nend\n", i+1))
			asks += fmt.Sprintf("local cost = costs[%d]\n", i+1)
		}
		names = append(names, "cost")
	}
	asks += m.lua.parts["operation"]

	look, act, keeps := fill(m.lua.parts["look"], "-- NEWER\n", newer), m.lua.parts["act"], m.lua.keeps
	if !m.Slots {
		look, act, keeps = m.chargedTexts()
	}
	if denied != "" { // it is asked again, without what is held
		_, evaluate, _ := m.asked()
		cost := "local n = plain and own or units\n"
		asks += "local own, part = " + strings.Join(m.lua.cost, ", ") + "\n"
		if m.Debt {
			cost = "local dw, df = own, part\nif not plain then dw, df = cost(units) end\n"
		}
		denied = "\n" + cost + evaluate + "if not admits then\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"]) + "end\n"
	}
	held := "held"
	if m.Delays {
		held = "largest or held"
		act += "if charges and op == '1' then reply[r + 6], reply[r + 7] = largest or reply[r + 6], epoch end\n"
	}
	look = asks + look + fmt.Sprintf("if decides then\nlocal done = %d\nif not admits then done, all = %d, false %send\n",
		otherReply+1, otherReply, denied) +
		"reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = done, t, a, b\nreply[r + 5], reply[r + 6] = c, " + held + "\nelse\n" +
		fmt.Sprintf("reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = %d, 0, 0, 0\n", otherReply+1) +
		"reply[r + 5], reply[r + 6] = 0, 0\nend\nreply[r + 7], reply[r + 8] = 0, 0\n"
	act = fmt.Sprintf("acting = %d\n", i+1) + act
	if c.several {
		names = append(names, keeps...)
		block := given + fmt.Sprintf("local r, value = r + %d, nil\n", otherReplyLen*i)
		if c.limits <= mostHanded {
			block += fmt.Sprintf("value = value%d\n", i+1)
		}
		look = fmt.Sprintf("local kept%d\ndo\n%s%skept%[1]d = { %[4]s }\nend\n", i+1, block, look, strings.Join(names, ", "))
		act = fmt.Sprintf("if not err then\nlocal r = r + %d\nlocal %s = unpack(kept%d, 1, %d)\n%s%send\n",
			otherReplyLen*i, strings.Join(names, ", "), i+1, len(names), m.lua.parts["operation"], act)
	}
	c.look.WriteString(look)
	c.act.WriteString(act)
}

// chargedTexts returns the texts of addOther for a limit whose units are charged, and the names of
// what the first finds for the second.
func (m Member) chargedTexts() (look, act string, keeps []string) {
	l, storage, charge := m.lua, holdInString, "local text, lasts\n"
	if m.storesLog {
		storage, charge = holdInLog, ""
	}
	cost, evaluate, finds := m.asked()
	keeps = slices.Concat(holdLimit.keeps, storage.keeps, finds)
	parts := []string{
		"-- LOADED\n", storage.parts["loaded"], "-- LOAD\n", storage.parts["load"],
		"WINDOW", l.constants[1],
		"-- EVALUATE\n", cost + evaluate,
		"-- CHARGE\n", charge + l.parts["charge"] + l.parts["forced"] + storage.parts["charged"],
		"-- FORCE\n", l.parts["force"], "-- LESS\n", l.parts["less"], "-- REFUND\n", l.parts["refund"], "-- NEEDED\n", l.parts["needed"],
		"-- REPLACE\n", storage.parts["replace"], "-- CLOSE\n", holdLimit.parts["close"],
		"-- CLEAR\n", storage.parts["clear"], "-- WRITE\n", storage.parts["write"], "TAIL", l.parts["tail"],
		"PACE", cmp.Or(l.parts["pace"], "''"),
	}
	look, act = l.parts["check"]+holdLimit.parts["look"], holdLimit.parts["act"]
	for range 2 { // a part may contain others
		look, act = fill(look, parts...), fill(act, parts...)
	}
	return look, act, keeps
}

// asked returns the texts that evaluate m for so many units as `ask` says, and beside them for the
// cost of a plain decision, and the names of what the second finds.
func (m Member) asked() (cost, evaluate string, finds []string) {
	cost = "local n = plain and n + ask or ask\n"
	if m.Debt {
		//nolint:dupword // Lua has many ends
		cost = "local w, f = cost(ask)\nif plain then\nw, f = w + dw, f + df\nif f >= q then w, f = w + 1, f - q end\nend\nlocal dw, df = w, f\n"
	}
	finds = slices.Concat([]string{"admits", "largest"}, found, m.lua.keeps)
	return cost, "local " + strings.Join(finds, ", ") + "\n" + m.lua.parts["evaluate"] +
		"if foreign and op ~= '5' then\n" + newer + "end\n", finds
}

// fill returns text with each placeholder replaced by what follows it.
func fill(text string, parts ...string) string { return strings.NewReplacer(parts...).Replace(text) }

// otherWidth is how many arguments a call takes that is no plain decision, and otherWidthEach how
// many more for each limit. A renewal has one more for each, behind these.
const (
	otherWidth     = 3
	otherWidthEach = 2
)

// found is what the evaluate of every algorithm finds for its charge.
var found = []string{"t", "a", "b", "c", "u", "v", "foreign"}

// A luaText is the file of an algorithm, by its parts: each begins with a line like "--- evaluate".
type luaText struct {
	constants, cost []string // their names, in order
	keeps           []string // what else evaluate finds for charge
	functions       []string
	parts           map[string]string
}

// parseLua returns the parts of a file. What is rare stands where the text needs it: creating a
// function takes its time.
func parseLua(text string) luaText {
	l := luaText{parts: make(map[string]string)}
	for _, part := range strings.Split(text, "\n--- ")[1:] {
		head, body, _ := strings.Cut(part+"\n", "\n")
		name, list, _ := strings.Cut(head, " ")
		switch name {
		case "constants":
			l.constants = strings.Split(list, ", ")
		case "cost":
			l.cost = strings.Split(list, ", ")
		case "keeps":
			l.keeps = strings.Split(list, ", ")
		case "functions":
			l.functions = []string{body}
		case "tail", "pace":
			l.parts[name] = list
		default:
			l.parts[name] = body
		}
	}
	l.parts["evaluate"] = strings.Replace(l.parts["evaluate"], "-- RARE\n", l.parts["rare"], 1)
	return l
}

// with returns l with parts of another file.
func (l luaText) with(other luaText, names ...string) luaText {
	for _, name := range names {
		l.parts[name] = other.parts[name]
	}
	return l
}
