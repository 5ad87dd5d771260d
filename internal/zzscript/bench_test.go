package zzscript

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	old "github.com/redislimit/redislimit/internal/zzold/algorithm"
)

type spec struct {
	kind           string
	count, period  int64
	aligned, named bool
}

func (s spec) numbers() algorithm.Numbers {
	return algorithm.Numbers{Count: s.count, Period: s.period, Burst: s.count, Aligned: s.aligned, Named: s.named}
}

func newMember(s spec) algorithm.Member {
	for _, k := range append(slices.Clone(algorithm.Kinds), algorithm.Calendar) {
		if k.Name == s.kind {
			return algorithm.Member{Kind: k, Evaluator: k.New(s.numbers()), Hold: 3600_000_000}
		}
	}
	panic(s.kind)
}

func oldMember(s spec) old.Member {
	for _, k := range append(slices.Clone(old.Kinds), old.Calendar) {
		if k.Name == s.kind {
			n := s.numbers()
			return old.Member{Kind: k, Evaluator: k.New(old.Numbers{Count: n.Count, Period: n.Period, Burst: n.Burst, Aligned: n.Aligned, Named: n.Named}), Hold: 3600_000_000}
		}
	}
	panic(s.kind)
}

// A side builds commands for calls.
type side interface {
	cmds(keys []string, calls []call) []any // eval arguments: sha, nkeys, keys..., args...
	handles(reply []int64, n int) [][2]int64
}

type call struct {
	op     byte
	n, m   int64
	h      [][2]int64
	own    int // index of numbers
	bans   bool
}

func isPlain(c call, slots bool) bool { return c.op <= '1' && !slots }

type newSide struct {
	rdb     *redis.Client
	sets    [][]algorithm.Member
	single  string
	batch   string
	own     string
	slots   bool
	bans    bool
}

func makeNew(rdb *redis.Client, sets [][]spec, bans []int64) *newSide {
	s := &newSide{rdb: rdb}
	for _, set := range sets {
		var ms []algorithm.Member
		for _, sp := range set {
			ms = append(ms, newMember(sp))
			s.slots = s.slots || sp.kind == "in_flight"
		}
		s.sets = append(s.sets, ms)
	}
	f := algorithm.Form{}
	if bans != nil {
		f.Bans, s.bans = bans, true
	}
	s.single = load(rdb, algorithm.Script(s.sets[0], f))
	s.batch = s.single
	f.Own = true
	s.own = load(rdb, algorithm.Script(s.sets[0], f))
	return s
}

func load(rdb *redis.Client, text string) string {
	sha, err := rdb.ScriptLoad(context.Background(), text).Result()
	if err != nil {
		panic(err)
	}
	return sha
}

func (s *newSide) cmds(keys []string, calls []call) []any {
	per := len(s.sets[0])
	if s.bans {
		per++
	}
	sha, own := s.single, false
	for _, c := range calls {
		own = own || c.own > 0
	}
	if own {
		sha = s.own
	}
	args := []any{"evalsha", sha, len(keys)}
	for _, k := range keys {
		args = append(args, k)
	}
	_ = per
	constants := func(i int) {
		for _, m := range s.sets[i] {
			cs, _, _ := m.ConstantsAt(0)
			for _, c := range cs {
				args = append(args, fmt.Sprint(c))
			}
		}
	}
	if !own {
		constants(0)
	}
	alike := true
	for _, c := range calls {
		alike = alike && isPlain(c, s.slots) && c.n == calls[0].n && c.op == calls[0].op
	}
	for _, c := range calls {
		ms := s.sets[c.own]
		if isPlain(c, s.slots) {
			args = append(args, string(c.op))
			for _, m := range ms {
				args = m.Cost(args, c.n)
			}
		} else {
			var hs []algorithm.Handle
			if c.h != nil {
				for _, h := range c.h {
					hs = append(hs, algorithm.Handle{A: h[0], B: h[1]})
				}
			}
			args = algorithm.HoldCall{Op: algorithm.Op(c.op), N: c.n, M: c.m, Handles: hs}.Append(args, ms)
		}
		if s.bans {
			args = append(args, "1")
		}
		if own {
			constants(c.own)
		} else if alike {
			break
		}
	}
	return args
}

