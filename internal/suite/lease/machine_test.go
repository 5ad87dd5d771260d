package lease_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// A machine is a process with clocks of its own and a bad network.
type machine struct {
	*core.Limiter
	coreaccess.Driver

	h       *history
	id      int
	count   int64 // the count of its limits: up to historyCount
	rate    float64
	setBy   time.Duration // by how much the wall clock was set
	slept   time.Duration // how long the machine was suspended, during which the monotonic clock stood
	wakes   time.Duration // when its suspension ends, as time since the beginning
	sleeps  bool          // it is sometimes suspended, and its wall clock is never set back
	results []*spend
	granted map[any]int   // the steps at which its leases were granted
	taken   map[int64]int // the step of the last lease by limits of each share
	running *execution    // the execution of the call that it makes
	renews  bool          // it renews: a Settle would wait until the renewal ends
}

// boot starts a machine with random clocks and limits.
func (h *history) boot(id int) *machine {
	m := &machine{h: h, id: id, granted: make(map[any]int), taken: make(map[int64]int), rate: 1 + (h.random.Float64()*2-1)*0.001, sleeps: h.random.IntN(2) == 0}
	m.change()
	if h.random.IntN(3) == 0 {
		m.rate = 1 - 0.001*float64(h.random.IntN(2)) // a slow clock is the dangerous one
	}
	wrong := time.Duration(h.random.Int64N(int64(historyPeriods[0]))) - historyPeriods[0]/2 // by its clock, it may be in another window
	clocks := inside.Core.Simulate(coreaccess.Simulation{
		Wall:         func() time.Time { return h.driven.Now().Add(wrong) },
		Leases:       func() (wall, mono time.Duration) { return m.wall(), m.mono() },
		HotDecisions: int64(2 + h.random.IntN(2)), LeaseShare: int64(1 + h.random.IntN(3)),
	})
	lim, err := core.New(m, "lease", limitOptions(h.with(m.count, 1), clocks, core.Lease(leased), core.FailClosed(),
		core.Timeout(time.Minute), core.DenyCache(0), core.Hold(2*leased), core.MaxBatch(1))...)
	check.Need(h.t, err)
	m.Limiter, m.Driver = lim, inside.Core.Driver(lim)
	return m
}

func (m *machine) wall() time.Duration { return m.clock(m.h.passed) + m.setBy }
func (m *machine) mono() time.Duration { return m.clock(m.h.passed - m.slept) }

// clock returns the time of a clock of the machine that has run for the given time.
func (m *machine) clock(passed time.Duration) time.Duration {
	return time.Hour + time.Duration(float64(passed)*m.rate)
}

func (m *machine) asleep() bool { return m.h.passed < m.wakes }

// suspend suspends the machine for a while, in which its monotonic clock stands: mostly while it has a lease.
func (m *machine) suspend() {
	if !m.sleeps || m.Open() == 0 && m.h.random.IntN(4) > 0 {
		return
	}
	d := leased/2 + time.Duration(m.h.random.Int64N(int64(leased)))
	m.h.happened("machine suspended")
	m.wakes = m.h.passed + d
	m.slept += d
	m.goesOn(d)
}

// goesOn makes other events happen for a while. After that, the machine makes requests.
func (m *machine) goesOn(d time.Duration) {
	h := m.h
	end := h.passed + d
	for h.depth < 3 && h.passed < end && h.random.IntN(4) > 0 {
		h.act()
	}
	h.pass(end - h.passed)
	for range 3 {
		if h.machines[m.id] == m && !m.asleep() {
			m.request(1, false)
		}
	}
}

// setWall sets the machine's wall clock to a random time.
func (m *machine) setWall() {
	by := time.Duration(m.h.random.Int64N(int64(2*time.Hour))) - time.Hour
	if m.h.random.IntN(4) > 0 {
		by = time.Duration(m.h.random.Int64N(int64(3*leased/2))) - leased
	}
	if m.sleeps {
		by = max(by, -by)
	}
	m.h.happened("wall clock set")
	m.setBy += by
	if m.Open() > 0 {
		m.goesOn(leased/2 + time.Duration(m.h.random.Int64N(int64(leased))))
	}
}

