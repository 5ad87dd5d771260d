package conformance

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
	"github.com/redislimit/redislimit/internal/testkit/spends"
)

// Properties compares every field of every Result with the exact model, over random
// sequences of steps of the clock, costs, reservations, settlements, peeks, refunds,
// resets, evictions and changed limits, for each algorithm and for several limits
// together. What was admitted is also judged by itself, as [spends] does. Each sequence
// is a subtest that is named by its seed, and so can be repeated. Each algorithm has so
// many runs: see [Runs].
func Properties(t *testing.T, open Opener, runs int) {
	t.Helper()
	families := []string{"several", queueFamily, nameFamily}
	for _, v := range limits.All() {
		families = append(families, v.Name)
	}
	for _, family := range families {
		runs := runs
		switch family {
		case queueFamily:
			runs = (runs + 1) / 2 // they are longer
		case nameFamily:
			runs *= 4 // there are many pairs of limits
		}
		t.Run(family, func(t *testing.T) {
			for seed := range uint64(runs) {
				if int(seed) == runs-1 { // and one that has found something
					seed = max(seed, found[family])
				}
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					open(t, func(t *testing.T, s Store) { sequence(t, s, seed, family) })
				})
			}
		})
	}
}

// Runs is how many histories there are of each algorithm: 60, or REDISLIMIT_PROPERTY_RUNS. A store that runs the scripts
// that another one runs, too, has a quarter of them.
func Runs(t *testing.T) int {
	t.Helper()
	s := os.Getenv("REDISLIMIT_PROPERTY_RUNS")
	if s == "" {
		return 60
	}
	runs, err := strconv.Atoi(s)
	check.Need(t, err)
	return runs
}

// found has seeds that have found something, and are beyond the usual number of runs: one of each family. That of the
// leaky bucket cancels what was acquired after a change of rate, where the debt was rounded up to a whole microsecond.
var found = map[string]uint64{"leaky_bucket": 112}

// A trial is one random sequence.
type trial struct {
	*rand.Rand
	store     Store
	name      string // of its Limiter
	specs     []spec
	lim       *core.Limiter
	model     *model.Model
	now       int64
	latest    int64 // that the clock has shown
	whole     int64 // when a limit was whole, after something was reserved, settled, taken back or reset
	last      core.Result
	charged   []charge           // what can be refunded
	held      []charge           // what can be settled, too
	changed   bool               // a bucket's rate was changed
	most      int64              // the largest capacity that there has been
	earlier   map[int][]int64    // the periods that a limit had
	slowest   *big.Rat           // the longest time of a unit of a bucket that there has been: who ends a hold of then charges at that
	excess    int64              // what was settled beyond what was reserved, in all
	judges    []*spends.Recorder // one for each limit; none when limits have changed, or state was lost
	names     *names             // of a limit that becomes any other of its name; else nil
	rewritten bool               // something was reserved, settled, taken back or reset
	busy      bool               // a queue from which many leave; see queue.go
	served    []turn             // of the calls that have not left, if the limits are one queue
	back      bool               // the clock has stepped back
	forward   bool               // the clock may not step back: a key that has another name now expires unseen
	refunded  bool               // a charge was refunded
	bans      []int64            // as given to Ban, or nil
	trace     []string
}

// A charge is what was charged or reserved.
type charge struct {
	grant

	want      model.Outcome
	spend     int // its number in the judges
	judges    []*spends.Recorder
	limits    []model.Limit
	forgotten bool // Redis need not know any more that what was held has expired
	turn      turn
}

// holds reports whether what was reserved of limit i is held, and not charged.
func (c *charge) holds(i int) bool { return c.limits[i].Algorithm != model.LeakyBucket }

// A spec is one limit, in a form that can be changed.
type spec struct {
	kind                 string
	count, period, burst int64
	hold                 int64  // of all limits of a Limiter; 0: the default
	shortest             int64  // the shortest time in which it has come back whole
	unnamed              bool   // its key contains the period, which then cannot change
	zone, unit           string // of windows of a calendar; none: they are as long as the period
}

