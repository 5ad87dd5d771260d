package model_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// A leaseMutant breaks one rule of leases.
type leaseMutant struct {
	in          []string // the scopes in which it is found
	clock       []int64  // the steps of the clock, where fewer find it sooner
	age         func(p *leaser, w *leaseWorld) int64
	lasts       int64                                                    // a lease does for so much longer
	before      func(m *model.Model, now int64)                          // at the beginning of every step
	plain       func(m *model.Model, decide func())                      // how a process that does not lease decides
	settle      func(w *leaseWorld, o model.Outcome, spent, units int64) // in place of the model's own
	reopens     bool                                                     // what has ended is spent
	refundsLate bool                                                     // what has ended gives back
}

// Scopes in which a rule that is broken is soon found.
var (
	leasing = []string{"bucket of 2", "windows of 2", "aligned of 2", "log of 2", "counter of 2"}
	clocked = []string{"bucket of 2", "aligned of 2", "counter of 2"}
)

var leaseMutants = map[string]leaseMutant{
	"the life of a lease is counted from its receipt": {
		in:  clocked,
		age: func(p *leaser, w *leaseWorld) int64 { return max(w.wallOf(p)-p.got.wall, w.monoOf(p)-p.got.mono) },
	},
	"only the wall clock is used": {
		in:  clocked,
		age: func(p *leaser, w *leaseWorld) int64 { return max(0, w.wallOf(p)-p.sent.wall) },
	},
	"only the monotonic clock is used": {
		in:  clocked,
		age: func(p *leaser, w *leaseWorld) int64 { return w.monoOf(p) - p.sent.mono },
	},
	"a hold is forgotten at its expiry": {
		in:     leasing,
		before: func(m *model.Model, now int64) { m.ForgetExpired(now) },
	},
	"a late settlement takes from what is charged": {
		in: []string{"bucket of 2", "aligned of 2"},
		settle: func(w *leaseWorld, o model.Outcome, spent, units int64) {
			late := w.model.Late(w.now, o)
			w.model.Settle(w.now, o, spent)
			if late && spent < units {
				w.model.ChargeLess(w.now, units)
			}
		},
	},
	"a late settlement takes from what others hold": {
		in: []string{"aligned of 2"}, clock: []int64{0, leaseLasts + 1},
		settle: func(w *leaseWorld, o model.Outcome, spent, _ int64) {
			late := w.model.Late(w.now, o)
			w.model.Settle(w.now, o, spent)
			if late {
				w.model.TakeFromOthers(o)
			}
		},
	},
	"a settlement is applied twice": {
		in: []string{"aligned of 2"}, clock: []int64{0, leaseLasts + 1},
		settle: func(w *leaseWorld, o model.Outcome, spent, _ int64) {
			w.model.Settle(w.now, o, spent)
			w.model.TakeAgain(o)
		},
	},
	"a process that does not lease ignores what is held": {
		in:    leasing,
		plain: func(m *model.Model, decide func()) { m.WithoutHolds(decide) },
	},
	"a lease outlives what is held for it":             {in: leasing, lasts: 3},
	"a lease is spent after it was closed":             {in: leasing, reopens: true},
	"a refund is given back after the lease has ended": {in: []string{"aligned of 2"}, clock: []int64{0, leaseLasts + 1}, refundsLate: true},
}

// A leaseScope is the small world that is searched: two processes that lease, another that
// does not, and Redis. A lease lasts for 3.
type leaseScope struct {
	*scope

	mutant leaseMutant
}

const leaseLasts = 3

// A leaseWorld is the key, and the processes, after some steps.
type leaseWorld struct {
	scope   *leaseScope
	model   *model.Model
	history spends.History
	now     int64 // of Redis's clock
	elapsed int64
	back    bool
	step    int
	leasers []leaser
	expiry  []int64 // of what is held for each spend; 0: it was charged
	trace   []string
}

// A leaser is a process that leases.
type leaser struct {
	wallSet, slept int64 // by how much the wall clock was set, and for how long the monotonic one stood

	state     leaseState
	outcome   model.Outcome
	sent, got clocks
	units     int64
	spent     []int // which spends are of the lease
}

