package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// TestLeaseHistories has three processes with clocks of their own lease units of one key, with
// delays, lost requests and replies, deaths, scripts that Redis has forgotten, steps back of
// its clock, Resets, Refunds, Reserve and Settle, and limits that change. What was spent, and
// when, is judged by the plain definition of each algorithm.
//
// REDISLIMIT_LEASE_STEPS is about how many steps each algorithm takes.
func TestLeaseHistories(t *testing.T) {
	steps := 1500
	if s := os.Getenv("REDISLIMIT_LEASE_STEPS"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	client := redistest.Server(t).Client(t)
	for _, v := range limits.All() {
		if v.Kind.Unleasable != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			var total history
			for seed := uint64(1); total.steps < steps; seed++ {
				h := newHistory(t, client, v, seed)
				h.run()
				total.steps += h.steps
				total.leased += h.leased
				total.asked += h.asked
				total.late += h.late
				total.gone += h.gone
			}
			t.Logf("%d steps: %d admitted from leases, %d by Redis, %d leases of processes that died", total.steps, total.leased, total.asked, total.gone)
			if total.leased < total.steps/20 || total.asked < total.steps/20 {
				t.Errorf("in %d steps %d were admitted from leases, and %d by Redis", total.steps, total.leased, total.asked)
			}
		})
	}
}

// The numbers of a history. There are so few units that limits are reached.
const (
	historyCount  = 24
	historyPeriod = 150 * time.Millisecond
	historyBack   = 60 * time.Millisecond // the longest step back of Redis's clock
)

type history struct {
	t      *testing.T
	client *redis.Client
	random *rand.Rand
	driven *conformance.Driven
	v      limits.Variant
	seed   uint64

	judge    spends.Limit
	spent    []*spend
	passed   time.Duration // since the beginning
	latest   time.Time     // that Redis's clock showed
	step     int
	depth    int
	resets   []int
	debts    []spends.Debt
	opened   []spends.Window
	machines []*machine
	trace    []string

	count int64 // of the limit, which may be raised to historyCount

	steps, leased, asked, late, gone int
}

// A machine is a process with clocks of its own.
type machine struct {
	*core.Limiter

	h       *history
	id      int
	rate    float64
	setBy   time.Duration // the wall clock was set
	results []*spend
	granted map[any]int // the steps at which leases were
}

// A spend is units that were admitted.
type spend struct {
	spends.Spend

	by       int
	res      core.Result
	expiry   int64 // of what is held for it; 0 if nothing is
	reserved bool
	crossed  bool // what is held for it has expired
	admitted int  // the step at which its lease was
	done     bool // settled or refunded
}

// An execution is what Redis did for one call.
type execution struct {
	settles bool // it settles a reservation
	step    int
	at      int64 // on the scale of the judge
	clock   int64 // that of Redis
}

type executionKey struct{}

var kinds = map[string]spends.Kind{
	"token_bucket": spends.Bucket, "gcra": spends.Bucket, "fixed_window": spends.Windows, "fixed_window_aligned": spends.Aligned,
	"sliding_window_counter": spends.Counter, "sliding_window_log": spends.Log,
}

func newHistory(t *testing.T, client *redis.Client, v limits.Variant, seed uint64) *history {
	t.Helper()
	kind, ok := kinds[v.Name]
	if !ok {
		t.Fatalf("say how %s is judged", v.Name)
	}
	client.FlushAll(context.Background())
	h := &history{
		t: t, client: client, random: rand.New(rand.NewPCG(seed, 17)), driven: conformance.NewDriven(client), v: v, seed: seed,
		judge: spends.Limit{Kind: kind, Count: historyCount, Period: historyPeriod.Microseconds(), Capacity: historyCount},
	}
	h.driven.Advance(time.Date(2090, 1, 1, 0, 0, 0, h.random.IntN(1e9), time.UTC).Sub(h.driven.Now())) // the same in each run
	h.latest = h.driven.Now()
	h.count = historyCount
	if h.random.IntN(4) == 0 {
		h.count /= 2
	}
	for i := range 3 {
		h.machines = append(h.machines, h.boot(i))
	}
	return h
}

func (h *history) boot(id int) *machine {
	m := &machine{h: h, id: id, granted: make(map[any]int), rate: 1 + (h.random.Float64()*2-1)*0.0005}
	if h.random.IntN(3) == 0 {
		m.rate = 1 - 0.0009*float64(h.random.IntN(2)) // slow: the dangerous direction
	}
	lim, err := core.New(m, "lease", h.limit(h.count), core.Lease(leased), core.FailClosed(), core.Timeout(time.Minute), core.DenyCache(0),
		core.Hold(2*leased), core.Coalesce(1))
	if err != nil {
		h.t.Fatal(err)
	}
	m.Limiter = lim
	driveLeases(lim, func() time.Duration { return m.elapsed() + m.setBy }, m.elapsed)
	heatLeases(lim, int64(2+h.random.IntN(2)), int64(1+h.random.IntN(3)))
	return m
}

