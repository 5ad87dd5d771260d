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

// DecideScript returns the script that decides limits.
func DecideScript(limits []Member, f Form) string {
	c := newComposer(f)
	functions := &composer{added: make(map[string]bool)}
	functions.add(sharedLua)
	var evaluate, charge, deny strings.Builder
	width, each, size := 1, replyEach(limits), len(limits) // the first argument says whether to charge
	for _, m := range limits {
		width += len(m.lua.cost)
	}
	ban := f.banTexts(len(limits), width, each)
	width, size = width+ban.count, size+ban.count
	for i, m := range limits {
		for _, text := range m.lua.functions {
			functions.addOnce(text)
		}
		arguments := c.arguments(m, i+1, width)
		evaluate.WriteString(m.evaluateText(arguments, ban.denied[i], i+1, each, len(limits) > 1))
		charge.WriteString(m.chargeText(arguments, i+1, each, len(limits) > 1))
		foreign := "foreign"
		if len(limits) > 1 {
			foreign = fmt.Sprint("foreign", i+1)
		}
		fmt.Fprintf(&deny, "if %s then redis.pcall('SET', KEYS[base + %d], '', 'PX', 1000) end -- it may have no TTL\n", foreign, i+1)
	}
	if f.Own {
		fmt.Fprintf(&c.text, "local first, step = 1, %d\n", width+c.constants)
	} else {
		c.addNumbers()
		for i := range width - 1 { // the cost: once for all decisions, or at least for the first
			fmt.Fprintf(&c.text, "ARGV[%d] = ARGV[%[1]d] + 0\n", c.constants+2+i)
		}
		fmt.Fprintf(&c.text, "local first, step = %d, #ARGV > %d and %d or 0\n", c.constants+1, c.constants+width, width)
	}
	fmt.Fprintf(&functions.text, "local each, size = %d, %d\n", each, size)
	c.text.WriteString(fill(decideLua,
		"-- ZEROS", strings.Repeat("0, ", each*size), "-- SIZE", strconv.Itoa(size),
		"-- FUNCTIONS\n", functions.text.String(), "-- EVALUATE\n", evaluate.String(), "-- CHARGE\n", charge.String(),
		"-- DENY\n", deny.String()+ban.begin, "-- LOOK\n", ban.look, "-- BAN\n", ban.reply))
	return c.text.String()
}

// arguments returns the definition of the names by which the text of m, the i-th limit, finds what it is given.
func (c *composer) arguments(m Member, i, width int) string {
	values := []string{fmt.Sprintf("KEYS[base + %d]", i)}
	for _, constant := range m.Constants() {
		_, number := constant.(int64)
		c.addConstant(number)
		switch {
		case c.own && number:
			values = append(values, fmt.Sprintf("ARGV[at + %d] + 0", width+c.constants-1))
		case c.own:
			values = append(values, fmt.Sprintf("ARGV[at + %d]", width+c.constants-1))
		default:
			values = append(values, fmt.Sprintf("ARGV[%d]", c.constants))
		}
	}
	for range m.lua.cost {
		c.costs++
		values = append(values, fmt.Sprintf("ARGV[at + %d] + 0", c.costs))
	}
	return "local key, " + strings.Join(slices.Concat(m.lua.constants, m.lua.cost), ", ") + " = " + strings.Join(values, ", ") + "\n"
}

// kept returns the names of what evaluate finds for charge, as they are in the texts, and those of the i-th limit.
func (m Member) kept(i int) (names, own string) {
	all := slices.Concat(found, m.lua.keeps)
	number := strconv.Itoa(i)
	return strings.Join(all, ", "), strings.Join(all, number+", ") + number
}

// evaluateText returns the text that evaluates m, the i-th limit of several or the only one. denied is for where it denies.
func (m Member) evaluateText(arguments, denied string, i, each int, several bool) string {
	names, own := m.kept(i)
	text := arguments + "local admits, largest, " + names + "\n"
	if several {
		text = "local " + own + "\ndo\n" + text
	}
	if !m.storesLog {
		text += "local value = redis.pcall('GET', key)\nif value and value.err then\nforeign = mistyped(value.err)\nvalue = nil\nend\n"
	}
	if denied != "" {
		denied = "\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"])
	}
	text += m.lua.parts["check"] + m.lua.parts["evaluate"] + "if not admits then all = false " + denied + "end\n" +
		"if foreign and foreign ~= true then\n" + newerLua + "if string.find(foreign, '|', 1, true) then held = true end\nend\n"
	r := (i - 1) * each
	text += fmt.Sprintf("reply[r + %d], reply[r + %d], reply[r + %d] = admits and 1 or 0, t, a\n", r+1, r+2, r+3) +
		fmt.Sprintf("reply[r + %d], reply[r + %d] = b, c\n", r+4, r+5)
	if each == queueReplyLen {
		text += fmt.Sprintf("reply[r + %d], reply[r + %d] = largest or 0, 0\n", r+6, r+7)
	}
	if several {
		text += own + " = " + names + "\nend\n"
	}
	return text
}

