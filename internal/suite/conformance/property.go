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

// Properties compares every field of every Result with the exact model, over random histories of steps of the clock, costs,
// reservations, settlements, peeks, refunds, resets, evictions and changed limits, for each algorithm and for several
// limits together. In addition, package spends judges everything that was admitted. Each history is a subtest that is named
// by its seed, so that it can be repeated. Each algorithm has the number of histories given by runs: see [Runs].
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
			runs = (runs + 1) / 2 // each history is longer
		case nameFamily:
			runs *= 4 // there are many pairs of limits
		}
		t.Run(family, func(t *testing.T) {
			for seed := range uint64(runs) {
				if int(seed) == runs-1 { // the last history is one that has found a mistake before
					seed = max(seed, found[family])
				}
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					open(t, func(t *testing.T, s Store) { sequence(t, s, seed, family) })
				})
			}
		})
	}
}

// Runs returns how many histories each algorithm has: 60, or the value of REDISLIMIT_PROPERTY_RUNS. A store that runs the
// same scripts as another store has a quarter of them.
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

// found has for each family a seed that has found a mistake and is beyond the usual number of runs. The seed of the leaky
// bucket cancels a charge after a change of rate, which had rounded the debt up to a whole microsecond.
var found = map[string]uint64{"leaky_bucket": 112}

// A trial is one random history.
type trial struct {
	*rand.Rand
	store     Store
	name      string // the name of its Limiter
	specs     []spec
	lim       *core.Limiter
	model     *model.Model
	now       int64
	latest    int64 // the latest time that the clock has shown
	whole     int64 // the last time when a limit had all of its units, after something was reserved, settled, taken back or reset
	last      core.Result
	charged   []charge           // charges that can be refunded
	held      []charge           // reservations, which can be settled, too
	changed   bool               // a bucket's rate was changed
	most      int64              // the largest capacity that a limit has had
	earlier   map[int][]int64    // the earlier periods of each limit
	slowest   *big.Rat           // the longest time that a unit of a bucket has taken: a hold from that time is charged at that rate
	excess    int64              // how many units were settled beyond the reserved ones, in all
	judges    []*spends.Recorder // one for each limit; none after limits have changed or state was lost
	names     *names             // the forms of a limit that becomes any other of its name; else nil
	rewritten bool               // something was reserved, settled, taken back or reset
	busy      bool               // the limit is a queue that many callers leave; see queue.go
	served    []turn             // the turns of the calls that have not left, if the only limit is a queue
	back      bool               // the clock has stepped back
	forward   bool               // the clock may not step back: the key of an earlier form of a limit may expire unnoticed
	refunded  bool               // a charge was refunded
	bans      []int64            // the levels of Ban in microseconds, or nil
	trace     []string
}

// A charge holds the units that one call charged or reserved, with the outcome of the call in the model.
type charge struct {
	grant

	want      model.Outcome
	spend     int // the number by which the judges know it
	judges    []*spends.Recorder
	limits    []model.Limit
	forgotten bool // Redis may no longer know that the hold has expired
	turn      turn
}

// holds reports whether the reserved units of limit i are held. A queue charges them at once.
func (c *charge) holds(i int) bool { return c.limits[i].Algorithm != model.LeakyBucket }