func (m *machine) elapsed() time.Duration { return time.Duration(float64(m.h.passed) * m.rate) }

func (h *history) limit(count int64) core.Limit {
	return h.v.With(core.Per(count, historyPeriod), limits.Settings{Name: "x", Burst: count})
}

// instant is the present one on the scale of the judge: for windows of Redis's clock that of
// the clock, for others the time that has passed.
func (h *history) instant() int64 {
	switch h.judge.Kind {
	case spends.Bucket, spends.Log:
		return h.passed.Microseconds()
	case spends.Counter: // a step back stays in the window
		return max(h.driven.Now().UnixMicro(), h.latest.UnixMicro())
	default:
		return h.driven.Now().UnixMicro()
	}
}

func (h *history) sayf(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf("%4d %9v ", h.step, h.passed)+fmt.Sprintf(format, args...))
}

func (h *history) next() int {
	h.step++
	return h.step
}

// pass has time pass, in small steps, so that it is known when holds expire.
func (h *history) pass(by time.Duration) {
	by = by.Truncate(time.Microsecond)
	for by > 0 {
		d := min(by, leased/50)
		by -= d
		h.passed += d
		h.driven.Advance(d)
		now := h.driven.Now().UnixMicro()
		for _, s := range h.spent {
			if s.expiry > 0 && !s.crossed && s.expiry <= now {
				s.crossed = true
				if s.reserved && !s.done {
					s.Until = h.instant() - (now - s.expiry)
				}
			}
		}
	}
	if now := h.driven.Now(); now.After(h.latest) {
		h.latest = now
	}
}

// back has Redis's clock step back. For windows of that clock it stays in the newest one,
// because the judge goes by the clock, too.
func (h *history) back() {
	by := time.Duration(h.random.Int64N(int64(historyBack)))
	now := h.driven.Now()
	switch h.judge.Kind {
	case spends.Bucket, spends.Log:
	case spends.Windows:
		if n := len(h.opened); n > 0 {
			by = min(by, now.Sub(time.UnixMicro(h.opened[n-1].Start)))
			if end := time.UnixMicro(h.opened[n-1].End); !now.Before(end) {
				by = min(by, now.Sub(end))
			}
		} else {
			by = 0
		}
	case spends.Aligned, spends.Counter:
		by = min(by, now.Sub(now.Truncate(historyPeriod)))
	}
	h.sayf("clock back by %v", by)
	h.driven.Advance(-by)
}

type lostError struct{}

func (lostError) Error() string { return "CLUSTERDOWN Hash slot not served" } // says nothing about the server's health
func (lostError) RedisError()   {}

// Process carries a command to Redis, on a bad network.
func (m *machine) Process(ctx context.Context, cmd redis.Cmder) error {
	h := m.h
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return h.driven.Process(ctx, cmd)
	}
	h.transit()
	if h.random.IntN(60) == 0 {
		h.sayf("%d: request lost", m.id)
		cmd.SetErr(lostError{})
		return lostError{}
	}
	if cmd.Name() == "evalsha" && h.random.IntN(30) == 0 {
		return h.forgotten(cmd)
	}
	err := h.driven.Process(ctx, cmd)
	if err == nil {
		h.executed(ctx, m, cmd)
	}
	h.transit()
	if err == nil && h.random.IntN(40) == 0 {
		h.sayf("%d: reply lost", m.id)
		cmd.SetErr(lostError{})
		return lostError{}
	}
	return err
}

type noScriptError struct{}

func (noScriptError) Error() string { return "NOSCRIPT No matching script." }
func (noScriptError) RedisError()   {}

func (h *history) forgotten(cmd redis.Cmder) error {
	cmd.SetErr(noScriptError{})
	return noScriptError{}
}

// transit is a while in which other things happen.
func (h *history) transit() {
	switch h.random.IntN(30) {
	case 0, 1:
		h.pass(time.Duration(h.random.Int64N(int64(leased))))
	case 2:
		h.pass(leased + time.Duration(h.random.Int64N(int64(leased/2)))) // a late reply
		h.late++
	default:
		h.pass(time.Duration(h.random.Int64N(int64(time.Millisecond))))
	}
	if h.depth < 3 && h.random.IntN(8) == 0 {
		h.act()
	}
}

var storedWindow = regexp.MustCompile(`^F1 (\d+) (\d+)`)