// chargeText returns the text that charges m, the i-th limit of several or the only one.
func (m Member) chargeText(arguments string, i, each int, several bool) string {
	text := fmt.Sprintf("charged = %d\nlocal text, lasts\n", i)
	if several {
		names, own := m.kept(i)
		text += arguments + "local largest, " + names + " = nil, " + own + "\n"
	}
	text += m.lua.parts["charge"]
	if !m.storesLog {
		text += "err = redis.pcall('SET', key, text, 'PX', string.format(whole, lasts / 1000 + grace + 1)).err\n"
	}
	if m.Delays {
		text += fmt.Sprintf("reply[r + %d], reply[r + %d] = largest or 0, epoch\n", i*each-1, i*each)
	}
	if several {
		return "if not err then\n" + text + "end\n"
	}
	return text
}

// HoldScript returns the script for all that is more than a plain decision: holds,
// decisions on keys that have holds, refunds and resets. Each decision has the same constants.
func HoldScript(limits []Member, f Form) string {
	c := newComposer(f)
	functions := &composer{added: make(map[string]bool)}
	functions.add(sharedLua)
	functions.add(recordLua)
	var look, act strings.Builder
	width, size := holdWidth+holdWidthEach*len(limits), len(limits)
	ban := f.banTexts(len(limits), width, holdReplyLen)
	width, size = width+ban.count, size+ban.count
	for i, m := range limits {
		for _, text := range m.lua.functions {
			functions.addOnce(text)
		}
		constants, arguments := c.holdArguments(m, i)
		if f.Groups != nil {
			arguments += "local units = expiry -- each has its own\n"
		}
		first, then, keeps := m.holdTexts(ban.denied[i])
		first = arguments + first
		if len(limits) == 1 {
			functions.text.WriteString(constants)
		} else {
			constants += fmt.Sprintf("local r = r + %d\n", holdReplyLen*i)
			names := strings.Join(keeps, ", ")
			first = fmt.Sprintf("local kept%d\ndo\n%skept%d = { %s }\nend\n", i, constants+first, i, names)
			then = fmt.Sprintf("if not err then\n%slocal %s = unpack(kept%d, 1, %d)\n%swrote = not err or wrote\nend\n",
				constants+arguments, names, i, len(keeps), then)
		}
		look.WriteString(first)
		act.WriteString(then)
	}
	c.addNumbers()
	fmt.Fprintf(&c.text, holdBegin+" = %d, %d, %d\n", c.constants+1, width, size)
	unless := "    if not err then\n" // what is done at all
	if ban.count > 0 {
		unless = ban.hold
	}
	c.text.WriteString(fill(holdLua,
		"-- ZEROS", strings.Repeat("0, ", holdReplyLen*size), "-- WIDTH", strconv.Itoa(holdReplyLen*size),
		"-- FUNCTIONS\n", functions.text.String(), "    if not err then\n-- LOOK\n", unless+look.String(),
		"-- ACT\n", act.String()+ban.begin, "-- BAN\n", ban.reply))
	return c.text.String()
}

// holdBegin is in each HoldScript, and in no DecideScript.
const holdBegin = "local first, width, size"

// IsHoldScript reports whether a script is one of HoldScript, and not of DecideScript. Tests look at what is sent.
func IsHoldScript(script string) bool { return strings.Contains(script, holdBegin) }

// holdArguments is arguments for HoldScript: what is the same for all calls, and what is not.
func (c *composer) holdArguments(m Member, i int) (constants, each string) {
	all := append(m.Constants(), int64(0)) // the last is the duration
	values := make([]string, 0, len(all))
	for _, constant := range all {
		_, number := constant.(int64)
		c.addConstant(number)
		values = append(values, fmt.Sprintf("ARGV[%d]", c.constants))
	}
	constants = "local " + strings.Join(append(slices.Clone(m.lua.constants), "duration"), ", ") + " = " + strings.Join(values, ", ") + "\n"
	at := holdWidth + holdWidthEach*i
	each = fmt.Sprintf("local key, handle, expiry = KEYS[base + %d], ARGV[at + %d] + 0, ARGV[at + %d] + 0\n", i+1, at, at+1)
	return constants + m.lua.parts["length"], each + m.lua.parts["operation"]
}