type clocks struct{ wall, mono int64 }

type leaseState int

const (
	noLease  leaseState = iota
	asked               // and the reply is on its way
	leased              // it is spent
	settling            // it has ended, and its settlement is on its way
	ended               // it is settled
)

func (w *leaseWorld) wallOf(p *leaser) int64 { return w.elapsed + p.wallSet }
func (w *leaseWorld) monoOf(p *leaser) int64 { return w.elapsed - p.slept }
func (w *leaseWorld) clocks(p *leaser) clocks {
	return clocks{w.wallOf(p), w.monoOf(p)}
}

// spendable reports whether p spends from its lease now.
func (w *leaseWorld) spendable(p *leaser) bool {
	age := max(w.wallOf(p)-p.sent.wall, w.monoOf(p)-p.sent.mono)
	if w.scope.mutant.age != nil {
		age = w.scope.mutant.age(p, w)
	}
	return age >= 0 && age < leaseLasts+w.scope.mutant.lasts
}

// left returns what is left of p's lease.
func (w *leaseWorld) left(p *leaser) int64 { return p.units - w.spentOf(p) }

func (w *leaseWorld) spentOf(p *leaser) int64 {
	sum := int64(0)
	for _, i := range p.spent {
		sum += w.history.Spends[i].Units
	}
	return sum
}

// instant is the present one on the scale of the judge: Redis's clock steps back only where
// that is the time elapsed.
func (w *leaseWorld) instant() int64 {
	if w.scope.judge.Kind == spends.Bucket || w.scope.judge.Kind == spends.Log {
		return w.elapsed
	}
	return w.now
}

// spend notes units that are spent now, of a hold with an expiry, or charged at once.
func (w *leaseWorld) spend(units, expiry int64) int {
	s := spends.Spend{Units: units, Step: w.step, From: w.instant(), Until: w.instant()}
	if expiry == 0 {
		s.Charged = w.step
	}
	w.history.Spends = append(w.history.Spends, s)
	w.expiry = append(w.expiry, expiry)
	return len(w.expiry) - 1
}

// settle settles p's lease in Redis, once.
func (w *leaseWorld) settle(p *leaser) {
	o, spent := p.outcome.Of(w.model), w.spentOf(p)
	if w.scope.mutant.settle != nil {
		func() {
			defer func() { _ = recover() }() // what has been taken from another's hold is missed there
			w.scope.mutant.settle(w, o, spent, p.units)
		}()
	} else {
		w.model.Settle(w.now, o, spent)
	}
	for _, i := range p.spent {
		if w.history.Spends[i].Charged == 0 {
			w.history.Spends[i].Charged = w.step
		}
	}
	p.state = ended
}

// lease has p ask for a lease of k. Of a lease before it settles what was spent, in the same
// run of the script. The decision that comes with it is an AllowN like any other.
func (w *leaseWorld) lease(p *leaser, k int64, slow bool) bool {
	if p.state == leased {
		w.settle(p)
	}
	o := w.model.Reserve(w.now, k)
	if !o.Allowed {
		return false // a settlement alone is another history
	}
	p.state, p.outcome, p.units, p.spent, p.sent = asked, o, k, nil, w.clocks(p)
	if !slow {
		w.reply(p)
	}
	return true
}

// reply has the reply to p's request come. A lease that comes too late is given back.
func (w *leaseWorld) reply(p *leaser) {
	p.state, p.got = leased, w.clocks(p)
	if !w.spendable(p) {
		w.settle(p)
	}
}

// explore searches all that can happen from w on. It ends at the first history that is
// inadmissible.
func (w *leaseWorld) explore() {
	s := w.scope
	if w.step == s.steps {
		s.leaves++
		return
	}
	for _, d := range s.clock {
		if d != 0 && w.step == 0 || d < 0 && (w.back || w.scope.judge.Kind != spends.Bucket && w.scope.judge.Kind != spends.Log) {
			continue
		}
		for _, n := range s.costs {
			w.branch(d, fmt.Sprintf("AllowN(%d) without leases", n), func(c *leaseWorld) bool { return c.allow(n) })
		}
		if w.step > 0 {
			w.branch(d, "Reset", func(c *leaseWorld) bool {
				c.model.Reset(c.now)
				c.history.Resets = append(c.history.Resets, c.step)
				return true
			})
		}
		for i := range w.leasers {
			if i > 0 && w.leasers[0].state == noLease {
				break // the other is no different
			}
			w.exploreLeaser(d, i)
		}
	}
}