// executed notes what a script did.
func (h *history) executed(ctx context.Context, m *machine, cmd redis.Cmder) {
	now := h.driven.Now().UnixMicro()
	step := h.next()
	for _, s := range h.spent {
		if s.expiry > 0 && s.Charged == 0 && s.expiry <= now {
			s.Charged = step
		}
	}
	x, _ := ctx.Value(executionKey{}).(*execution)
	if calls := h.calls(cmd); calls != nil {
		for _, c := range calls {
			step = h.next()
			switch {
			case c.op == "3" && (x == nil || !x.settles):
				h.settled(m, c, step)
			case c.op == "5":
				h.resets = append(h.resets, step)
			}
		}
	}
	if x != nil {
		x.step, x.at, x.clock = h.next(), h.instant(), now
	}
	if h.judge.Kind == spends.Windows {
		value, _ := h.client.Get(ctx, "rl:lease:{k}:x").Result()
		if f := storedWindow.FindStringSubmatch(value); f != nil {
			start, _ := strconv.ParseInt(f[2], 10, 64)
			if n := len(h.opened); n == 0 || h.opened[n-1].Start < start {
				h.opened = append(h.opened, spends.Window{Start: start, End: start + historyPeriod.Microseconds()})
			}
		}
	}
}

// A call is one of the script for holds.
type call struct {
	op           string
	n, m, expiry int64
}

func (h *history) calls(cmd redis.Cmder) []call {
	args := cmd.Args()
	text := fmt.Sprint(args[1])
	if cmd.Name() == "evalsha" {
		if text = h.driven.Source(text); text == "" {
			h.t.Fatal("a script that is not known")
		}
	}
	if !strings.Contains(text, "hold n units for longer") {
		return nil
	}
	const width = 5 // for one limit
	keys, _ := strconv.Atoi(fmt.Sprint(args[2]))
	argv := args[len(args)-width*keys:]
	number := func(v any) int64 {
		n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		return n
	}
	var calls []call
	for i := range keys {
		a := argv[width*i:]
		calls = append(calls, call{fmt.Sprint(a[0]), number(a[1]), number(a[2]), number(a[4])})
	}
	return calls
}

// settled notes that units spent from a lease were charged.
func (h *history) settled(m *machine, c call, step int) {
	left := c.m
	for _, s := range h.spent {
		if s.by == m.id && s.expiry == c.expiry && s.Charged == 0 && (!s.reserved || s.done) && left >= s.Units && s.Units > 0 {
			s.Charged = step
			left -= s.Units
		}
	}
}

func (h *history) run() {
	if only := os.Getenv("REDISLIMIT_LEASE_SEED"); only != "" && only != fmt.Sprint(h.seed) {
		h.steps = 60
		return
	}
	for range 40 + h.random.IntN(40) {
		h.act()
	}
	h.verify()
	if h.t.Failed() {
		return
	}
	for _, m := range h.machines {
		_ = m.Close()
	}
	h.pass(3 * leased)
	probe := core.MustNew(h.driven, "lease", h.limit(historyCount), core.FailClosed())
	_, err := probe.Peek(context.Background(), "k")
	h.pass(3 * historyPeriod)
	res, err2 := probe.Peek(context.Background(), "k")
	if err != nil || err2 != nil || res.Remaining != historyCount {
		h.t.Errorf("seed %d: long after the end: %+v, %v, %v", h.seed, res, err, err2)
	}
}

func (h *history) verify() {
	all := spends.History{Resets: h.resets, Debts: h.debts, Opened: h.opened}
	for _, s := range h.spent {
		all.Spends = append(all.Spends, s.Spend)
	}
	for _, s := range h.spent {
		known := all
		if s.res.Source == core.SourceLease { // what was charged beyond a hold since then concerns later admissions
			known.Debts = slices.DeleteFunc(slices.Clone(all.Debts), func(d spends.Debt) bool { return d.Step > s.admitted })
		}
		err := spends.JudgeAt(h.judge, known, s.Spend)
		if err == nil {
			continue
		}
		h.t.Errorf("seed %d: %v", h.seed, err)
		if os.Getenv("REDISLIMIT_LEASE_TRACE") != "" {
			h.t.Log(strings.Join(h.trace, "\n"))
			for _, o := range h.spent {
				if o.Step <= s.Step && o.Until > s.From-2*historyPeriod.Microseconds() {
					h.t.Logf("%+v by %d, reserved %v, done %v, crossed %v, %v", o.Spend, o.by, o.reserved, o.done, o.crossed, o.res.Source)
				}
			}
			h.t.Logf("%+v, resets %v", h.debts, h.resets)
		}
		return
	}
}