// holdTexts returns what HoldScript does with m, before and after it is known whether all limits admit, and the names of what
// the first text finds for the second. denied is for where it denies: slots never do by what is charged.
func (m Member) holdTexts(denied string) (look, act string, keeps []string) {
	look, act, keeps = fill(m.lua.parts["look"], "-- NEWER\n", newerLua), m.lua.parts["act"], m.lua.keeps
	if m.Slots {
		denied = ""
	} else {
		look, act, keeps = m.chargedTexts()
	}
	if denied != "" { // it is asked again, without what is held
		evaluate, _ := m.asked()
		denied = "\nlocal ask = units\n" + evaluate + "if not admits then\n" + fill(denied, "-- RETRY\n", m.lua.parts["retry"]) + "end\n"
	}
	held := "held"
	if m.Delays {
		held = "largest or held"
		act += "if charges and op == '1' then reply[r + 6], reply[r + 7] = largest or reply[r + 6], epoch end\n"
	}
	return look + "reply[r + 1], reply[r + 2], reply[r + 3], reply[r + 4] = 1, 0, 0, 0\n" +
		"reply[r + 5], reply[r + 6], reply[r + 7], reply[r + 8] = 0, 0, 0, 0\n" +
		"if decides then\nif not admits then reply[r + 1], all = 0, false " + denied + "end\n" +
		"reply[r + 2], reply[r + 3], reply[r + 4], reply[r + 5], reply[r + 6] = t, a, b, c, " + held + "\nend\n", act, keeps
}

// chargedTexts is holdTexts for limits whose units are charged.
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
		"-- CHARGE\n", charge + l.parts["charge"] + l.parts["forced"] + storage.parts["charged"],
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
	cost := "local n = ask\n"
	if m.Bucket {
		cost = "local dw, df = cost(ask)\n"
	}
	finds = slices.Concat([]string{"admits", "largest"}, found, m.lua.keeps)
	return cost + "local " + strings.Join(finds, ", ") + "\n" + m.lua.parts["evaluate"] +
		"if foreign and foreign ~= true and op ~= '5' then\n" + newerLua + "end\n", finds
}

// fill returns text with each placeholder replaced by what follows it.
func fill(text string, parts ...string) string { return strings.NewReplacer(parts...).Replace(text) }

// holdWidth is how many arguments of HoldScript a call takes, and holdWidthEach how many
// more for each limit.
const (
	holdWidth     = 3
	holdWidthEach = 2
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

// A composer puts a script together: what all begin with, the functions of the
// algorithms, and the part that calls them.
type composer struct {
	text      strings.Builder
	added     map[string]bool
	constants int   // how many arguments the constants of the limits so far take
	numbers   []int // which of them are numbers
	costs     int   // how many their costs take
	own       bool  // each decision has constants of its own
}

func newComposer(f Form) *composer {
	c := &composer{own: f.Own, added: make(map[string]bool)}
	c.add(Clock)
	if f.Undeclared {
		c.add(undeclaredLua)
	}
	return c
}

func (c *composer) add(lua string) { c.text.WriteString(lua + "\n") }

func (c *composer) addOnce(lua string) {
	if !c.added[lua] {
		c.added[lua] = true
		c.add(lua)
	}
}

// addConstant adds one more, and whether it is a number.
func (c *composer) addConstant(number bool) {
	c.constants++
	if number {
		c.numbers = append(c.numbers, c.constants)
	}
}

// addNumbers converts the constants that are numbers, once for all decisions.
func (c *composer) addNumbers() {
	for _, i := range c.numbers {
		fmt.Fprintf(&c.text, "ARGV[%d] = ARGV[%[1]d] + 0\n", i)
	}
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
	// 5: nothing was done, because the key is banned; see DecodeBan
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
	Bans bool  // a denial of n units bans, if what is charged denies them: for limiters with Bans
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
	args = append(args, string(c.Op), c.Units(), m)
	for i := range limits {
		if c.Handles != nil {
			args = append(args, c.Handles[i].A, c.Handles[i].B)
		} else {
			args = append(args, 0, 0)
		}
	}
	return args
}

// Units returns how many units a script is given: more fits nowhere, and Lua would round it.
func (c HoldCall) Units() int64 { return min(c.N, maxInstant) }

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