func sequence(t *testing.T, s Store, seed uint64, family string) {
	tr := &trial{Rand: rand.New(rand.NewPCG(seed, 1)), store: s, name: "property"}
	algorithms := []string{family}
	if family == "several" {
		algorithms = nil
		all := limits.All()
		for range 2 + tr.IntN(2) {
			algorithms = append(algorithms, all[tr.IntN(len(all))].Name)
		}
	}
	steps := 60
	switch {
	case family == queueFamily:
		tr.busy, algorithms, steps = true, []string{"leaky_bucket"}, 120
	case family == nameFamily:
		tr.names, algorithms, steps = newNames(tr), []string{"token_bucket"}, 90 // in memory all have the Hold of the first
	case seed%4 == 3:
		tr.bans, steps = tr.levels(), 150
	}
	tr.begin(t, algorithms, seed%2 == 1 && family != nameFamily)
	end := tr.now + (50 * 365 * 24 * time.Hour).Microseconds()
	for range steps {
		if tr.now > end || !tr.step(t) || t.Failed() {
			break
		}
	}
	if s.Redis != nil && !t.Failed() {
		for _, key := range s.keys(t) {
			if ttl := s.Redis.PTTL(t.Context(), key).Val(); ttl == -1 {
				t.Errorf("%s never expires", key)
			}
		}
		tr.notef("everything held expires, and a reset")
		s.Advance(3*time.Hour + micros(max(tr.latest, tr.now)-tr.now))
		tr.reset(t)
		tr.unblock(t)
		if !tr.forward { // else what is stored of an earlier form stays until it expires
			s.unstored(t)
		}
	}
	if t.Failed() {
		t.Logf("seed %d:", seed)
		for _, line := range tr.trace {
			t.Log(line)
		}
	}
}

// begin makes the Limiter, of these algorithms, and the model.
func (tr *trial) begin(t *testing.T, algorithms []string, unnamed bool) {
	t.Helper()
	hold := tr.hold()
	tr.earlier = map[int][]int64{}
	for _, kind := range algorithms {
		next := tr.spec(kind)
		next.hold, next.shortest = hold, next.window()
		tr.specs = append(tr.specs, next)
	}
	tr.specs[0].unnamed = len(tr.specs) == 1 && unnamed
	tr.remake(t)
	tr.now = peek(t, tr.lim, "k").At.UnixMicro()
	tr.latest = tr.now
	for _, s := range tr.specs {
		tr.judges = append(tr.judges, spends.NewRecorder(s.judge(), tr.now))
	}
}

// step does one random thing. It reports whether the sequence goes on.
func (tr *trial) step(t *testing.T) bool {
	tr.advance()
	tr.forget()
	ok := tr.act(t)
	tr.check(t)
	return ok
}

// check judges what was admitted so far.
func (tr *trial) check(t *testing.T) {
	t.Helper()
	tr.forget()
	for i, j := range tr.judges {
		if start, end, opened := tr.model.Window(i); opened {
			j.Open(spends.Window{Start: start, End: end})
		}
		if err := j.Judge(); err != nil {
			t.Errorf("limit %d: more was admitted than may be spent: %v", i, err)
		}
	}
}

func (tr *trial) act(t *testing.T) bool {
	if tr.busy {
		return tr.actInQueue(t)
	}
	if tr.bans != nil && tr.IntN(24) == 0 {
		tr.block(t)
		return true
	}
	switch p := tr.IntN(24); {
	case p < 3:
		return tr.allow(t)
	case p < 7:
		return tr.acquire(t)
	case p < 12:
		return tr.reserve(t)
	case p < 15:
		tr.notef("peek")
		same := tr.compare(t, peek(t, tr.lim, "k"), tr.model.Peek(tr.now))
		if tr.IntN(2) == 0 {
			tr.glance(t)
		}
		return same
	case p < 19 && len(tr.held) > 0:
		tr.settle(t)
	case p < 21 && len(tr.charged)+len(tr.held) > 0:
		tr.cancel(t)
	case p < 22:
		tr.reset(t)
	case p < 23 && tr.store.Redis != nil && tr.IntN(3) == 0:
		tr.lose(t)
	case tr.bans == nil: // what is rounded then would be in the end of a ban
		tr.change(t)
	}
	return true
}

// allow charges what cannot be given back.
func (tr *trial) allow(t *testing.T) bool {
	n := tr.cost()
	tr.notef("allow %d", n)
	tr.last = allowN(t, tr.lim, "k", n)
	if tr.last.Allowed && n > 0 {
		tr.judge(tr.last, func(j *spends.Recorder, _ int, at int64) { j.Allow(at, n) })
	}
	return tr.compare(t, tr.last, tr.model.Decide(tr.now, n))
}