// exploreLeaser searches what the process i may do next.
func (w *leaseWorld) exploreLeaser(d int64, i int) {
	p := &w.leasers[i]
	branch := func(name string, do func(c *leaseWorld, p *leaser) bool) {
		w.branch(d, fmt.Sprintf("%s by %d", name, i+1), func(c *leaseWorld) bool { return do(c, &c.leasers[i]) })
	}
	if p.state != asked && p.state != settling {
		for k := int64(1); k <= min(2, w.scope.judge.Capacity); k++ {
			branch(fmt.Sprintf("lease of %d", k), func(c *leaseWorld, p *leaser) bool { return c.lease(p, k, false) })
			branch(fmt.Sprintf("lease of %d, slow", k), func(c *leaseWorld, p *leaser) bool { return c.lease(p, k, true) })
		}
	}
	if p.state == asked && d > 0 {
		branch("reply", func(c *leaseWorld, p *leaser) bool {
			c.reply(p)
			return true
		})
	}
	if p.state == settling {
		branch("settlement", func(c *leaseWorld, p *leaser) bool {
			c.settle(p)
			return true
		})
	}
	spends := p.state == leased || w.scope.mutant.reopens && p.state >= settling
	if spends && w.left(p) > 0 {
		branch("spend", func(c *leaseWorld, p *leaser) bool {
			if !c.spendable(p) {
				return false
			}
			p.spent = append(p.spent, c.spend(1, p.outcome.Expiry(0)))
			return true
		})
	}
	if p.state == leased {
		branch("close", func(c *leaseWorld, p *leaser) bool {
			c.settle(p)
			return true
		})
		branch("close, slow", func(_ *leaseWorld, p *leaser) bool {
			p.state = settling
			return true
		})
		if p.wallSet == 0 && d == 0 {
			branch("suspended", func(c *leaseWorld, p *leaser) bool {
				c.elapsed += leaseLasts
				c.now += leaseLasts
				p.slept += leaseLasts
				return true
			})
		}
		if p.slept == 0 && p.wallSet == 0 && d > 0 {
			branch("wall clock set back", func(_ *leaseWorld, p *leaser) bool {
				p.wallSet -= d
				return true
			})
		}
	}
	if len(p.spent) > 0 && (p.state == leased && w.spendable(p) || w.scope.mutant.refundsLate) {
		branch("refund", func(c *leaseWorld, p *leaser) bool { return c.refund(p) })
	}
	// A process that dies does nothing more, and nor does one whose reply is lost: that is a
	// history of which this is the end.
}

func (w *leaseWorld) allow(n int64) bool {
	var o model.Outcome
	decide := func() { o = w.model.Decide(w.now, n) }
	if w.scope.mutant.plain != nil {
		w.scope.mutant.plain(w.model, decide)
	} else {
		decide()
	}
	if o.Allowed {
		w.spend(n, 0)
	}
	return o.Allowed
}

// refund gives back the last unit of p's lease.
func (w *leaseWorld) refund(p *leaser) bool {
	last := &w.history.Spends[p.spent[len(p.spent)-1]]
	if last.Units == 0 {
		return false
	}
	if p.state != leased || !w.spendable(p) {
		w.model.ChargeLess(w.now, 1)
	}
	last.Units = 0
	return true
}