// A spec describes one limit in a form that can be changed.
type spec struct {
	kind                 string
	count, period, burst int64
	hold                 int64  // the Hold of the Limiter, the same for all its limits; 0: the default
	shortest             int64  // the shortest time in which all units of this limit, or of an earlier form, come back
	unnamed              bool   // its key contains the period, which therefore cannot change
	zone, unit           string // the windows of a calendar; "": windows are as long as the period
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
		tr.names, algorithms, steps = newNames(tr), []string{"token_bucket"}, 90 // in memory every form has the Hold of the first
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
		if !tr.forward { // otherwise the keys of earlier forms of a limit stay until they expire
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

// begin makes the model, and a Limiter with a random limit of each of these algorithms.
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

// step takes one random action. It reports whether the history goes on.
func (tr *trial) step(t *testing.T) bool {
	tr.advance()
	tr.forget()
	ok := tr.act(t)
	tr.check(t)
	return ok
}

// check lets package spends judge what was admitted so far.
func (tr *trial) check(t *testing.T) {
	t.Helper()
	tr.forget()
	for i, j := range tr.judges {
		if start, end, opened := tr.model.Window(i); opened {
			j.Open(spends.Window{Start: start, End: end})
		}
		if err := j.Judge(); err != nil {
			t.Errorf("limit %d admitted more than may be spent: %v", i, err)
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
	case tr.bans == nil: // with bans, a change would round the end of a ban
		tr.change(t)
	}
	return true
}

// allow charges units that cannot be given back.
func (tr *trial) allow(t *testing.T) bool {
	n := tr.cost()
	tr.notef("allow %d", n)
	tr.last = allowN(t, tr.lim, "k", n)
	if tr.last.Allowed && n > 0 {
		tr.judge(tr.last, func(j *spends.Recorder, _ int, at int64) { j.Allow(at, n) })
	}
	return tr.compare(t, tr.last, tr.model.Decide(tr.now, n))
}

// acquire charges units that can be given back.
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

// glance makes limits with other numbers look at the key and deny a call, which changes nothing but that expired holds are
// charged.
func (tr *trial) glance(t *testing.T) {
	var others []core.Limit
	for i, s := range tr.specs {
		next := tr.spec(s.kind)
		if next.unnamed = s.unnamed; s.unnamed || s.model().Burst == 0 { // with another period the limit would have another key, and find nothing
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
		t.Errorf("a cost beyond every limit: got %+v, want a denial", res)
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

// settle settles a reservation at no units, at all reserved units, at fewer or at more.
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
	if c.n > 0 || actual > 0 { // otherwise nothing is sent, and expired holds are not charged yet
		tr.model.Settle(tr.now, c.want, actual)
	}
	if tr.IntN(4) == 0 {
		settle(t, c.grant, c.n-actual/2) // a second settlement does nothing
	}
}

// settled passes to the judges the final cost of a call.
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

// cancel gives back what a call charged or reserved.
func (tr *trial) cancel(t *testing.T) {
	tr.rewritten, tr.refunded = true, true
	if tr.back {
		tr.judges = nil // after a step back, a refund may give back more than the judges allow
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

// forgetNow drops the calls that charged or reserved in this very microsecond or just before. A charge is identified by its
// instant, or in a log by one of the next numbers, so it could be mistaken for a charge after a reset.
func (tr *trial) forgetNow() {
	now := func(c charge) bool { return c.At.UnixMicro()+60 >= tr.now }
	tr.charged, tr.held = slices.DeleteFunc(tr.charged, now), slices.DeleteFunc(tr.held, now)
}

// lose deletes the key of one limit, as an eviction does, and the ban.
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

// forget drops expired holds whose limit has had all of its units since, if the clock then stepped back before their
// expiry: Redis no longer knows that these holds were charged.
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

// judge passes an admission to the judge of each limit, with the instant of that limit's decision.
func (tr *trial) judge(got core.Result, admitted func(j *spends.Recorder, i int, at int64)) {
	i := 0
	for each := range got.All() {
		if tr.judges != nil {
			admitted(tr.judges[i], i, each.At.UnixMicro())
		}
		i++
	}
}

// hold returns a random TTL of holds, half of the time 0 for the default.
func (tr *trial) hold() int64 {
	if tr.IntN(2) == 0 {
		return 0
	}
	return 10_000 + tr.upTo(3600_000_000-10_000)
}

// advance moves the clock: not at all, a little, far, back, or to an instant at which a decision changes.
func (tr *trial) advance() {
	d := tr.stride()
	tr.move(d)
	tr.store.Advance(micros(d))
}

// stride returns by how much to move the clock.
func (tr *trial) stride() int64 {
	s := tr.specs[tr.IntN(len(tr.specs))]
	unit := max(1, s.period/s.count)
	var d int64
	kind := tr.IntN(13)
	if tr.bans != nil && tr.IntN(4) == 0 {
		kind = 13
	}
	if tr.busy && kind > 3 && tr.IntN(8) > 0 {
		kind = []int{0, 3, 7}[kind%3] // mostly not at all, by the time of one unit, or of a few
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
		if s.zone != "" { // far enough to reach a change of daylight saving time
			d = tr.Int64N(200 * 86_400_000_000)
		}
	case 9:
		d = -min(tr.goesBack(), tr.Int64N(s.period+1))
	case 10, 11:
		d = tr.Int64N(s.model().Expiry(0) + 1)
	case 12: // to the expiry of a hold, or just before it
		if len(tr.held) > 0 {
			c := tr.held[tr.IntN(len(tr.held))]
			if i := tr.IntN(len(tr.specs)); c.n > 0 && c.holds(i) {
				d = max(0, c.want.Expiry(i)-tr.now-tr.Int64N(2))
			}
		}
	case 13: // to the end of a ban, to when its level is forgotten, or just before
		if until, forgotten := tr.model.BanEnds(); until > tr.now || tr.IntN(2) == 0 {
			d = max(0, until-tr.now-tr.Int64N(2))
		} else {
			d = max(0, forgotten-tr.now-tr.Int64N(2))
		}
	}
	return d
}

// move moves the clock of the trial and of its judges by d. The caller moves the clock of the store.
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

// goesBack returns how far the clock can step back. After something was reserved, settled, taken back or reset, the stored
// state of a limit that has all of its units again is deleted. A step back past that instant would find more units than the
// model has.
func (tr *trial) goesBack() int64 {
	if tr.store.Redis == nil || tr.store.ForgetsByClock || tr.forward {
		return 0
	}
	until, _ := tr.model.BanEnds()
	return max(0, min(tr.now-tr.whole, tr.now+(400*24*time.Hour).Microseconds()-until)) // a ban that ends further ahead than 400 days counts as a foreign value
}

// cost returns a random cost: mostly one that can be admitted, often exactly what remains.
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

// compare compares every field of every limit's Result with the model. It reports whether the history can go on.
func (tr *trial) compare(t *testing.T, got core.Result, want model.Outcome) bool {
	t.Helper()
	if got.Allowed != want.Allowed || got.Banned != want.Banned {
		t.Errorf("got Allowed %v and Banned %v, want %v and %v", got.Allowed, got.Banned, want.Allowed, want.Banned)
	}
	i := 0
	for each := range got.All() {
		tr.verdict(t, i, each, want.Each[i])
		i++
	}
	if i != len(want.Each) {
		t.Errorf("got the results of %d limits, want %d", i, len(want.Each))
	}
	return true
}

// verdict compares the Result of limit i with the model. After a change of rate, the library may round times up by a few
// microseconds.
func (tr *trial) verdict(t *testing.T, i int, got core.Result, want model.Verdict) {
	t.Helper()
	early, late := time.Duration(0), time.Duration(0)
	if tr.changed { // Lua computes with doubles, and rounds up
		late = 4 * time.Microsecond
		if tr.model.Held(i) > 0 { // held units are not charged yet: the rounding counts once for each window that the time spans
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
		t.Errorf("limit %d: got %+v, want allowed %v, at %d, limit %d, remaining %d, retry %v, reset %v, delay %v", i, got,
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
	if tr.store.ForgetsByClock { // charges of the old Limiter may be stored for longer than the new one needs
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

// remake makes a Limiter of the present specs, and changes the model's limits to them.
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
	} else { // in memory a new Limiter would have keys of its own
		tr.lim = with(t, tr.lim, of...)
	}
	if tr.model == nil {
		tr.model = model.New(limits...)
		tr.model.Ban(tr.bans...)
		return
	}
	tr.model.Change(limits...)
}

// spec returns a random limit of an algorithm, anywhere within the bounds that the library accepts.
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

// upTo returns a random number from 1 to most. Every order of magnitude is equally likely.
func (tr *trial) upTo(most int64) int64 {
	return max(1, min(most, int64(math.Exp(tr.Float64()*math.Log(float64(most)+1)))))
}

// limit returns the limit, with i in its name, and whether the library accepts its numbers.
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

// limits returns the present limits in the form of the model.
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

// Not all days in these zones have 24 hours. In some zones clocks change at midnight, by half an hour, or for a few weeks at
// another time of the year.
var (
	zones = []string{
		"Europe/Berlin", "Australia/Lord_Howe", "Asia/Beirut", "Africa/Cairo", "America/Havana", "Asia/Kathmandu",
		"Africa/Casablanca", "America/Santiago", "Pacific/Chatham", "America/Scoresbysund", "UTC",
	}
	units = []string{"day", "week", "month"}
)

// rate returns the rate of a limit with windows of a calendar.
func (s spec) rate() core.Rate {
	return map[string]func(int64) core.Rate{"day": core.PerDay, "week": core.PerWeek, "month": core.PerMonth}[s.unit](s.count)
}

// judge returns what may be spent by the definition of the algorithm.
func (s spec) judge() spends.Limit {
	l := spends.Limit{Kind: s.model().Spends(), Count: s.count, Period: s.period, Capacity: s.capacity()}
	if s.zone != "" {
		l.Window = func(t int64) (start, end int64) { return model.Window(s.zone, s.unit, t) }
	}
	return l
}

// queues reports whether the limit is a queue, which holds nothing and charges reserved units at once.
func (s spec) queues() bool { return limits.Named(s.kind).Kind.Delays }

// window returns the time in which the whole capacity comes back.
func (s spec) window() int64 {
	if s.burst == 0 {
		return s.period
	}
	return ceil(new(big.Rat).Mul(big.NewRat(s.burst, 1), big.NewRat(s.period, s.count))).Microseconds()
}

// fits reports whether the states of all limits can represent the units that may be charged at once, if excess units are
// settled beyond the reserved ones. Beyond this bound the library charges fewer units than were settled.
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

// slower returns the time of a unit of s, or tr.slowest if that is longer.
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

// ceil rounds a time of the model up to a whole microsecond.
func ceil(r *big.Rat) time.Duration {
	n := new(big.Int).Add(r.Num(), new(big.Int).Sub(r.Denom(), big.NewInt(1)))
	return micros(n.Div(n, r.Denom()).Int64())
}
