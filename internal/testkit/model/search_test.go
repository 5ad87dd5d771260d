package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// A mutant breaks one rule of holds. Each of its functions replaces the model's own.
type mutant struct {
	in     []string                        // the scopes in which it is found
	before func(m *model.Model, now int64) // at the beginning of every step
	second bool                            // the second process does not know of holds
	settle func(m *model.Model, now int64, o model.Outcome, actual int64)
	refund func(m *model.Model, now int64, o model.Outcome, n int64)
	reset  func(m *model.Model, now int64)
}

// holding are scopes of every algorithm that holds.
var holding = []string{"bucket of 2", "windows of 2", "aligned of 2", "log of 2", "counter of 2"}

var mutants = map[string]mutant{
	"holds are forgotten at their expiry": {
		in:     holding,
		before: func(m *model.Model, now int64) { m.ForgetExpired(now) },
	},
	"a settlement is applied twice": {
		in: holding,
		settle: func(m *model.Model, now int64, o model.Outcome, actual int64) {
			m.Settle(now, o, actual)
			m.TakeAgain(o)
		},
	},
	"a reset forgets what is held": {
		in:    holding,
		reset: func(m *model.Model, _ int64) { m.Lose(0, true, true) },
	},
	"a late settlement takes from what others hold": {
		in: holding,
		settle: func(m *model.Model, now int64, o model.Outcome, actual int64) {
			late := m.Late(now, o)
			m.Settle(now, o, actual)
			if late {
				m.TakeFromOthers(o)
			}
		},
	},
	"a late settlement takes from what is charged": {
		in: holding,
		settle: func(m *model.Model, now int64, o model.Outcome, actual int64) {
			late := m.Late(now, o)
			m.Settle(now, o, actual)
			if late && actual == 0 {
				m.ChargeLess(now, 1)
			}
		},
	},
	"a process ignores what is held": {in: holding, second: true},
	"an expired hold is charged before the newest instant": {
		in:     []string{"log of 2"},
		before: func(m *model.Model, now int64) { m.ChargeEarly(now) },
	},
	"a debt is clipped to the capacity": {
		in: []string{"bucket of 2"},
		settle: func(m *model.Model, now int64, o model.Outcome, actual int64) {
			m.Settle(now, o, actual)
			m.Clip(now)
		},
	},
	"a refund takes from whatever is charged": {
		in:     []string{"bucket of 2", "queue of 2"},
		refund: func(m *model.Model, now int64, _ model.Outcome, n int64) { m.ChargeLess(now, n) },
	},
}

// A scope is the small world that is searched.
type scope struct {
	limit  model.Limit
	judge  spends.Limit
	costs  []int64
	clock  []int64 // steps of the clock, of which at most one is back
	steps  int
	mutant mutant
	found  []string // an inadmissible history
	leaves int
	denied int
}

// A world is the key after some steps.
type world struct {
	model    *model.Model
	recorder *spends.Recorder
	now      int64
	back     bool
	step     int
	held     []pending
	charged  []pending
	trace    []string
}

type pending struct {
	outcome model.Outcome
	units   int64
	spend   int
}

func (s *scope) start() *world {
	const now = 100
	return &world{model: model.New(s.limit), recorder: spends.NewRecorder(s.judge, now), now: now}
}

// explore searches all that can happen from w on. It ends at the first history that is
// inadmissible.
func (s *scope) explore(w *world) {
	if w.step == s.steps {
		s.leaves++
		return
	}
	for _, d := range s.clock {
		if d != 0 && w.step == 0 || d < 0 && w.back {
			continue
		}
		processes := 1
		if s.mutant.second {
			processes = 2
		}
		for process := range processes {
			for _, n := range s.costs {
				s.branch(w, d, fmt.Sprintf("AllowN(%d) by %d", n, process+1), func(c *world) bool { return s.allow(c, process == 1, n) })
			}
		}
		for _, n := range s.costs {
			s.branch(w, d, fmt.Sprintf("Reserve(%d)", n), func(c *world) bool { return s.reserve(c, n) })
		}
		for i, p := range w.held {
			for _, actual := range slices.Compact([]int64{0, p.units - 1, p.units, p.units + 2}) {
				s.branch(w, d, fmt.Sprintf("Settle(#%d, %d)", p.spend+1, actual), func(c *world) bool { return s.settle(c, i, actual) })
			}
		}
		for i, p := range w.charged {
			// Refunds are as exact as that only while the clock goes on: what one empties no
			// longer keeps the clock from an earlier window.
			if w.back || d < 0 {
				break
			}
			s.branch(w, d, fmt.Sprintf("Refund(#%d)", p.spend+1), func(c *world) bool { return s.refund(c, i) })
		}
		if w.step > 0 {
			s.branch(w, d, "Reset", s.reset)
		}
	}
}

// branch goes on with one more step, if it changes anything.
func (s *scope) branch(w *world, d int64, name string, do func(*world) bool) {
	if s.found != nil {
		return
	}
	c := &world{
		model: w.model.Clone(), recorder: w.recorder.Clone(), now: w.now + d, back: w.back || d < 0, step: w.step + 1,
		held: slices.Clone(w.held), charged: slices.Clone(w.charged),
	}
	c.trace = append(slices.Clone(w.trace), fmt.Sprintf("%d: %s", c.now, name))
	c.recorder.Next(d, func(t int64) int64 { return c.model.Clock(0, t) })
	if s.mutant.before != nil {
		s.mutant.before(c.model, c.now)
	}
	if !do(c) {
		s.denied++
		return
	}
	if start, end, ok := c.model.Window(0); ok {
		c.recorder.Open(spends.Window{Start: start, End: end})
	}
	if err := c.recorder.Judge(); err != nil {
		s.found = append(slices.Clone(c.trace), err.Error())
		return
	}
	s.explore(c)
}