// act has something happen.
func (h *history) act() {
	h.depth++
	defer func() { h.depth-- }()
	h.steps++
	m := h.machines[h.random.IntN(len(h.machines))]
	switch what := h.random.IntN(100); {
	case what < 48:
		for range 1 + h.random.IntN(8) {
			m.ask(int64(1+h.random.IntN(4)/3), false)
			h.pass(time.Duration(h.random.Int64N(int64(leased / 50))))
		}
	case what < 56:
		m.ask(int64(1+h.random.IntN(3)), true)
	case what < 64:
		m.settleOne()
	case what < 67:
		m.refundOne()
	case what < 69:
		h.sayf("%d: reset", m.id)
		_ = m.Reset(context.Background(), "k")
	case what < 72:
		h.sayf("%d: closes old leases", m.id)
		closeOldLeases(m.Limiter)
	case what < 75:
		most := []time.Duration{leased, time.Hour}[h.random.IntN(2)]
		m.setBy += time.Duration(h.random.Int64N(int64(2*most))) - most
	case what < 77:
		h.back()
	case what < 79:
		h.sayf("%d: dies, with %d leases", m.id, openLeases(m.Limiter))
		h.gone += openLeases(m.Limiter)
		abandonLeases(m.Limiter)
		h.machines[m.id] = h.boot(m.id)
	case what < 80:
		h.sayf("the limit is raised")
		h.count = historyCount
	case what < 90:
		h.pass(time.Duration(h.random.Int64N(int64(leased))))
	case what < 92:
		h.pass(time.Duration(h.random.Int64N(int64(historyPeriod))))
	default:
		h.pass(time.Duration(h.random.Int64N(int64(leased / 10))))
	}
}

// ask asks for units, and notes them if they were admitted.
func (m *machine) ask(n int64, reserve bool) {
	h := m.h
	x := &execution{}
	ctx := context.WithValue(context.Background(), executionKey{}, x)
	begun := h.instant()
	lim, err := m.With(h.limit(h.count))
	if err != nil {
		h.t.Fatal(err)
	}
	decide := lim.AllowN
	if reserve {
		decide = lim.Reserve
	}
	res, err := decide(ctx, "k", n)
	lease := latestLease(lim, "k")
	if _, known := m.granted[lease]; !known {
		m.granted[lease] = x.step
	}
	var down lostError
	switch {
	case errors.As(err, &down):
		return
	case err != nil:
		h.t.Fatalf("seed %d: %v", h.seed, err)
	case !res.Allowed:
		h.sayf("%d: denied %d", m.id, n)
		return
	}
	s := &spend{Spend: spends.Spend{Units: n}, by: m.id, res: res, reserved: reserve}
	s.expiry = expiryOf(res)
	s.admitted = m.granted[lease]
	switch res.Source {
	case core.SourceLease:
		h.leased++
		s.Step, s.From = h.next(), h.instant()
		x.clock = h.driven.Now().UnixMicro()
		if s.From != begun {
			h.t.Fatalf("seed %d: a decision from a lease took time", h.seed)
		}
	default:
		h.asked++
		s.Step, s.From = x.step, x.at
		if !reserve {
			s.Charged = s.Step
		}
	}
	s.Until = s.From
	if reserve { // it may be spent until what is held expires, which may be over when the reply comes
		s.Until = s.From + s.expiry - x.clock
		s.crossed = s.expiry <= h.driven.Now().UnixMicro()
	}
	h.sayf("%d: %v admits %d, reserved %v, held until %d, remaining %d", m.id, res.Source, n, reserve, s.expiry, res.Remaining)
	h.spent = append(h.spent, s)
	m.results = append(m.results, s)
}

func (m *machine) pick(reserved bool) *spend {
	var all []*spend
	for _, s := range m.results {
		if s.reserved == reserved && !s.done {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[m.h.random.IntN(len(all))]
}

func (m *machine) settleOne() {
	s, h := m.pick(true), m.h
	if s == nil {
		return
	}
	s.done = true
	actual := s.Units + int64(h.random.IntN(3)) - 1
	x := &execution{settles: true}
	if !s.crossed {
		s.Until = h.instant() // the work has ended
		s.Units = min(s.Units, actual)
	}
	n := costOf(s.res)
	err := m.Settle(context.WithValue(context.Background(), executionKey{}, x), s.res, actual)
	h.sayf("%d: settles %d of %d, %v", m.id, actual, n, err)
	if x.step == 0 {
		return // in its lease, or lost
	}
	if actual > n {
		h.debts = append(h.debts, spends.Debt{Units: actual - n, Step: x.step, At: x.at})
	}
	if s.Charged == 0 {
		s.Charged = x.step
	}
}

func (m *machine) refundOne() {
	if s := m.pick(false); s != nil {
		s.done = true
		m.h.sayf("%d: refunds %d of step %d", m.id, s.Units, s.Step)
		s.Units = 0
		_ = m.Refund(context.Background(), s.res)
	}
}
