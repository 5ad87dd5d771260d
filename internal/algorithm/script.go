package algorithm

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
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
	//go:embed lua/newer.lua
	newerLua string
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
)

// MaxLimits bounds the limits of a limiter, and the limits and bans that several decide by together: a Lua function has 200
// variables, and queues take the most.
const MaxLimits = 12

// A Member is one of the limits of a limiter.
type Member struct {
	*Kind
	Evaluator
	Hold int64 // for how long its units are held, in microseconds
}

// ConstantsAt returns the constants of a script that is sent at now, by the clock of this process, and from and until when
// they are the same.
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
	// Own: each decision has constants of its own, because its limits have other numbers.
	// They are of the same kinds. Else the script has constants once, for all decisions.
	Own bool
	// Undeclared: Redis does not know the keys as keys. They are the first arguments, and the
	// last one is their number. So they may be in several hash slots of one server of a
	// Cluster. Such a script is for several decisions: for one it could not reply the error.
	Undeclared bool
	// Bans: those of the limiter, whose key comes after those of the limits.
	Bans Bans
	// Groups are the limiters whose limits are decided together, each on a key and a cost of its own; nil for
	// one limiter. Each has its Bans, whose keys come after those of all limits.
	Groups []Group
}

// A Group is one of several limiters, of those that a script decides together.
type Group struct {
	Limits int // how many it has
	Bans   Bans
}

// Script returns the script of limits.
func Script(limits []Member, f Form) string {
	c := &composer{Form: f, several: len(limits) > 1, each: replyEach(limits), plain: 1, other: otherWidth + otherWidthEach*len(limits)}
	for _, m := range limits {
		c.plain += len(m.lua.cost)
	}
	ban := f.banTexts(len(limits), c.plain, c.other)
	c.plain, c.other = c.plain+ban.count, c.other+ban.count
	size := len(limits) + ban.count
	fmt.Fprintf(&c.functions, "%slocal limits, size = %d, %d\n", sharedLua, len(limits), size)
	for i, m := range limits {
		c.add(m, i, ban.denied[i])
	}

	begin, plain, other, step := Clock+"\n", c.plain, c.other, "#ARGV >= at + %d and %[1]d or 0"
	if f.Undeclared {
		begin += undeclaredLua + "\n"
	}
	if f.Own {
		plain, other, step = plain+len(c.numbers), other+len(c.numbers), "%d"
		begin += "local first = 1\n"
	} else {
		costs := slices.Repeat([]bool{true}, c.plain-1) // numbers once for all decisions, or at least for the first
		for i, number := range slices.Concat(c.numbers, []bool{false}, costs) {
			if number {
				begin += fmt.Sprintf("ARGV[%d] = ARGV[%[1]d] + 0\n", i+1)
			}
		}
		begin += fmt.Sprintf("local first = %d\n", len(c.numbers)+1)
	}
	zeros := c.each * len(limits)
	if c.each == replyLen { // else what fails replies fewer
		zeros += banReplyLen * ban.count
	}
	foreign, kept := "", ""
	if c.several { // what was read of a string is handed on
		foreign, kept = "value = { "+c.foreign.String()+"}\n", "local kept = {}\n"
	}
	others := fill(holdLua, "-- RECORD\n", recordLua+c.made.String(), "-- BLOCK\n", ban.block,
		"-- LOOK\n", kept+c.look.String(), "-- ACT\n", c.act.String()+ban.begin, "-- BLOCKED\n", ban.blocked)
	return begin + fill(decideLua,
		"-- ZEROS", strings.Repeat("0, ", zeros), "-- SIZE", strconv.Itoa(size),
		"-- STEP", fmt.Sprintf(step, plain), "-- WIDTH", strconv.Itoa(other),
		"-- FUNCTIONS\n", c.functions.String(), "-- LOOK\n", ban.look,
		"-- EVALUATE\n", c.evaluate.String(), "-- FOREIGN\n", foreign, "-- CHARGE\n", c.charge.String(), "-- DENY\n", c.deny.String()+ban.begin,
		"-- OTHERS\n", ban.again+others, "-- BAN\n", ban.reply)
}