// branch goes on with one more step, if it changes anything.
func (w *leaseWorld) branch(d int64, name string, do func(*leaseWorld) bool) {
	s := w.scope
	if s.found != nil {
		return
	}
	c := *w
	c.model, c.now, c.back, c.step = w.model.Clone(), w.now+d, w.back || d < 0, w.step+1
	c.elapsed += max(0, d)
	c.leasers = slices.Clone(w.leasers)
	for i := range c.leasers {
		c.leasers[i].spent = slices.Clone(c.leasers[i].spent)
	}
	c.expiry = slices.Clone(w.expiry)
	c.history = spends.History{Spends: slices.Clone(w.history.Spends), Resets: slices.Clone(w.history.Resets), Opened: slices.Clone(w.history.Opened)}
	c.trace = append(slices.Clone(w.trace), fmt.Sprintf("%d: %s", c.now, name))
	for i, expiry := range c.expiry {
		if charged := &c.history.Spends[i].Charged; *charged == 0 && expiry <= c.now {
			*charged = c.step
		}
	}
	if s.mutant.before != nil {
		s.mutant.before(c.model, c.now)
	}
	if !do(&c) {
		s.denied++
		return
	}
	if start, end, ok := c.model.Window(0); ok {
		window := spends.Window{Start: start, End: end}
		if n := len(c.history.Opened); n == 0 || c.history.Opened[n-1] != window {
			c.history.Opened = append(c.history.Opened, window)
		}
	}
	for i := len(w.history.Spends); i < len(c.history.Spends); i++ {
		if err := spends.JudgeAt(s.judge, c.history, c.history.Spends[i]); err != nil {
			s.found = append(slices.Clone(c.trace), err.Error())
			return
		}
	}
	c.explore()
}

// leaseScopes are the worlds of each algorithm with capacities of 2 to 4.
func leaseScopes(steps int) map[string]*leaseScope {
	all := make(map[string]*leaseScope)
	for name, s := range scopes(steps) {
		if s.limit.Algorithm != model.LeakyBucket && s.judge.Capacity > 1 {
			s.limit.Hold, s.steps = leaseLasts, steps
			if s.judge.Capacity > 2 {
				s.steps--
			}
			s.costs = slices.Compact([]int64{1, s.judge.Capacity})
			s.clock = []int64{0, 1, leaseLasts + 1, -8}
			all[name] = &leaseScope{scope: s}
		}
	}
	return all
}

// withoutRace skips a search under the race detector, where it takes ten times as long: it has
// one goroutine. .ci/run runs it without.
func withoutRace(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("a search of one goroutine: it runs without -race")
	}
}

func (s *leaseScope) search() {
	w := &leaseWorld{scope: s, model: model.New(s.limit), now: 100, leasers: make([]leaser, 2)}
	w.explore()
}

// No history of a few steps, of two processes that lease and one that does not, lets more be
// spent than the plain algorithm would admit. REDISLIMIT_LEASE_SEARCH is how many steps; with a
// capacity of 4 it is one less.
func TestEveryShortLeaseIsAdmissible(t *testing.T) {
	withoutRace(t)
	steps := 4
	if s := os.Getenv("REDISLIMIT_LEASE_SEARCH"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	total := 0
	for name, s := range leaseScopes(steps) {
		t.Run(name, func(t *testing.T) {
			s.search()
			t.Logf("%d histories", s.leaves)
			if total += s.leaves; s.leaves < 1000 {
				t.Errorf("only %d histories", s.leaves)
			}
			if s.found != nil {
				t.Error("inadmissible:\n" + strings.Join(s.found, "\n"))
			}
		})
	}
	t.Logf("%d histories of %d steps", total, steps)
}

// Each rule of leases is needed: without it a short history is inadmissible.
func TestEveryRuleOfLeasesIsNeeded(t *testing.T) {
	withoutRace(t)
	for rule, mutant := range leaseMutants {
		t.Run(rule, func(t *testing.T) {
			for _, name := range mutant.in {
				var s *leaseScope
				for steps := 3; steps <= 5 && (s == nil || s.found == nil); steps++ {
					s = leaseScopes(steps)[name]
					if s.mutant = mutant; mutant.clock != nil {
						s.clock = mutant.clock
					}
					s.search()
				}
				if s.found == nil {
					t.Errorf("%s: all of %d histories are admissible", name, s.leaves)
				}
				t.Logf("%s: %s", name, strings.Join(s.found, "; "))
			}
		})
	}
}