func (s *newSide) handles(reply []int64, n int) (hs [][2]int64) {
	for i := range n {
		hs = append(hs, [2]int64{reply[8*i+6], reply[8*i+7]})
	}
	return hs
}

type oldSide struct {
	rdb    *redis.Client
	sets   [][]old.Member
	decide string
	own    string
	hold   string
	slots  bool
	bans   bool
	held   bool // use the hold script for plain decisions
}

func makeOld(rdb *redis.Client, sets [][]spec, bans []int64, held bool) *oldSide {
	s := &oldSide{rdb: rdb, held: held}
	for _, set := range sets {
		var ms []old.Member
		for _, sp := range set {
			ms = append(ms, oldMember(sp))
			s.slots = s.slots || sp.kind == "in_flight"
		}
		s.sets = append(s.sets, ms)
	}
	f := old.Form{}
	if bans != nil {
		f.Bans, s.bans = bans, true
	}
	s.hold = load(rdb, old.HoldScript(s.sets[0], f))
	if !s.slots {
		s.decide = load(rdb, old.DecideScript(s.sets[0], f))
		f.Own = true
		s.own = load(rdb, old.DecideScript(s.sets[0], f))
	}
	return s
}

func (s *oldSide) cmds(keys []string, calls []call) []any {
	needs, own := s.held || s.slots, false
	for _, c := range calls {
		needs = needs || c.op > '1'
		own = own || c.own > 0
	}
	sha := s.decide
	if needs {
		sha = s.hold
	} else if own {
		sha = s.own
	}
	args := []any{"evalsha", sha, len(keys)}
	for _, k := range keys {
		args = append(args, k)
	}
	constants := func(i int) {
		for _, m := range s.sets[i] {
			cs, _, _ := m.ConstantsAt(0)
			for _, c := range cs {
				args = append(args, fmt.Sprint(c))
			}
			if needs {
				args = append(args, strconv.FormatInt(m.Hold, 10))
			}
		}
	}
	if !own {
		constants(0)
	}
	alike := !needs
	for _, c := range calls {
		alike = alike && c.n == calls[0].n && c.op == calls[0].op
	}
	for _, c := range calls {
		ms := s.sets[c.own]
		if needs {
			var hs []old.Handle
			if c.h != nil {
				for _, h := range c.h {
					hs = append(hs, old.Handle{A: h[0], B: h[1]})
				}
			}
			args = old.HoldCall{Op: old.Op(c.op), N: c.n, M: c.m, Handles: hs}.Append(args, len(ms))
		} else {
			args = append(args, string(c.op))
			for _, m := range ms {
				args = m.Cost(args, c.n)
			}
		}
		if s.bans {
			args = append(args, "1")
		}
		if own {
			constants(c.own)
		} else if alike {
			break
		}
	}
	return args
}

func (s *oldSide) handles(reply []int64, n int) (hs [][2]int64) {
	for i := range n {
		hs = append(hs, [2]int64{reply[8*i+6], reply[8*i+7]})
	}
	return hs
}

func cpu(rdb *redis.Client) float64 {
	info := rdb.Info(context.Background(), "cpu").Val()
	sum := 0.0
	for _, line := range strings.Split(info, "\r\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && (k == "used_cpu_user" || k == "used_cpu_sys") {
			f, _ := strconv.ParseFloat(v, 64)
			sum += f
		}
	}
	return sum * 1e6
}