// acquire charges what can be given back.
func (tr *trial) acquire(t *testing.T) bool {
	n := tr.cost()
	tr.notef("acquire %d", n)
	c := charge{grant: acquire(t, tr.lim, "k", n), want: tr.model.Decide(tr.now, n), judges: tr.judges, limits: tr.limits()}
	tr.last = c.Result
	if c.Allowed && n > 0 {
		tr.judge(c.Result, func(j *spends.Recorder, _ int, at int64) { c.spend = j.Allow(at, n) })
		c.turn = tr.serve(t, c.Result, n)
		if c.want.Allowed {
			tr.charged = append(tr.charged, c)
		}
	}
	return tr.compare(t, c.Result, c.want)
}

// glance makes limits with other numbers look at the key and deny: this changes nothing. Expired holds have
// been charged.
func (tr *trial) glance(t *testing.T) {
	var others []core.Limit
	for i, s := range tr.specs {
		next := tr.spec(s.kind)
		if next.unnamed = s.unnamed; s.unnamed || s.model().Burst == 0 { // limits of another key would find nothing
			next.period = s.period
		}
		next.zone, next.unit = s.zone, s.unit
		limit, ok := next.limit(i)
		if !ok {
			return
		}
		others = append(others, limit)
	}
	tr.notef("others look")
	lim := with(t, tr.lim, others...)
	peek(t, lim, "k")
	if res := allowN(t, lim, "k", math.MaxInt64); res.Allowed {
		t.Errorf("others: %+v", res)
	}
}

func (tr *trial) reserve(t *testing.T) bool {
	n := tr.cost()
	tr.rewritten = true
	tr.notef("reserve %d as #%d", n, len(tr.held))
	c := charge{grant: reserve(t, tr.lim, "k", n), want: tr.model.Reserve(tr.now, n), judges: tr.judges, limits: tr.limits()}
	tr.last = c.Result
	if c.Allowed {
		tr.judge(c.Result, func(j *spends.Recorder, i int, at int64) {
			if tr.specs[i].queues() {
				c.spend = j.Allow(at, n)
			} else {
				c.spend = j.Reserve(at, tr.specs[i].model().Expiry(tr.now), n)
			}
		})
		if c.want.Allowed {
			tr.held = append(tr.held, c)
		}
	}
	return tr.compare(t, c.Result, c.want)
}

// settle settles a reservation for a cost of 0, for all reserved units, for fewer or for more.
func (tr *trial) settle(t *testing.T) {
	i := tr.IntN(len(tr.held))
	c := tr.held[i]
	actual := int64(0)
	switch tr.IntN(5) {
	case 0, 1:
		actual = c.n
	case 2:
		actual = tr.Int64N(c.n + 1)
	case 3:
		more := tr.Int64N(c.n + 2)
		if actual = c.n; actual+more <= 1e9 && tr.fits(tr.excess+more) {
			tr.excess += more
			actual += more
		}
	}
	tr.notef("settle #%d, of %d, at %d", i, c.n, actual)
	tr.held = slices.Delete(tr.held, i, i+1)
	tr.settled(c, actual)
	settle(t, c.grant, actual)
	if c.n > 0 || actual > 0 { // else nothing is sent, and what has expired waits
		tr.model.Settle(tr.now, c.want, actual)
	}
	if tr.IntN(4) == 0 {
		settle(t, c.grant, c.n-actual/2) // does nothing
	}
}

// settled tells the judges what something has cost.
func (tr *trial) settled(c charge, actual int64) {
	for i, j := range c.judges {
		switch {
		case c.reserved && c.holds(i):
			j.Settle(c.spend, actual, tr.model.ClockOf(i, c.limits[i], tr.now))
		case actual == 0:
			j.Refund(c.spend)
		}
	}
}

// cancel gives back what was charged or reserved.
func (tr *trial) cancel(t *testing.T) {
	tr.rewritten, tr.refunded = true, true
	if tr.back {
		tr.judges = nil // a refund is conservative only while the clock goes on
	}
	from, i := &tr.charged, tr.IntN(len(tr.charged)+len(tr.held))
	if i >= len(tr.charged) {
		from, i = &tr.held, i-len(tr.charged)
	}
	c := (*from)[i]
	*from = slices.Delete(*from, i, i+1)
	tr.notef("cancel #%d, of %d at %s, reserved: %v", i, c.n, c.At.UTC(), c.reserved)
	tr.leave(c.turn)
	tr.settled(c, 0)
	cancel(t, c.grant)
	if c.n > 0 {
		tr.model.Refund(tr.now, c.want)
	}
}

