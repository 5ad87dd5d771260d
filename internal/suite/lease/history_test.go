package lease_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// happens lists the events of random histories besides requests of one unit and time that passes. Each event must happen in
// the histories of each algorithm.
var happens = []string{
	"admitted from a lease", "admitted by Redis", "denied", "costs more than 1", "reserved from a lease", "reserved in Redis",
	"settled in its lease", "settled in Redis", "settled after it was charged", "settled at more than was reserved", "renewed",
	"refunded", "refunded after its lease", "reset", "old leases closed", "died with a lease", "request lost", "reply lost",
	"late reply", "script forgotten", "wall clock set", "machine suspended", "Redis's clock back", "limit changed",
	"other numbers by With", twoLeases,
}

const twoLeases = "two leases of one key"

// TestLeaseHistories makes three processes with clocks of their own lease units of one key. Their random histories have
// delays, lost requests and replies, processes that die, scripts that Redis has forgotten, steps back of its clock,
// suspended machines, Resets, Refunds, Reserve, Settle and renewals, limits that change, and other limits on the same key
// by With. Package spends judges how many units were spent, and when, by the plain definition of each algorithm.
//
// The environment variable REDISLIMIT_LEASE_STEPS is about how many steps each algorithm takes. The histories are the same
// in each run. A history that fails names its seed.
func TestLeaseHistories(t *testing.T) {
	client := redistest.Server(t).Client(t)
	families := map[string][]limits.Variant{"several": nil}
	for _, v := range leasable() {
		families[v.Name] = []limits.Variant{v}
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		t.Run(name, func(t *testing.T) {
			w := &world{client: client, variants: families[name]}
			w.judgeHistories(t, number(t, "REDISLIMIT_LEASE_STEPS", 2000))
		})
	}
}

// leasable returns the algorithms whose units can be leased.
func leasable() []limits.Variant {
	return slices.DeleteFunc(limits.All(), func(v limits.Variant) bool { return v.Kind.Unleasable != "" })
}

// number returns the number in an environment variable, or otherwise if the variable is not set.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	check.Need(t, err)
	return n
}

// A world is the part that all histories of an algorithm share.
type world struct {
	client   *redis.Client
	variants []limits.Variant // nil: several random limits
}

// judgeHistories runs and judges histories with the given number of steps, and checks that every event happens in them. The
// exception is two leases beside each other with several limits, which make leases so small that this is rare.
func (w *world) judgeHistories(t *testing.T, steps int) {
	t.Helper()
	counts := make(map[string]int)
	seed := uint64(1)
	for taken := 0; taken < steps; seed++ {
		h := newHistory(t, w, seed)
		h.run()
		h.verify()
		if t.Failed() {
			return
		}
		taken += h.steps
		counts["steps"] += h.steps
		for what, n := range h.counts {
			counts[what] += n
		}
	}
	t.Logf("in %d histories no more was spent than the limit allows; the events: %v", seed-1, counts)
	for _, what := range happens {
		if rare := w.variants == nil && what == twoLeases; counts[what] == 0 && steps > 1000 && !rare {
			t.Errorf("in %d steps this event never happened: %s", counts["steps"], what)
		}
	}
}

// The numbers of a history. The counts are so small that limits are reached. If there are several limits, the later ones have
// longer periods and larger counts.
const (
	historyCount = 24
	historyBack  = 60 * time.Millisecond // the longest step back of Redis's clock
)

var historyPeriods = []time.Duration{150 * time.Millisecond, 250 * time.Millisecond, 400 * time.Millisecond}

// A history is a random sequence of events on one key.
type history struct {
	*world

	t       *testing.T
	driven  *conformance.Driven // each history has its own, which knows no script at the beginning
	random  *rand.Rand
	seed    uint64
	limits  []*limit
	spent   []*spend
	pending []*spend      // the spends for which units are held
	passed  time.Duration // the time since the beginning
	latest  time.Time     // the latest time that Redis's clock has shown
	step    int
	depth   int
	steps   int
	resets  []int
	runs    []run
	counts  map[string]int

	machines []*machine
}

// A limit is one of the limits of the key.
type limit struct {
	limits.Variant

	name   string
	period time.Duration
	factor func(count int64) int64
	kind   spends.Kind
	debts  []spends.Debt
	opened []spends.Window
}