func usec(rdb *redis.Client) float64 {
	info := rdb.Info(context.Background(), "commandstats").Val()
	for _, line := range strings.Split(info, "\r\n") {
		if strings.HasPrefix(line, "cmdstat_evalsha:") {
			_, v, _ := strings.Cut(line, "usec=")
			v, _, _ = strings.Cut(v, ",")
			f, _ := strconv.ParseFloat(v, 64)
			return f
		}
	}
	return 0
}

// A cell measures the calls of one slice.
type cell struct {
	name  string
	sets  [][]spec
	bans  []int64
	held  bool // keys have holds
	batch int
	ops   string // "1" plain, "23" reserve and settle, "2L" late settle, "17" acquire and release
	per   int    // calls of a slice
	limit int64
}

func exec(rdb *redis.Client, all [][]any) [][]int64 {
	pipe := rdb.Pipeline()
	var cmds []*redis.Cmd
	for _, a := range all {
		cmds = append(cmds, pipe.Do(context.Background(), a...))
	}
	pipe.Exec(context.Background())
	var out [][]int64
	for i, c := range cmds {
		v, err := c.Slice()
		if err != nil {
			panic(fmt.Sprint(err, all[i]))
		}
		r := make([]int64, len(v))
		for i := range v {
			r[i] = v[i].(int64)
		}
		out = append(out, r)
	}
	return out
}

func execRaw(rdb *redis.Client, all [][]any) {
	pipe := rdb.Pipeline()
	for _, a := range all {
		pipe.Do(context.Background(), a...)
	}
	if _, err := pipe.Exec(context.Background()); err != nil {
		panic(err)
	}
}

func (c cell) keysOf(side string, j int) []string {
	var keys []string
	per := len(c.sets[0])
	for i := range c.batch {
		for l := range per {
			keys = append(keys, fmt.Sprintf("rl:%s:{user%d}:l%d", side, (j*c.batch+i)%max(256, c.batch), l))
		}
		if c.bans != nil {
			keys = append(keys, fmt.Sprintf("rl:%s:{user%d}:~ban", side, (j*c.batch+i)%max(256, c.batch)))
		}
	}
	return keys
}

func slice(rdb *redis.Client, name string, s side, c cell) {
	group := 50
	if c.batch > 1 {
		group = 4
	}
	n := 0
	for n < c.per {
		var all [][]any
		for g := range group {
			calls := make([]call, c.batch)
			for i := range calls {
				calls[i] = call{op: c.ops[0], n: 1, m: int64(n + g*c.batch + i + 1), own: 0}
				if c.ops[0] == '1' && !strings.Contains(c.sets[0][0].kind, "in_flight") {
					calls[i].m = 0
				}
				if len(c.sets) > 1 {
					calls[i].own = i % len(c.sets)
				}
			}
			all = append(all, s.cmds(c.keysOf(name, n/c.batch+g), calls))
		}
		if len(c.ops) == 1 {
			execRaw(rdb, all)
		} else {
			replies := exec(rdb, all)
			var next [][]any
			per := len(c.sets[0])
			for g := range group {
				calls := make([]call, c.batch)
				for i := range calls {
					h := s.handles(replies[g][i*8*per:], per)
					switch c.ops[1] {
					case 'L':
						for j := range h {
							h[j][1] = 1000 // long over
						}
						calls[i] = call{op: '3', n: 1, m: 1, h: h}
					default:
						calls[i] = call{op: c.ops[1], n: 1, m: 1, h: h}
					}
				}
				next = append(next, s.cmds(c.keysOf(name, n/c.batch+g), calls))
			}
			execRaw(rdb, next)
		}
		n += group * c.batch
	}
}