// change gives the machine limits of another rate and capacity than other machines have, as during the rollout of a new
// version.
func (m *machine) change() { m.count = historyCount >> m.h.random.IntN(3) }

// die ends the process, and starts another one.
func (m *machine) die() {
	h, leases := m.h, m.Open()
	if leases > 0 {
		h.happened("died with a lease")
	}
	h.machines[m.id] = h.boot(m.id)
}

// A spend is a number of units that one request was admitted to.
type spend struct {
	each     []eachSpend // for each limit
	by       int
	res      *permits.Any
	reserved bool
	admitted int  // the step at which it was admitted, or its lease was
	done     bool // settled or refunded
	inLease  bool // settled in its lease, which charges it when the lease ends
}

// An eachSpend is the part of a spend that concerns one limit.
type eachSpend struct {
	spends.Spend

	capacity int64 // the capacity by which it was admitted
	expiry   int64 // when the units held for it expire; 0 if none are held
	crossed  bool  // its hold has expired
}

// expired records which holds of s have expired at now, and reports whether all have.
func (s *spend) expired(h *history, now int64) bool {
	all := true
	for i := range s.each {
		e := &s.each[i]
		if e.crossed || e.expiry == 0 {
			continue
		}
		if e.expiry > now {
			all = false
			continue
		}
		e.crossed = true
		if s.reserved && !s.done {
			e.Until = h.instant(h.limits[i]) - (now - e.expiry)
		}
	}
	return all
}

// holdUntil records that the units of a reserved s are held until these expiries, since a step: the units may be spent
// until then.
func (s *spend) holdUntil(h *history, expiries []int64, since int) {
	now := h.driven.Now().UnixMicro()
	for i, expiry := range expiries {
		e := &s.each[i]
		e.expiry, e.crossed = expiry, expiry <= now
		e.Until = h.instant(h.limits[i]) + expiry - now
		if e.Charged == 0 && expiry > 0 {
			e.Charged = h.chargedAt(expiry, since)
		}
	}
}

// charge records that s was charged at a step.
func (s *spend) charge(step int) {
	for i := range s.each {
		if s.each[i].Charged == 0 {
			s.each[i].Charged = step
		}
	}
}

// is sets the number of units that s has spent.
func (s *spend) is(units int64) {
	for i := range s.each {
		s.each[i].Units = units
	}
}

// crossed reports whether a hold of s has expired.
func (s *spend) crossed() bool {
	for _, e := range s.each {
		if e.crossed {
			return true
		}
	}
	return false
}

// execute makes the machine send a call and returns what Redis did for it. The call either settles something or decides by
// limits of a share.
func (m *machine) execute(settled *spend, share int64, call func(ctx context.Context)) *execution {
	before := m.running
	x := &execution{settled: settled, share: share, at: make([]int64, len(m.h.limits))}
	m.running = x
	call(context.Background())
	m.running = before
	return x
}