func newHistory(t *testing.T, w *world, seed uint64) *history {
	t.Helper()
	check.Need(t, w.client.FlushAll(t.Context()).Err())
	h := &history{
		world: w, t: t, driven: conformance.NewDriven(w.client), random: rand.New(rand.NewPCG(seed, 17)), seed: seed,
		counts: make(map[string]int),
	}
	variants := w.variants
	if all := leasable(); variants == nil {
		for range 2 + h.random.IntN(2) {
			variants = append(variants, all[h.random.IntN(len(all))])
		}
	}
	for i, v := range variants {
		period := historyPeriods[i]
		if v.Kind.Moves { // so long that a request is rarely on its way for longer than a window
			period *= 4
		}
		h.limits = append(h.limits, &limit{
			Variant: v, name: fmt.Sprint("x", i), period: period,
			kind:   model.Limit{Algorithm: model.Algorithm(v.Kind.Name), Aligned: v.Aligned}.Spends(),
			factor: func(count int64) int64 { return count * int64(2+i) / 2 },
		})
	}
	h.driven.Advance(time.Date(2090, 1, 1, 0, 0, 0, h.random.IntN(1e9), time.UTC).Sub(h.driven.Now())) // the same instants in each run
	h.latest = h.driven.Now()
	for i := range 3 {
		h.machines = append(h.machines, h.boot(i))
	}
	return h
}

// with returns the limits with the given count per period, and with 1/share of it as their capacity. Buckets of the same
// rate share their stored state.
func (h *history) with(count, share int64) []core.Limit {
	var all []core.Limit
	for _, l := range h.limits {
		count := l.factor(count)
		capacity := count / share
		if !l.Kind.Debt {
			count = capacity
		}
		all = append(all, l.With(core.Per(count, l.period), limits.Settings{Name: l.name, Burst: capacity}))
	}
	return all
}

// instant returns the present instant on the time scale by which l is judged: the time of Redis's clock for windows of this
// clock, and for other limits the time that has passed.
func (h *history) instant(l *limit) int64 {
	switch scale := l.kind.Scale(); scale {
	case spends.Elapsed:
		return h.passed.Microseconds()
	case spends.InOpened, spends.InPeriod:
		return h.driven.Now().UnixMicro()
	case spends.LatestInPeriod: // after a step back, the clock is still in the same window
		return max(h.driven.Now().UnixMicro(), h.latest.UnixMicro())
	default:
		panic(fmt.Sprintf("history.instant does not know the scale %d of package spends: add the scale there and in history.back", scale))
	}
}

func (h *history) instants() []int64 {
	all := make([]int64, len(h.limits))
	for i, l := range h.limits {
		all[i] = h.instant(l)
	}
	return all
}

func (h *history) happened(what string) { h.counts[what]++ }

func (h *history) next() int {
	h.step++
	return h.step
}

// pass makes time pass in small steps, so that the history knows when holds expire.
func (h *history) pass(by time.Duration) {
	by = by.Truncate(time.Microsecond)
	for by > 0 {
		d := min(by, leased/50)
		by -= d
		h.passed += d
		h.driven.Advance(d)
		now := h.driven.Now().UnixMicro()
		h.pending = slices.DeleteFunc(h.pending, func(s *spend) bool { return s.expired(h, now) })
	}
	if now := h.driven.Now(); now.After(h.latest) {
		h.latest = now
	}
}

// back makes Redis's clock step back. For windows of that clock, the step does not leave the newest window, because the
// judge uses this clock, too.
func (h *history) back() {
	by := time.Duration(h.random.Int64N(int64(historyBack)))
	now := h.driven.Now()
	for _, l := range h.limits {
		switch l.kind.Scale() {
		case spends.Elapsed:
		case spends.InOpened:
			by = min(by, l.sinceWindow(now))
		case spends.InPeriod, spends.LatestInPeriod:
			by = min(by, now.Sub(now.Truncate(l.period)))
		}
	}
	if by > 0 {
		h.happened("Redis's clock back")
	}
	h.driven.Advance(-by)
}

// sinceWindow returns the time since the newest window began or, if it is over, since it ended.
func (l *limit) sinceWindow(now time.Time) time.Duration {
	n := len(l.opened)
	if n == 0 {
		return 0
	}
	if end := time.UnixMicro(l.opened[n-1].End); !now.Before(end) {
		return now.Sub(end)
	}
	return now.Sub(time.UnixMicro(l.opened[n-1].Start))
}

// run makes random events happen.
func (h *history) run() {
	for range 40 + h.random.IntN(40) {
		h.act()
	}
}