func cells() []cell {
	big := int64(1_000_000_000)
	tb := []spec{{kind: "token_bucket", count: big, period: 1_000_000}}
	one := func(kind string) [][]spec {
		return [][]spec{{{kind: kind, count: big, period: 60_000_000}}}
	}
	_ = tb
	var out []cell
	add := func(name string, sets [][]spec, ops string, held bool, bans []int64) {
		for _, b := range []int{1, 64} {
			per := 3000
			if b > 1 {
				per = 12800
			}
			if strings.Contains(name, "several") || held || len(ops) > 1 {
				per /= 2
			}
			out = append(out, cell{name: fmt.Sprintf("%s/%d", name, b), sets: sets, ops: ops, held: held, bans: bans, batch: b, per: per})
		}
	}
	for _, k := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "leaky_bucket"} {
		sets := one(k)
		if k == "sliding_window_log" {
			sets[0][0].count = 1000
			sets[0][0].period = 200_000
		}
		add("plain "+k, sets, "1", false, nil)
		if k != "leaky_bucket" {
			add("held "+k, sets, "1", true, nil)
			add("reserve+settle "+k, sets, "23", false, nil)
		}
	}
	add("late settle token_bucket", one("token_bucket"), "2L", false, nil)
	sev := [][]spec{{{kind: "token_bucket", count: big, period: 1_000_000}, {kind: "fixed_window", count: big, period: 86_400_000_000}}}
	add("several plain", sev, "1", false, nil)
	add("several held", sev, "1", true, nil)
	add("several reserve+settle", sev, "23", false, nil)
	add("inflight", [][]spec{{{kind: "in_flight", count: big, period: 1_000_000}}}, "17", false, nil)
	add("inflight+bucket", [][]spec{{{kind: "in_flight", count: big, period: 1_000_000}, {kind: "token_bucket", count: big, period: 1_000_000}}}, "17", false, nil)
	add("bans plain token_bucket", one("token_bucket"), "1", false, []int64{60_000_000})
	add("denied token_bucket", [][]spec{{{kind: "token_bucket", count: 1, period: 86_400_000_000}}}, "1", false, nil)
	var nums [][]spec
	for i := range 64 {
		nums = append(nums, []spec{{kind: "token_bucket", count: big - int64(i), period: 1_000_000, named: true}})
	}
	c := cell{name: "numbers token_bucket/64", sets: nums, ops: "1", batch: 64, per: 12800}
	out = append(out, c)
	return out
}

func TestBench(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	if rounds == 0 {
		t.Skip("ROUNDS")
	}
	only := os.Getenv("CELLS")
	rdb := redistest.Server(t).Client(t)
	for _, c := range cells() {
		if only != "" && !strings.Contains(c.name, only) {
			continue
		}
		rdb.FlushAll(context.Background())
		sides := map[string]side{"new": makeNew(rdb, c.sets, c.bans), "old": makeOld(rdb, c.sets, c.bans, c.held)}
		if c.held { // something stays held on each key
			for name, s := range sides {
				for j := range 256 {
					k := c
					k.batch = 1
					exec(rdb, [][]any{s.cmds(k.keysOf(name, j), []call{{op: '2', n: 1, m: 5 + int64(j)}})})
				}
			}
		}
		var ratios, news, olds, walls []float64
		for r := range rounds + 1 {
			got, wall := map[string]float64{}, map[string]float64{}
			order := []string{"old", "new"}
			if r%2 == 1 {
				order = []string{"new", "old"}
			}
			for _, name := range order {
				before, bw := cpu(rdb), usec(rdb)
				slice(rdb, name, sides[name], c)
				got[name], wall[name] = cpu(rdb)-before, usec(rdb)-bw
			}
			if r == 0 {
				continue
			}
			n := float64(c.per * len(c.ops))
			ratios, news, olds = append(ratios, got["new"]/got["old"]), append(news, got["new"]/n), append(olds, got["old"]/n)
			walls = append(walls, wall["new"]/wall["old"])
		}
		med := func(x []float64) float64 { sort.Float64s(x); return x[len(x)/2] }
		fmt.Printf("%-36s old %6.2f new %6.2f us  cpu %.3f [%.3f %.3f]  usec %.3f\n", c.name, med(olds), med(news), med(ratios), ratios[len(ratios)/4], ratios[3*len(ratios)/4], med(walls))
	}
}