func (tr *trial) reset(t *testing.T) {
	tr.rewritten = true
	tr.notef("reset")
	check.OK(t, tr.lim.Reset(t.Context(), "k"))
	tr.model.Reset(tr.now)
	tr.served = nil
	tr.forgetNow()
	for _, j := range tr.judges {
		j.Reset()
	}
}

// forgetNow drops what was charged or reserved in this very microsecond, or just before: a charge is
// known by its instant, or in a log by one of the next numbers, and could be taken for one that comes
// after a reset.
func (tr *trial) forgetNow() {
	now := func(c charge) bool { return c.At.UnixMicro()+60 >= tr.now }
	tr.charged, tr.held = slices.DeleteFunc(tr.charged, now), slices.DeleteFunc(tr.held, now)
}

// lose evicts the key of one limit.
func (tr *trial) lose(t *testing.T) {
	i := tr.IntN(len(tr.specs))
	for _, key := range tr.store.keys(t) {
		if !strings.HasPrefix(key, "rl:"+tr.name+":") {
			continue
		}
		if strings.HasSuffix(key, ":~ban") {
			tr.notef("the ban is lost")
			tr.store.Redis.Del(t.Context(), key)
			tr.model.Unblock()
			continue
		}
		if len(tr.specs) > 1 && !strings.Contains(key, ":limit"+strconv.Itoa(i)+"~") {
			continue
		}
		tr.notef("%s is lost", key)
		tr.store.Redis.Del(t.Context(), key)
		tr.model.Lose(i)
		tr.judges, tr.served = nil, nil
	}
	tr.forgetNow()
}

// forget drops what has expired if its limit has been whole since, and the clock has then
// stepped back before the expiry: Redis no longer knows that it was charged.
func (tr *trial) forget() {
	tr.latest = max(tr.latest, tr.now)
	for i := range tr.specs {
		if tr.rewritten && tr.model.Whole(i, tr.now) {
			tr.whole = tr.now
		}
	}
	for k := range tr.held {
		c := &tr.held[k]
		for i, s := range tr.specs {
			if c.n > 0 && c.holds(i) && c.want.Expiry(i) <= tr.latest {
				c.forgotten = c.forgotten || c.want.WholeOf(i, tr.now) || c.want.Expiry(i)+s.shortest-1 <= tr.latest
			}
		}
	}
	tr.held = slices.DeleteFunc(tr.held, func(c charge) bool {
		for i := range tr.specs {
			if c.forgotten && c.holds(i) && c.want.Expiry(i) > tr.now {
				return true
			}
		}
		return false
	})
}

// judge passes what was admitted to the judges, with the instant of each limit's decision.
func (tr *trial) judge(got core.Result, admitted func(j *spends.Recorder, i int, at int64)) {
	i := 0
	for each := range got.All() {
		if tr.judges != nil {
			admitted(tr.judges[i], i, each.At.UnixMicro())
		}
		i++
	}
}

// hold returns for how long a Limiter holds units, mostly by default.
func (tr *trial) hold() int64 {
	if tr.IntN(2) == 0 {
		return 0
	}
	return 10_000 + tr.upTo(3600_000_000-10_000)
}

// advance moves the clock: not at all, a little, far, back, or to an instant at which a
// decision changes.
func (tr *trial) advance() {
	d := tr.stride()
	tr.move(d)
	tr.store.Advance(micros(d))
}

