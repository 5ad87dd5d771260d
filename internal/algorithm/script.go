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
	// Clock is the text with which every script begins, and the only part that asks for the time:
	// tests with a clock of their own replace it.
	//
	//go:embed lua/clock.lua
	Clock string
	//go:embed lua/undeclared.lua
	undeclaredLua string

	preludeLua = readLua("prelude")
	holdsLua   = readLua("holds")
	bansLua    = readLua("bans", holdsLua)
)

// MaxLimits bounds the limits of a limiter, and the limits and bans that several decide by
// together: a Lua function has 200 variables, and queues take the most.
const MaxLimits = 12

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
	c := &composer{form: f, limits: limits, groups: f.Groups}
	if c.groups == nil {
		c.groups = []Group{{len(limits), f.Bans}}
	}
	constants, costs, slots, bans, wide := 0, 0, false, 0, false
	for _, m := range limits {
		constants, slots, wide = constants+len(m.Constants()), slots || m.Slots, wide || m.Delays && len(limits) > 1
		if !m.Slots {
			costs += len(m.Cost(nil, 0))
		}
	}
	for _, g := range c.groups {
		if g.Bans != nil {
			bans++
		}
	}
	c.each, c.behind = replyLen, bans
	if wide {
		c.each = otherReplyLen
	}
	zeros, first := c.each*len(limits), 1+constants
	if !wide { // else what fails replies fewer
		zeros += banReplyLen * bans
	}
	if f.Own {
		c.behind, first = bans+constants, 1
	}
	plain, other := 1+costs+c.behind, otherWidth+otherWidthEach*len(limits)+c.behind
	numbers := map[string]int{
		"limits": len(limits), "size": len(limits) + bans, "plain": plain, "other": other, "renewal": other + len(limits), "costs": costs,
		"costs_end": plain - 2, "first_call": first,
	}
	c.fields = map[string]string{
		"own": strconv.FormatBool(f.Own), "slots": strconv.FormatBool(slots), "wide": strconv.FormatBool(wide),
		"zeros": strings.Repeat("0, ", zeros) + strings.Repeat("nil, ", 3*len(limits)), "versions": "'" + versions + "'",
	}
	for name, n := range numbers {
		c.fields[name] = strconv.Itoa(n)
	}
	return c.compose(constants)
}

// A composer puts a script together.
type composer struct {
	form   Form
	limits []Member
	groups []Group
	each   int               // integers of the reply to a plain decision, for each limit
	behind int               // arguments behind each call
	fields map[string]string // of `script`
}

// A part of lua/decide.lua stands once in a script, or once for each limit or limiter with bans.
type part struct{ each, text string }

// driver are the parts of lua/decide.lua, of a script with one limit and of one with several.
var driver = [2][]part{parts(" -- SEVERAL\n"), parts("")}

// parts returns the parts of lua/decide.lua without the lines that end with a mark.
func parts(mark string) (all []part) {
	var text strings.Builder
	each := ""
	for line := range strings.Lines(readText("decide")) {
		next, isEach := strings.CutPrefix(strings.TrimSpace(line), "-- EACH ")
		switch {
		case isEach || strings.TrimSpace(line) == "-- END":
			all = append(all, part{each, text.String()})
			text.Reset()
			each = next
			if !isEach {
				each = ""
			}
		case mark == "" || !strings.HasSuffix(line, mark):
			text.WriteString(strings.Replace(line, " -- SEVERAL\n", "\n", 1))
		}
	}
	return append(all, part{"", text.String()})
}

// A text is that of a limit or of a ban of a script: where its numbers and values are put in.
type text struct {
	*luaFile

	table     string            // limit or ban
	suffixes  map[string]string // what the names end with that end with _i and _b
	fields    map[string]string
	constants string
}

func (t text) of(part string) string {
	part = mapNames(strings.ReplaceAll(part, "-- LIMIT\n", t.constants), func(name, field string) string {
		if i := len(name) - 2; i > 0 {
			if suffix, ok := t.suffixes[name[i:]]; ok {
				name = name[:i] + suffix
			}
		}
		return dotted(name, field)
	})
	return setFields(t.inline(part), t.table, t.fields)
}