// A composer puts the texts of the limits of a script together.
type composer struct {
	Form

	several      bool
	each         int    // integers of the reply to a plain decision, for each limit
	plain, other int    // arguments of a call that is a plain decision, and of any other, without constants
	numbers      []bool // of the constants so far: whether each is a number
	costs        int    // arguments of a plain decision so far, for the costs

	functions, foreign, evaluate, charge, deny strings.Builder // see lua/decide.lua
	made, look, act                            strings.Builder // see lua/hold.lua
}

// add adds m, the limit at index i. denied is for where it denies: slots never do by what is charged.
func (c *composer) add(m Member, i int, denied string) {
	for _, text := range m.lua.functions {
		if !strings.Contains(c.functions.String(), text) {
			c.functions.WriteString(text)
		}
	}
	names, before := slices.Concat([]string{"key"}, m.lua.constants), len(c.numbers)
	for _, constant := range m.Constants() {
		_, number := constant.(int64)
		c.numbers = append(c.numbers, number)
	}
	var costs []string
	for range m.lua.cost {
		c.costs++
		costs = append(costs, fmt.Sprintf("ARGV[at + %d] + 0", c.costs))
	}
	key := fmt.Sprintf("KEYS[base + %d]", i+1)
	others := define(names, key, c.constants(before, "from"), nil)
	if c.Own {
		others = fmt.Sprintf("local from = at + (other and %d or %d)\n", c.other, c.plain) + others
	}
	if m.Slots {
		denied = ""
	} else {
		plain := c.constants(before, fmt.Sprint("at + ", c.plain))
		c.addPlain(m, i, define(slices.Concat(names, m.lua.cost), key, plain, costs), denied)
	}
	c.addOther(m, i, others, costs, denied)
}

// constants returns the constants of a limit before which so many others stand. In a script for limits of different numbers all
// stand from a place on, behind the other arguments of a call.
func (c *composer) constants(before int, from string) (values []string) {
	for at := before; at < len(c.numbers); at++ {
		switch {
		case !c.Own:
			values = append(values, fmt.Sprintf("ARGV[%d]", at+1))
		case c.numbers[at]:
			values = append(values, fmt.Sprintf("ARGV[%s + %d] + 0", from, at))
		default:
			values = append(values, fmt.Sprintf("ARGV[%s + %d]", from, at))
		}
	}
	return values
}

// define returns the definition of names: the first is that of the key.
func define(names []string, key string, constants, costs []string) string {
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(slices.Concat([]string{key}, constants, costs), ", ") + "\n"
}

// addPlain adds what a plain decision does with m, which finds what it is given by a definition.
func (c *composer) addPlain(m Member, i int, given, denied string) {
	number, foreign := strconv.Itoa(i+1), "foreign"
	names := slices.Concat(found, m.lua.keeps)
	list, own := strings.Join(names, ", "), strings.Join(names, number+", ")+number
	look := given + "local admits, largest, " + list + "\n"
	if c.several {
		foreign += number
		look = "local " + own + "\ndo\nlocal value\n" + look
	}
	if !m.storesLog {
		look += "value = redis.pcall('GET', key)\nif value and value.err then value = mistyped(value.err) end\n"
	}
	if denied != "" {
		denied = "\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"])
	}
	look += m.lua.parts["check"] + m.lua.parts["evaluate"] + "if not admits then all = false " + denied + "end\n" +
		"if foreign then\nif string.find(foreign, '|', 1, true) then\nplain = false\nelse\n" + newerLua + "end\nend\n"
	r, admits, denies := i*c.each, 1, 0
	if c.each == otherReplyLen {
		admits, denies = otherReply+1, otherReply
		look += fmt.Sprintf("reply[r + %d], reply[r + %d], reply[r + %d] = largest or 0, 0, 0\n", r+6, r+7, r+8)
	}
	look += fmt.Sprintf("reply[r + %d], reply[r + %d], reply[r + %d] = admits and %d or %d, t, a\n", r+1, r+2, r+3, admits, denies) +
		fmt.Sprintf("reply[r + %d], reply[r + %d] = b, c\n", r+4, r+5)
	charge := fmt.Sprintf("acting = %d\nlocal text, lasts\n", i+1)
	if c.several {
		look += own + " = " + list + "\nend\n"
		charge += given + "local largest, " + list + " = nil, " + own + "\n"
	}
	charge += m.lua.parts["charge"]
	if !m.storesLog {
		charge += "err = redis.pcall('SET', key, text, 'PX', string.format(whole, lasts / 1000 + grace + 1)).err\n"
	}
	if m.Delays {
		charge += fmt.Sprintf("reply[r + %d], reply[r + %d] = largest or 0, epoch\n", r+6, r+7)
	}
	if c.several {
		charge = "if not err then\n" + charge + "end\n"
	}
	c.evaluate.WriteString(look)
	c.charge.WriteString(charge)
	if c.several {
		if m.storesLog {
			c.foreign.WriteString("nil, ")
		} else {
			c.foreign.WriteString(foreign + ", ")
		}
	}
	fmt.Fprintf(&c.deny, "if %s then redis.pcall('SET', KEYS[base + %d], '', 'PX', 1000) end -- it may have no TTL\n", foreign, i+1)
}