// stride returns by how much to move it.
func (tr *trial) stride() int64 {
	s := tr.specs[tr.IntN(len(tr.specs))]
	unit := max(1, s.period/s.count)
	var d int64
	kind := tr.IntN(13)
	if tr.bans != nil && tr.IntN(4) == 0 {
		kind = 13
	}
	if tr.busy && kind > 3 && tr.IntN(8) > 0 {
		kind = []int{0, 3, 7}[kind%3] // mostly not at all, by a unit, or by a few
	}
	switch kind {
	case 0, 1:
	case 2:
		d = 1
	case 3:
		d = unit
	case 4, 5:
		if !tr.last.Allowed && tr.last.RetryAfter != core.Never {
			d = max(0, tr.last.RetryAfter.Microseconds()-tr.Int64N(2))
		}
	case 6:
		d = max(0, tr.last.ResetAfter.Microseconds()-tr.Int64N(2))
	case 7:
		d = tr.Int64N(unit*4 + 1)
	case 8:
		d = tr.Int64N(2*s.period + 1)
		if s.zone != "" { // to where its clock is put forward or back
			d = tr.Int64N(200 * 86_400_000_000)
		}
	case 9:
		d = -min(tr.goesBack(), tr.Int64N(s.period+1))
	case 10, 11:
		d = tr.Int64N(s.model().Expiry(0) + 1)
	case 12: // to an expiry, or just before it
		if len(tr.held) > 0 {
			c := tr.held[tr.IntN(len(tr.held))]
			if i := tr.IntN(len(tr.specs)); c.n > 0 && c.holds(i) {
				d = max(0, c.want.Expiry(i)-tr.now-tr.Int64N(2))
			}
		}
	case 13: // to the end of a ban, or when all is forgotten, or just before
		if until, forgotten := tr.model.BanEnds(); until > tr.now || tr.IntN(2) == 0 {
			d = max(0, until-tr.now-tr.Int64N(2))
		} else {
			d = max(0, forgotten-tr.now-tr.Int64N(2))
		}
	}
	return d
}

// move takes that the clock is moved by d.
func (tr *trial) move(d int64) {
	if d < 0 {
		if tr.refunded {
			tr.judges = nil
		}
		tr.back, tr.served = true, nil
	}
	for i, j := range tr.judges {
		j.Next(d, func(t int64) int64 { return tr.model.Clock(i, t) })
	}
	if tr.names != nil {
		tr.names.move(d)
	}
	tr.now += d
	if d != 0 {
		tr.notef("clock %+d", d)
	}
}

// goesBack returns how far the clock can step back. What is stored of a limit that is
// whole again is gone once something has been reserved, settled or taken back, so that a
// step back past that would find more left than the model has.
func (tr *trial) goesBack() int64 {
	if tr.store.Redis == nil || tr.store.ForgetsByClock || tr.forward {
		return 0
	}
	until, _ := tr.model.BanEnds()
	return max(0, min(tr.now-tr.whole, tr.now+(400*24*time.Hour).Microseconds()-until)) // further ahead a ban is foreign
}

// cost returns a random cost: mostly one that can be admitted, often what remains.
func (tr *trial) cost() int64 {
	capacity := int64(math.MaxInt64)
	for _, s := range tr.specs {
		capacity = min(capacity, s.capacity())
	}
	if tr.busy && tr.IntN(8) > 0 {
		return 1 + tr.Int64N(3)*tr.Int64N(2)
	}
	switch tr.IntN(10) {
	case 0:
		return 0
	case 1:
		return capacity + 1
	case 2:
		return capacity
	case 3:
		return tr.last.Remaining
	case 4:
		return tr.last.Remaining + 1
	case 5:
		return 1 + tr.Int64N(capacity)
	}
	return 1 + tr.Int64N(min(capacity, max(1, capacity/8)))
}

// compare compares every field with the model. It reports whether the sequence can go
// on: after a changed limit, rounding may deny for one microsecond more than the model
// does, which is allowed, and the states then differ.
func (tr *trial) compare(t *testing.T, got core.Result, want model.Outcome) bool {
	t.Helper()
	if got.Allowed != want.Allowed || got.Banned != want.Banned {
		t.Errorf("Allowed %v, Banned %v, want %v, %v", got.Allowed, got.Banned, want.Allowed, want.Banned)
	}
	i := 0
	for each := range got.All() {
		tr.verdict(t, i, each, want.Each[i])
		i++
	}
	if i != len(want.Each) {
		t.Errorf("%d results, want %d", i, len(want.Each))
	}
	return true
}

func (tr *trial) verdict(t *testing.T, i int, got core.Result, want model.Verdict) {
	t.Helper()
	early, late := time.Duration(0), time.Duration(0)
	if tr.changed { // doubles are rounded up
		late = 4 * time.Microsecond
		if tr.model.Held(i) > 0 { // it is not charged, and takes what was rounded as many times as it is longer
			early = late + time.Duration(float64(late)*float64(max(ceil(want.RetryAfter), ceil(want.ResetAfter)))/float64(micros(tr.specs[i].window())))
		}
	}
	retry := ceil(want.RetryAfter)
	if want.Never {
		retry, late = core.Never, 0
	}
	off := func(got, want time.Duration) bool { return got < want-early || got-want > late }
	if got.Allowed != want.Admits || got.At.UnixMicro() != want.At || got.Limit != want.Limit ||
		got.Remaining != want.Remaining ||
		off(got.RetryAfter, retry) ||
		off(got.ResetAfter, ceil(want.ResetAfter)) || off(got.Delay, ceil(want.Delay)) {
		t.Errorf("limit %d: got %+v, want admits %v, t %d, limit %d, remaining %d, retry %v, reset %v, delay %v", i, got,
			want.Admits, want.At, want.Limit, want.Remaining, retry, ceil(want.ResetAfter), ceil(want.Delay))
	}
}