// request requests n units. If they are admitted, it records and returns them; otherwise it returns nil.
func (m *machine) request(n int64, reserve bool) *spend {
	h := m.h
	begun, share := h.passed, int64(1)
	if h.random.IntN(5) == 0 {
		share = 3
		h.happened("other numbers by With")
	}
	of := h.with(m.count, share)
	lim, err := m.With(of...)
	check.Need(h.t, err)
	decide := permits.Acquire
	if reserve {
		decide = permits.Reserve
	}
	var res *permits.Any
	x := m.execute(nil, share, func(ctx context.Context) { res, err = decide(lim, ctx, "k", n) })
	lease := inside.Core.Driver(lim).Latest("k")
	if _, known := m.granted[lease]; !known {
		m.granted[lease] = m.taken[share]
	}
	if m.Open() > 1 {
		h.happened(twoLeases)
	}
	var down lostError
	switch {
	case errors.As(err, &down), err != nil && strings.Contains(err.Error(), "wrong by more than a window"): // the request arrived too late for its window
		return nil
	case err != nil:
		h.t.Fatalf("seed %d: a request failed: %v", h.seed, err)
	case !res.Allowed:
		h.happened("denied")
		return nil
	}
	s := &spend{by: m.id, res: res, reserved: reserve, each: make([]eachSpend, len(h.limits))}
	for i, l := range of {
		s.each[i].Units, s.each[i].capacity = n, l.Capacity()
	}
	for each := range res.All() {
		for i, l := range h.limits {
			if each.LimitName == l.name && each.Limit != s.each[i].capacity {
				h.t.Errorf("seed %d: a limit of %d decided, want one of %d", h.seed, each.Limit, s.each[i].capacity)
			}
		}
	}
	if n > 1 {
		h.happened("costs more than 1")
	}
	how := "admitted"
	if reserve {
		how = "reserved"
	}
	switch res.Source {
	case core.SourceLease:
		h.happened(how + " from a lease")
		s.admitted = m.granted[lease]
		if !x.sent && h.passed != begun {
			h.t.Fatalf("seed %d: a decision from a lease sent a call to Redis, want none", h.seed)
		}
		x.step, x.at = h.next(), h.instants()
	default:
		h.happened(map[bool]string{false: "admitted by Redis", true: "reserved in Redis"}[reserve])
		s.admitted = x.step
		if !reserve {
			s.charge(x.step)
		}
	}
	for i := range s.each {
		e := &s.each[i]
		e.Step, e.From, e.Until = x.step, x.at[i], x.at[i]
	}
	switch expiries, _ := inside.Core.Held(res.Permit, res.Reservation); {
	case reserve: // the units may be spent until their hold expires, which may be before the reply arrives
		s.holdUntil(h, expiries, x.step)
		if h.random.IntN(3) == 0 {
			res.Keep()
		}
	default:
		for i, expiry := range expiries {
			s.each[i].expiry = expiry
		}
	}
	h.spent = append(h.spent, s)
	h.pending = append(h.pending, s)
	m.results = append(m.results, s)
	return s
}

// pick returns a random spend of the machine that has not ended, or nil.
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

// settleOne settles s or, if s is nil, a random reservation of the machine.
func (m *machine) settleOne(s *spend) {
	h := m.h
	if s == nil {
		s = m.pick(true)
	}
	if s == nil || m.renews {
		return
	}
	s.done = true
	_, n := inside.Core.Held(s.res.Permit, s.res.Reservation)
	actual := n + int64(h.random.IntN(3)) - 1
	late := s.crossed()
	for i := range s.each {
		if e := &s.each[i]; !e.crossed {
			e.Until = h.instant(h.limits[i]) // the work has ended, so nothing is spent later
			e.Units = min(n, actual)
		}
	}
	var err error
	x := m.execute(s, 0, func(ctx context.Context) { err = s.res.Settle(ctx, actual) })
	switch {
	case x.step == 0 && err == nil:
		h.happened("settled in its lease")
		s.inLease = true
		return
	case x.step == 0: // the call was lost
		return
	case late:
		h.happened("settled after it was charged")
	}
	h.happened("settled in Redis")
	if actual > n {
		h.happened("settled at more than was reserved")
		for i, l := range h.limits {
			l.debts = append(l.debts, spends.Debt{Units: actual - n, Step: x.step, At: x.at[i]})
		}
	}
}

// renew renews the holds of all reservations that the machine keeps, and of its leases' reservations, and records the new
// expiries.
func (m *machine) renew() {
	if m.renews {
		return
	}
	m.renews = true
	before := m.h.step
	m.Renew()
	m.renews = false
	for _, s := range m.results {
		if !s.reserved || s.done {
			continue
		}
		expiries, _ := inside.Core.Held(s.res.Permit, s.res.Reservation)
		renewed := false
		for i, expiry := range expiries {
			renewed = renewed || expiry != s.each[i].expiry
		}
		if renewed {
			s.holdUntil(m.h, expiries, before)
			m.h.pending = append(m.h.pending, s)
			m.h.happened("renewed")
		}
	}
}

// refundOne cancels a random admitted request of the machine.
func (m *machine) refundOne() {
	s, h := m.pick(false), m.h
	if s == nil {
		return
	}
	s.done = true
	h.happened("refunded")
	if s.res.Source == core.SourceLease && s.each[0].Charged > 0 {
		h.happened("refunded after its lease")
	}
	s.is(0)
	_ = s.res.Cancel(context.Background())
}