// addOther adds what all other calls do with m, and where a key has holds a plain decision whose costs stand where they say.
func (c *composer) addOther(m Member, i int, given string, costs []string, denied string) {
	at, names := otherWidth+otherWidthEach*i, slices.Concat([]string{"key"}, m.lua.constants, []string{"handle", "expiry", "duration", "units"})
	arguments := given
	if m.Bucket {
		length := m.lua.parts["length"] + fmt.Sprintf("holds.costs[%d] = cost\nend\n", i+1)
		if c.Own {
			arguments += "do\n" + length
		} else {
			c.made.WriteString("do\n" + given + length)
		}
		arguments += fmt.Sprintf("local cost = holds.costs[%d]\n", i+1)
		names = append(names, "cost")
	}
	var own []string // the cost of a plain decision
	for _, name := range m.lua.cost {
		own = append(own, "own_"+name)
	}
	arguments += strings.Join(slices.Concat([]string{"local handle, expiry, duration, units"}, own), ", ") + " = 0, 0, 0, units\n" +
		fmt.Sprintf("if other then\nhandle, expiry, duration = ARGV[at + %d] + 0, ARGV[at + %d] + 0, ARGV[at + %d]\n", at, at+1, at+2)
	if len(costs) > 0 {
		arguments += fmt.Sprintf("else\n%s = %s\nunits = %s\n", strings.Join(own, ", "), strings.Join(costs, ", "), strings.Join(own, " + "))
	}
	arguments += "end\n" + m.lua.parts["operation"]

	look, act, keeps := fill(m.lua.parts["look"], "-- NEWER\n", newerLua), m.lua.parts["act"], m.lua.keeps
	if !m.Slots {
		look, act, keeps = m.chargedTexts()
	}
	if denied != "" { // it is asked again, without what is held
		evaluate, _ := m.asked()
		denied = "\nlocal ask = other and units or 0\n" + evaluate + "if not admits then\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"]) + "end\n"
	}
	held := "held"
	if m.Delays {
		held = "largest or held"
		act += "if charges and op == '1' then reply[r + 6], reply[r + 7] = largest or reply[r + 6], epoch end\n"
	}
	look = arguments + look + fmt.Sprintf("reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = %d, 0, 0, 0\n", otherReply+1) +
		"reply[r + 5], reply[r + 6], reply[r + 7], reply[r + 8] = 0, 0, 0, 0\n" +
		fmt.Sprintf("if decides then\nif not admits then reply[r + 1], all = %d, false %send\n", otherReply, denied) +
		"reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5], reply[r + 6] = t, a, b, c, " + held + "\nend\n"
	if c.several {
		names = append(names, keeps...)
		list, block := strings.Join(names, ", "), fmt.Sprintf("local r, value = r + %d, value and value[%d]\n", otherReplyLen*i, i+1)
		look = fmt.Sprintf("do\n%s%skept[%d] = { %s }\nend\n", block, look, i+1, list)
		act = fmt.Sprintf("if not err then\n%slocal %s = unpack(kept[%d], 1, %d)\n%s%swrote = not err or wrote\nend\n",
			block, list, i+1, len(names), m.lua.parts["operation"], act)
	}
	c.look.WriteString(look)
	c.act.WriteString(act)
}