// change gives one limit another count, period or burst. A window of another period has another key.
func (tr *trial) change(t *testing.T) {
	if tr.names != nil {
		tr.names.change(t)
		return
	}
	i := tr.IntN(len(tr.specs))
	old := tr.specs[i]
	next := tr.spec(old.kind)
	next.unnamed, next.hold, next.zone, next.unit = old.unnamed, old.hold, old.zone, old.unit
	if old.unnamed || old.zone != "" || tr.IntN(3) == 0 {
		next.period = old.period
	} else if tr.IntN(2) == 0 {
		next.count, next.burst = old.count, old.burst
	}
	if earlier := tr.earlier[i]; len(earlier) > 0 && tr.IntN(2) == 0 {
		next.period = earlier[tr.IntN(len(earlier))]
	}
	next.shortest = min(next.window(), old.shortest)
	tr.specs[i] = next
	if _, ok := next.limit(i); !ok || !tr.fits(tr.excess) {
		tr.specs[i] = old
		return
	}
	tr.judges, tr.served = nil, nil
	if tr.store.ForgetsByClock { // what an old Limiter charges may be needed for longer
		tr.charged, tr.held = nil, nil
	}
	if old.burst == 0 && next.period != old.period {
		tr.earlier[i] = append(tr.earlier[i], old.period)
		tr.forward = true
	}
	if tr.store.Redis != nil && tr.IntN(4) == 0 {
		hold := tr.hold()
		for i := range tr.specs {
			tr.specs[i].hold = hold
		}
	}
	tr.changed = tr.changed || old.burst > 0
	tr.notef("change of limit %d", i)
	tr.remake(t)
}

// remake makes the Limiter of the present specs, and changes the model's limits to
// them.
func (tr *trial) remake(t *testing.T) {
	t.Helper()
	var opts []core.Option
	var of []core.Limit
	var limits []model.Limit
	for i, s := range tr.specs {
		tr.most, tr.slowest = max(tr.most, s.capacity()), tr.slower(s)
		limit, _ := s.limit(i)
		of, opts = append(of, limit), append(opts, limit)
		limits = append(limits, s.model())
		tr.notef("limit %d: %+v", i, s)
	}
	holds := slices.ContainsFunc(tr.specs, func(s spec) bool { return !s.queues() })
	if hold := tr.specs[0].hold; hold > 0 && holds {
		opts = append(opts, core.Hold(micros(hold)))
	}
	if tr.bans != nil {
		opts = append(opts, ban(tr.bans))
		tr.notef("bans %v", tr.bans)
	}
	if tr.lim == nil || tr.store.Redis != nil {
		tr.lim = tr.store.limiter(t, tr.name, opts...)
	} else { // in memory another Limiter would have keys of its own
		tr.lim = with(t, tr.lim, of...)
	}
	if tr.model == nil {
		tr.model = model.New(limits...)
		tr.model.Ban(tr.bans...)
		return
	}
	tr.model.Change(limits...)
}

// spec makes a limit anywhere within the bounds.
func (tr *trial) spec(kind string) spec {
	for {
		s := spec{kind: kind, count: tr.upTo(1e9), period: 1000 * tr.upTo((400 * 24 * time.Hour).Milliseconds())}
		if tr.IntN(2) == 0 {
			s.period += tr.Int64N(1000)
		}
		switch {
		case kind == "sliding_window_log":
			s.count = tr.upTo(100_000)
		case kind == "fixed_window_calendar" && tr.IntN(2) == 0:
			s.zone, s.unit = zones[tr.IntN(len(zones))], units[tr.IntN(len(units))]
			s.period = s.rate().Period().Microseconds()
		case tr.busy:
			s.count, s.burst = tr.upTo(1000), 2+tr.upTo(400)
		case limits.Named(kind).Kind.Debt:
			s.burst = tr.upTo(1e9)
			if tr.IntN(3) == 0 {
				s.burst = s.count
			}
		}
		if _, ok := s.limit(0); ok {
			return s
		}
	}
}

