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

	preludeLua = readLua("prelude", nil)
	decideLua  = readLua("decide", nil)
	holdsLua   = readLua("holds", nil)
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
	// Groups say whose denial bans which key. They may be nil if no limiter has Bans.
	Groups []Group
}

// A Group is the limits of one limiter, among all that a script decides on. To the script each limit
// has a key and a cost of its own, whether it is one of several of a limiter, or its limiter decides
// together with others: only bans belong to a Group. The keys of bans come after those of all limits.
type Group struct {
	Limits int // how many it has
	Bans   Bans
}

// Script returns the script of limits.
func Script(limits []Member, f Form) string {
	groups := f.Groups
	if groups == nil {
		groups = []Group{{Limits: len(limits)}}
	}
	constants, costs, slots, wide, bans := 0, 0, false, false, 0
	for _, m := range limits {
		constants, slots, wide = constants+len(m.Constants()), slots || m.Slots, wide || m.Delays && len(limits) > 1
		if !m.Slots {
			costs += len(m.Cost(nil, 0))
		}
	}
	for _, g := range groups {
		if g.Bans != nil {
			bans++
		}
	}
	each, zeros, first, behind := replyLen, 0, 1+constants, bans
	if wide {
		each = otherReplyLen
	} else {
		zeros = banReplyLen * bans // else what fails replies fewer
	}
	if f.Own {
		first, behind = 1, bans+constants
	}
	plain, other := 1+costs+behind, otherWidth+otherWidthEach*len(limits)+behind
	script := &scope{
		Builder: &strings.Builder{},
		values: map[string]string{
			"script.own": strconv.FormatBool(f.Own), "script.slots": strconv.FormatBool(slots), "script.wide": strconv.FormatBool(wide),
			"script.versions": "'" + versions + "'", "script.first_call": strconv.Itoa(first),
			"script.limits": strconv.Itoa(len(limits)), "script.keys": strconv.Itoa(len(limits) + bans),
			"script.plain": strconv.Itoa(plain), "script.costs": strconv.Itoa(costs), "script.costs_end": strconv.Itoa(plain - 2),
			"script.other": strconv.Itoa(other), "script.renewal": strconv.Itoa(other + len(limits)),
			"script.zeros": "{ " + strings.Repeat("0, ", zeros+each*len(limits)) + strings.Repeat("nil, ", 3*len(limits)) + "}",
		},
		marks: map[string]bool{"SEVERAL": len(limits) > 1, "ONCE": len(limits) == 1 && !f.Own, "CALL": len(limits) == 1 && f.Own},
		parts: map[string][]luaLine{"PRELUDE": slices.Clone(preludeLua.shared), "HOLDS": nil},
		each:  map[string][]*scope{"EACH LIMIT": nil, "EACH BAN": nil},
	}
	// nested returns the scope of a limit or a ban, with values of its own.
	nested := func(kind string, file *luaFile, numbers map[string]int) *scope {
		s := *script
		s.functions, s.values, s.marks = file.functions, maps.Clone(script.values), maps.Clone(script.marks)
		maps.Copy(s.values, file.fields)
		for name, n := range numbers {
			s.values[name] = strconv.Itoa(n)
		}
		script.each[kind] = append(script.each[kind], &s)
		return &s
	}
	included := map[*luaFile]bool{bansLua: true}
	var include func(file *luaFile)
	include = func(file *luaFile) {
		if !included[file] {
			included[file] = true
			include(file.base)
			script.parts["PRELUDE"] = append(script.parts["PRELUDE"], file.shared...)
		}
	}
	i, at, cost := 0, 1, 1
	for _, g := range groups {
		for range g.Limits {
			m := limits[i]
			s := nested("EACH LIMIT", m.lua, map[string]int{
				"limit.number": i + 1, "limit.first": at, "limit.position": cost, "limit.reply": i * each, "limit.wide_reply": i * otherReplyLen,
				"limit.handle": otherWidth + otherWidthEach*i, "limit.duration": otherWidth + otherWidthEach*len(limits) + i,
			})
			s.values["constants_at"] = strconv.Itoa(at)
			if f.Own {
				s.values["constants_at"] = fmt.Sprintf("at + width - %d", constants-at+1)
			}
			s.suffixes = map[string]string{"_i": "_" + strconv.Itoa(i+1), "_b": "_" + strconv.Itoa(len(script.each["EACH BAN"])+1)}
			if len(limits) == 1 {
				s.suffixes["_i"] = ""
			}
			s.marks["BANS"] = len(g.Bans) > 0 && !m.Slots // slots never deny by what is charged
			s.parts = map[string][]luaLine{"CONSTANTS": m.lua.constants}
			if include(m.lua); !m.Slots {
				script.parts["HOLDS"] = holdsLua.shared
			}
			i, at, cost = i+1, at+len(m.Constants()), cost+len(m.Cost(nil, 0))
		}
		if number := len(script.each["EACH BAN"]) + 1; g.Bans != nil {
			s := nested("EACH BAN", bansLua, map[string]int{"ban.longest": MaxBan, "ban.key": len(limits) + number, "ban.flag": behind - number + 1})
			s.values["ban.levels"] = "{ " + strings.Trim(strings.ReplaceAll(fmt.Sprint([]int64(g.Bans)), " ", ", "), "[]") + " }"
			s.suffixes = map[string]string{"_b": "_" + strconv.Itoa(number)}
		}
	}
	script.WriteString(Clock + "\n")
	if f.Undeclared {
		script.WriteString(undeclaredLua + "\n")
	}
	script.write(decideLua.shared)
	return script.String()
}

// otherWidth is how many arguments a call takes that is no plain decision, and otherWidthEach how
// many more for each limit. A renewal has one more for each, behind these.
const (
	otherWidth     = 3
	otherWidthEach = 2
)