// chargedTexts returns the texts of addOther for a limit whose units are charged, and the names of what the first finds for the
// second.
func (m Member) chargedTexts() (look, act string, keeps []string) {
	l, storage, charge := m.lua, holdInString, "local text, lasts\n"
	if m.storesLog {
		storage, charge = holdInLog, ""
	}
	evaluate, finds := m.asked()
	keeps = slices.Concat(holdLimit.keeps, storage.keeps, finds)
	parts := []string{
		"-- LOADED\n", storage.parts["loaded"], "-- LOAD\n", storage.parts["load"],
		"WINDOW", l.constants[1],
		"-- EVALUATE\n", evaluate,
		"-- CHARGE\n", charge + l.parts["charge"] + storage.parts["charged"],
		"-- FORCE\n", l.parts["force"], "-- LESS\n", l.parts["less"], "-- REFUND\n", l.parts["refund"], "-- NEEDED\n", l.parts["needed"],
		"-- REPLACE\n", storage.parts["replace"], "-- CLOSE\n", holdLimit.parts["close"],
		"-- CLEAR\n", storage.parts["clear"], "-- WRITE\n", storage.parts["write"], "TAIL", l.parts["tail"],
	}
	look, act = l.parts["check"]+holdLimit.parts["look"], holdLimit.parts["act"]
	for range 2 { // a part may contain others
		look, act = fill(look, parts...), fill(act, parts...)
	}
	return look, act, keeps
}

// asked returns the text that evaluates m for so many units as `ask` says, and the names of what it finds.
func (m Member) asked() (text string, finds []string) {
	cost := "local n = other and ask or own_n + ask\n"
	if m.Bucket {
		cost = "local w, f = cost(ask)\nif not other then\nw, f = w + own_dw, f + own_df\nif f >= q then w, f = w + 1, f - q end\nend\nlocal dw, df = w, f\n"
	}
	finds = slices.Concat([]string{"admits", "largest"}, found, m.lua.keeps)
	return cost + "local " + strings.Join(finds, ", ") + "\n" + m.lua.parts["evaluate"] +
		"if foreign and op ~= '5' then\n" + newerLua + "end\n", finds
}

// fill returns text with each placeholder replaced by what follows it.
func fill(text string, parts ...string) string { return strings.NewReplacer(parts...).Replace(text) }