// upTo returns a number from 1 to most, of any magnitude as likely as any other.
func (tr *trial) upTo(most int64) int64 {
	return max(1, min(most, int64(math.Exp(tr.Float64()*math.Log(float64(most)+1)))))
}

// limit returns the limit, with i in its name, and whether it is within the bounds.
func (s spec) limit(i int) (core.Limit, bool) {
	settings := limits.Settings{Burst: s.burst}
	if !s.unnamed {
		settings.Name = "limit" + strconv.Itoa(i)
	}
	limit := limits.Named(s.kind).With(core.Per(s.count, micros(s.period)), settings)
	if s.zone != "" {
		limit = core.FixedWindow(s.rate(), core.In(s.zone))
		if !s.unnamed {
			limit = core.FixedWindow(s.rate(), core.LimitName(settings.Name), core.In(s.zone))
		}
	}
	return limit, limits.Accepts(limit)
}

// limits returns the present limits as the model knows them.
func (tr *trial) limits() []model.Limit {
	all := make([]model.Limit, len(tr.specs))
	for i, s := range tr.specs {
		all[i] = s.model()
	}
	return all
}

func (s spec) model() model.Limit {
	v := limits.Named(s.kind)
	return model.Limit{
		Algorithm: model.Algorithm(v.Kind.Name), Count: s.count, Period: s.period, Burst: s.burst, Aligned: v.Aligned,
		Zone: s.zone, Unit: s.unit, Hold: s.hold,
	}
}

// Not all days in these zones have 24 hours: some change at midnight, by half an hour, or at other times
// for weeks.
var (
	zones = []string{
		"Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "Africa/Cairo", "America/Havana", "Asia/Kathmandu",
		"Africa/Casablanca", "America/Santiago", "Pacific/Chatham", "America/Scoresbysund", "UTC",
	}
	units = []string{"day", "week", "month"}
)

// rate returns the rate of a calendar's windows.
func (s spec) rate() core.Rate {
	return map[string]func(int64) core.Rate{"day": core.PerDay, "week": core.PerWeek, "month": core.PerMonth}[s.unit](s.count)
}

// judge returns what may be spent, by the definition of the algorithm.
func (s spec) judge() spends.Limit {
	l := spends.Limit{Kind: s.model().Spends(), Count: s.count, Period: s.period, Capacity: s.capacity()}
	if s.zone != "" {
		l.Window = func(t int64) (start, end int64) { return model.Window(s.zone, s.unit, t) }
	}
	return l
}

// queues reports whether s holds nothing, and charges what is reserved.
func (s spec) queues() bool { return limits.Named(s.kind).Kind.Delays }

// window returns the time in which the whole capacity comes back.
func (s spec) window() int64 {
	if s.burst == 0 {
		return s.period
	}
	return ceil(new(big.Rat).Mul(big.NewRat(s.burst, 1), big.NewRat(s.period, s.count))).Microseconds()
}

// fits reports whether the limits' states can hold all that may be charged at once, if
// so much is settled beyond what was reserved: for more, what is charged is bounded.
func (tr *trial) fits(excess int64) bool {
	for _, s := range tr.specs {
		units := max(tr.most, s.capacity()) + excess
		years := new(big.Rat).Mul(big.NewRat(units, 1), tr.slower(s))
		if s.burst > 0 && years.Cmp(big.NewRat(3_000_000_000_000_000, 1)) > 0 || s.burst == 0 && units > 1<<30 {
			return false
		}
	}
	return true
}

// slower returns the slowest, or the time of a unit of s if that is longer.
func (tr *trial) slower(s spec) *big.Rat {
	unit := big.NewRat(s.period, s.count)
	if tr.slowest != nil && (s.burst == 0 || unit.Cmp(tr.slowest) < 0) {
		return tr.slowest
	}
	return unit
}

func (s spec) capacity() int64 {
	if s.burst > 0 {
		return s.burst
	}
	return s.count
}

func (tr *trial) notef(format string, args ...any) {
	tr.trace = append(tr.trace, fmt.Sprintf(format, args...))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// ceil rounds a time of the model up to the microsecond.
func ceil(r *big.Rat) time.Duration {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return micros(n.Div(n, r.Denom()).Int64())
}