// verify fails the test if more was spent than allowed, or if the limit does not have all of its units again long after the
// end.
func (h *history) verify() {
	if err := h.judge(); err != nil {
		h.t.Errorf("seed %d: %v", h.seed, err)
		return
	}
	for _, m := range h.machines {
		_ = m.Close()
	}
	h.pass(3 * leased)
	probe := core.MustNew(h.driven, "lease", limitOptions(h.with(historyCount, 1), h.driven.Wall(), core.FailClosed(), core.Timeout(time.Minute))...)
	_, err := probe.Peek(context.Background(), "k")
	for _, l := range h.limits { // periods of a calendar are longer than historyPeriods
		h.pass(3 * l.period)
	}
	res, err2 := probe.Peek(context.Background(), "k")
	if err != nil || err2 != nil {
		h.t.Fatal(err, err2)
	}
	for each := range res.All() {
		if each.Remaining != each.Limit {
			h.t.Errorf("seed %d: long after the end got %+v, want all units remaining", h.seed, each)
		}
	}
}

func limitOptions(limits []core.Limit, opts ...core.Option) []core.Option {
	for _, l := range limits {
		opts = append(opts, l)
	}
	return opts
}

// judge returns an error if more was spent than the limits allow.
func (h *history) judge() error {
	for i, l := range h.limits {
		// A spend from a lease is judged twice: among all spends by the largest capacity, and among those admitted up to
		// its lease by the capacity of the machine that took the lease.
		most := spends.Limit{Kind: l.kind, Count: l.factor(historyCount), Period: l.period.Microseconds(), Capacity: l.factor(historyCount)}
		all := spends.History{Resets: h.resets, Debts: l.debts, Opened: l.opened}
		for _, s := range h.spent {
			all.Spends = append(all.Spends, s.each[i].Spend)
		}
		for _, s := range h.spent {
			own := most
			own.Capacity = s.each[i].capacity
			known := all
			if s.res.Source == core.SourceLease { // debts since the lease was admitted affect only later admissions
				known.Debts = slices.DeleteFunc(slices.Clone(all.Debts), func(d spends.Debt) bool { return d.Step > s.admitted })
				if err := spends.JudgeAt(most, known, s.each[i].Spend); err != nil {
					return fmt.Errorf("%s: %w", l.Name, err)
				}
				known.Spends = nil
				for _, other := range h.spent {
					if other.admitted <= s.admitted {
						known.Spends = append(known.Spends, other.each[i].Spend)
					}
				}
			}
			if err := spends.JudgeAt(own, known, s.each[i].Spend); err != nil {
				return fmt.Errorf("%s, by the capacity at the time of the admission: %w", l.Name, err)
			}
		}
	}
	return nil
}

// act makes one random event happen.
func (h *history) act() {
	h.depth++
	defer func() { h.depth-- }()
	h.steps++
	m := h.machines[h.random.IntN(len(h.machines))]
	if m.asleep() {
		h.pass(time.Duration(h.random.Int64N(int64(leased / 10))))
		return
	}
	before := m.running
	m.running = nil // the call that m was making is not the one that it makes now
	defer func() { m.running = before }()
	switch what := h.random.IntN(100); {
	case what < 44:
		m.requestOften()
	case what < 52:
		m.request(int64(1+h.random.IntN(3)), true)
	case what < 60:
		m.settleOne(nil)
	case what < 62:
		m.renew()
	case what < 65:
		m.refundOne()
	case what < 67:
		h.happened("reset")
		_ = m.Reset(context.Background(), "k")
	case what < 70:
		h.happened("old leases closed")
		m.CloseOld()
	case what < 73:
		m.setWall()
	case what < 77:
		m.suspend()
	case what < 79:
		h.back()
	case what < 81:
		m.die()
	case what < 82:
		m.change()
		h.happened("limit changed")
	case what < 90:
		h.pass(time.Duration(h.random.Int64N(int64(leased))))
	case what < 92:
		h.pass(time.Duration(h.random.Int64N(int64(h.limits[0].period))))
	default:
		h.pass(time.Duration(h.random.Int64N(int64(leased / 10))))
	}
}

// requestOften makes a few requests, some of which are reservations.
func (m *machine) requestOften() {
	h := m.h
	for range 1 + h.random.IntN(8) {
		reserve := h.random.IntN(8) == 0
		s := m.request(int64(1+h.random.IntN(4)/3), reserve)
		h.pass(time.Duration(h.random.Int64N(int64(leased / 50))))
		if m.asleep() {
			return
		}
		switch {
		case s == nil || !reserve:
		case h.random.IntN(2) == 0:
			m.settleOne(s)
		case h.random.IntN(4) == 0:
			m.renew()
		}
	}
}