// compose returns the script. Where it has one limit, names have no number, and the constants are
// given names once: before the calls, or in each if they have constants of their own.
//
//nolint:funlen,gocognit // it says in one piece what stands where in a script
func (c *composer) compose(constants int) string {
	limits, bans := make([]text, 0, len(c.limits)), []text(nil)
	shared, holds, once, first, costs := preludeLua.shared, "", "", 1, 1
	group, left := 0, c.groups[0].Limits
	for i, m := range c.limits {
		for ; left == 0; left = c.groups[group].Limits {
			group++
		}
		left--
		at, suffix, file := strconv.Itoa(first), "", m.lua
		if c.form.Own {
			at = fmt.Sprintf("at + width - %d", constants-first+1)
		}
		if len(c.limits) > 1 {
			suffix = "_" + strconv.Itoa(i+1)
		}
		if len(c.groups[group].Bans) > 0 && !m.Slots { // slots never deny by what is charged
			file = &luaFile{bases: []*luaFile{m.lua, bansLua}}
		}
		t := text{file, "limit", map[string]string{"_i": suffix, "_b": "_" + strconv.Itoa(c.bansBefore(group)+1)}, map[string]string{
			"stores_log": "false", "drains": "false", "delays": "false", "first": at,
		}, ""}
		for name, n := range map[string]int{
			"number": i + 1, "position": costs, "reply": i * c.each, "wide_reply": i * otherReplyLen, "handle": otherWidth + otherWidthEach*i,
			"duration": otherWidth + otherWidthEach*len(c.limits) + i,
		} {
			t.fields[name] = strconv.Itoa(n)
		}
		maps.Copy(t.fields, m.lua.fields)
		t.constants = mapNames(m.lua.constants, func(name, field string) string {
			if name == "at" {
				return at
			}
			return dotted(name, field)
		})
		if len(c.limits) == 1 {
			once, t.constants = t.constants, ""
		}
		limits = append(limits, t)
		for _, l := range append(slices.Clone(m.lua.bases), m.lua) {
			if l != holdsLua && !strings.Contains(shared, l.shared) {
				shared += l.shared
			}
		}
		if !m.Slots {
			holds = holdsLua.shared
		}
		first, costs = first+len(m.Constants()), costs+len(m.Cost(nil, 0))
	}
	for _, g := range c.groups {
		if g.Bans != nil {
			number := len(bans) + 1
			bans = append(bans, text{bansLua, "ban", map[string]string{"_b": "_" + strconv.Itoa(number)}, map[string]string{
				"levels":  "{ " + strings.Trim(strings.ReplaceAll(fmt.Sprint([]int64(g.Bans)), " ", ", "), "[]") + " }",
				"longest": strconv.FormatInt(MaxBan, 10), "key": strconv.Itoa(len(c.limits) + number), "flag": strconv.Itoa(c.behind - number + 1),
			}, ""})
		}
	}
	before, inCall := once, ""
	if c.form.Own {
		before, inCall = "", once
	}
	places := strings.NewReplacer("  -- PRELUDE\n", shared, "        -- HOLDS\n", holds, "  -- LIMIT ONCE\n", before, "    -- LIMIT OF CALL\n", inCall)
	var b strings.Builder
	for _, p := range driver[min(1, len(c.limits)-1)] {
		switch p.each {
		case "LIMIT":
			for _, t := range limits {
				b.WriteString(t.of(p.text))
			}
		case "BAN":
			for _, t := range bans {
				b.WriteString(t.of(p.text))
			}
		default:
			b.WriteString(places.Replace(p.text))
		}
	}
	script := Clock + "\n"
	if c.form.Undeclared {
		script += undeclaredLua + "\n"
	}
	return script + setFields(b.String(), "script", c.fields)
}

// bansBefore returns how many limiters before a group have bans.
func (c *composer) bansBefore(group int) (n int) {
	for _, g := range c.groups[:group] {
		if g.Bans != nil {
			n++
		}
	}
	return n
}

// otherWidth is how many arguments a call takes that is no plain decision, and otherWidthEach how
// many more for each limit. A renewal has one more for each, behind these.
const (
	otherWidth     = 3
	otherWidthEach = 2
)