// otherWidth is how many arguments a call takes that is no plain decision, and otherWidthEach how many more for each limit.
const (
	otherWidth     = 3
	otherWidthEach = 3
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

// parseLua returns the parts of a file. What is rare stands where the text needs it: creating a function takes its time.
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
		case "tail":
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

// How many integers a script replies: for each limit to a plain decision on a key without holds, for each limit to any other
// call, where one is a queue too, and for each limiter with bans.
const (
	replyLen      = 5
	otherReplyLen = 8
	banReplyLen   = 3
)

// What a script replies first, instead of 1 or 0.
const (
	undone = 2 // nothing was done: it failed, or the calls before it took long
	partly = 4 // it failed, and something has changed
	// 5: nothing was done, because the key is banned; see DecodeBan
	otherReply = 6 // 0, but with otherReplyLen integers for each limit; and 7 is 1
)

func replyEach(limits []Member) int {
	if slices.ContainsFunc(limits, func(m Member) bool { return m.Delays }) {
		return otherReplyLen
	}
	return replyLen
}

// SplitReply returns the reply to the next of several calls about so many limits, what it says of so many bans, and what follows.
func SplitReply(reply []int64, limits, bans int) (next, banned, rest []int64, err error) {
	size := replyLen * limits
	if len(reply) > 0 && reply[0] >= otherReply {
		size = otherReplyLen * limits
	}
	end := size + banReplyLen*bans
	if len(reply) < end {
		return nil, nil, nil, UnexpectedLength(len(reply), end)
	}
	return reply[:size], reply[size:end], reply[end:], nil
}

// Undone reports whether reply, to one of several calls, says that nothing was done.
func Undone(reply []int64) bool { return len(reply) > 0 && reply[0] == undone }

// ErrPartly is the error of a call that failed after it had changed something: it must
// not be repeated.
var ErrPartly = errors.New("redis has changed some of the limits, and failed then")

// ErrReply is the error of a reply that the scripts never give: it is one call's, and says nothing about the server.
var ErrReply = errors.New("unexpected reply from redis")

// DecodeReply reads the reply to one call, as SplitReply returns it. It refuses what the script never replies: a faulty proxy
// might, or another version of this library. It writes the answers of what decides; and the handles of what charges or holds to
// those of the call, if they are not nil.
func DecodeReply(reply []int64, call HoldCall, limits []Member, answers []Answer) error {
	each := len(reply) / len(limits)
	if len(reply) != replyLen*len(limits) && len(reply) != otherReplyLen*len(limits) {
		return UnexpectedLength(len(reply), replyLen*len(limits))
	}
	if reply[0] == partly {
		return ErrPartly
	}
	decides := call.Op <= OpReserve
	for i, m := range limits {
		n := reply[i*each : (i+1)*each]
		done, rest := n[0], [otherReplyLen - replyLen]int64{}
		if copy(rest[:], n[replyLen:]) > 0 {
			done -= otherReply
		}
		held, handle := rest[0], Handle{rest[1], rest[2]}
		o := Observation{At: n[1], A: n[2], B: n[3], C: n[4]}
		valid := !decides || o.At >= 0 && o.At < maxInstant
		if m.Delays {
			valid = valid && o.C >= 0 && max(o.C, held) < 1<<packed
			o.C, held = pack(o.C, held), 0 // the largest free place
		}
		if done < 0 || done > 1 || !valid || decides && !m.Valid(o) || min(held, handle.A, handle.B) < 0 || held >= maxInstant {
			return fmt.Errorf("%w: %v", ErrReply, n)
		}
		if decides {
			answers[i] = Answer{done == 1, o, held}
		}
		switch {
		case call.Handles == nil:
		case m.Slots: // the zero Handle if they were lost
			call.Handles[i] = handle
		case call.Op == OpCharge || call.Op == OpReserve && m.Delays:
			call.Handles[i] = m.chargeHandle(o, call.N, handle.A)
		case call.Op == OpReserve || call.Op == OpRenew && handle.A > 0:
			call.Handles[i] = handle
		}
	}
	return nil
}

// chargeHandle returns the handle of n units that were charged after o, of a queue in an epoch.
func (m Member) chargeHandle(o Observation, n, epoch int64) Handle {
	if q, ok := m.Evaluator.(*queue); ok {
		return q.handle(o, n, epoch)
	}
	return m.ChargeHandle(o, n)
}

// A HoldCall is what a call asks for, whatever its limits are.
type HoldCall struct {
	Op   Op
	Bans bool  // a denial of n units bans, if what is charged denies them: for limiters with Bans
	N, M int64 // units; for OpSettle the actual cost, and for what holds the id of holds, or 0 for any
	// Handles are those of what OpSettle, OpRefund, OpRenew and OpRelease are about, one for
	// each limit. For what decides they are where the reply's are written, if they are not nil; of
	// OpReserve A is for how long units are held, if it is not 0.
	Handles []Handle
}

// NewHoldID returns an id for holds that begin.
func NewHoldID() int64 { return 1 + rand.Int64N(1<<48) } // it is no secret, and only tells holds apart

// Append appends the arguments of a call that is no plain decision.
func (c HoldCall) Append(args []any, limits []Member) []any {
	m, op := c.M, string(c.Op)
	if m == 0 && (c.Op == OpReserve || c.Op == OpCharge) {
		m = NewHoldID()
	}
	if c.Op <= OpCharge {
		op = "+" + op
	}
	args = append(args, op, min(c.N, maxInstant), m) // more units fit nowhere, and Lua would round them
	for i, limit := range limits {
		var h Handle
		if c.Handles != nil {
			h = c.Handles[i]
		}
		lasts := int64(0)
		switch {
		case c.Op == OpReserve && h.A > 0:
			lasts = h.A
		case c.Op == OpReserve || c.Op == OpCharge || c.Op == OpRenew:
			lasts = limit.Hold
		}
		args = append(args, h.A, h.B, lasts)
	}
	return args
}

// UnexpectedLength returns the error for a reply of the wrong length.
func UnexpectedLength(got, want int) error {
	return fmt.Errorf("%w: %d numbers, want %d", ErrReply, got, want)
}