func (s *scope) allow(w *world, ignorant bool, n int64) bool {
	var o model.Outcome
	if ignorant {
		w.model.WithoutHolds(func() { o = w.model.Decide(w.now, n) })
	} else {
		o = w.model.Decide(w.now, n)
	}
	if o.Allowed {
		w.charged = append(w.charged, pending{o, n, w.recorder.Allow(o.Each[0].At, n)})
	}
	return o.Allowed
}

func (s *scope) reserve(w *world, n int64) bool {
	o := w.model.Reserve(w.now, n)
	switch {
	case !o.Allowed:
	case s.limit.Algorithm == model.LeakyBucket: // charges it
		w.charged = append(w.charged, pending{o, n, w.recorder.Allow(o.Each[0].At, n)})
	default:
		w.held = append(w.held, pending{o, n, w.recorder.Reserve(o.Each[0].At, o.Expiry(0), n)})
	}
	return o.Allowed
}

func (s *scope) settle(w *world, i int, actual int64) bool {
	p := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	at := w.model.Clock(0, w.now)
	settle := (*model.Model).Settle
	if s.mutant.settle != nil {
		settle = s.mutant.settle
	}
	settle(w.model, w.now, p.outcome.Of(w.model), actual)
	w.recorder.Settle(p.spend, actual, at)
	return true
}

func (s *scope) refund(w *world, i int) bool {
	p := w.charged[i]
	w.charged = slices.Delete(w.charged, i, i+1)
	if s.mutant.refund != nil {
		s.mutant.refund(w.model, w.now, p.outcome.Of(w.model), p.units)
	} else {
		w.model.Refund(w.now, p.outcome.Of(w.model))
	}
	w.recorder.Refund(p.spend)
	w.back = true
	return true
}

func (s *scope) reset(w *world) bool {
	if s.mutant.reset != nil {
		s.mutant.reset(w.model, w.now)
	} else {
		w.model.Reset(w.now)
	}
	w.recorder.Reset()
	return true
}

// scopes are the worlds of each algorithm with capacities of 1 to 4. A hold lasts for 3.
func scopes(steps int) map[string]*scope {
	all := map[string]*scope{}
	for _, capacity := range []int64{1, 2, 4} {
		for name, c := range map[string]struct {
			limit model.Limit
			judge spends.Limit
		}{
			"bucket":  {model.Limit{Algorithm: model.TokenBucket, Count: 1, Period: 2, Burst: capacity}, spends.Limit{Kind: spends.Bucket, Count: 1, Period: 2}},
			"queue":   {model.Limit{Algorithm: model.LeakyBucket, Count: 1, Period: 2, Burst: capacity}, spends.Limit{Kind: spends.Bucket, Count: 1, Period: 2}},
			"windows": {model.Limit{Algorithm: model.FixedWindow, Count: capacity, Period: 4}, spends.Limit{Kind: spends.Windows, Period: 4}},
			"aligned": {model.Limit{Algorithm: model.FixedWindow, Count: capacity, Period: 4, Aligned: true}, spends.Limit{Kind: spends.Aligned, Period: 4}},
			"log":     {model.Limit{Algorithm: model.SlidingWindowLog, Count: capacity, Period: 4}, spends.Limit{Kind: spends.Log, Period: 4}},
			"counter": {model.Limit{Algorithm: model.SlidingWindowCounter, Count: capacity, Period: 4}, spends.Limit{Kind: spends.Counter, Period: 4}},
		} {
			c.limit.Hold, c.judge.Capacity = 3, capacity
			s := &scope{limit: c.limit, judge: c.judge, clock: []int64{0, 1, 3, -8}, steps: steps}
			if capacity == 1 {
				s.steps++
			}
			for _, n := range []int64{1, capacity/2 + 1, capacity} {
				if !slices.Contains(s.costs, n) {
					s.costs = append(s.costs, n)
				}
			}
			all[fmt.Sprintf("%s of %d", name, capacity)] = s
		}
	}
	return all
}

// No history of a few steps lets more be spent than the plain algorithm would admit,
// whenever it is spent.
func TestEveryShortHistoryIsAdmissible(t *testing.T) {
	withoutRace(t)
	for name, s := range scopes(4) {
		t.Run(name, func(t *testing.T) {
			s.explore(s.start())
			t.Logf("%d histories", s.leaves)
			if s.leaves < 1000 {
				t.Errorf("only %d histories", s.leaves)
			}
			if s.found != nil {
				t.Error("inadmissible:\n" + strings.Join(s.found, "\n"))
			}
		})
	}
}

// Each rule is needed: without it a short history is inadmissible.
func TestEveryRuleIsNeeded(t *testing.T) {
	for rule, mutant := range mutants {
		t.Run(rule, func(t *testing.T) {
			for _, name := range mutant.in {
				s := scopes(4)[name]
				s.mutant = mutant
				s.explore(s.start())
				if s.found == nil {
					t.Errorf("%s: all of %d histories are admissible", name, s.leaves)
				}
				t.Logf("%s: %s", name, strings.Join(s.found, "; "))
			}
		})
	}
}
