package conformance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// Together compares core.AllowAll over limiters of one server with the exact model, as [Properties] does for one limiter.
// In its random histories each key is also decided on alone, held, reset, evicted, banned, and overwritten with foreign
// values. Each decision is one command, and a denial changes nothing.
func Together(t *testing.T, open Opener, runs int) {
	t.Helper()
	for seed := range uint64(runs) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			open(t, func(t *testing.T, s Store) { together(t, s, seed) })
		})
	}
}

// A group is the trials of one history, which share the store and its clock.
type group struct {
	*rand.Rand
	store  Store
	trials []*trial
}

func together(t *testing.T, s Store, seed uint64) {
	g := &group{Rand: rand.New(rand.NewPCG(seed, 2)), store: s}
	all := slices.DeleteFunc(limits.All(), func(v limits.Variant) bool { return v.Kind.Delays })
	for i := range 2 + g.IntN(3) {
		tr := &trial{Rand: g.Rand, store: s, name: "member" + strconv.Itoa(i)}
		var algorithms []string
		for range 1 + g.IntN(2) {
			algorithms = append(algorithms, all[g.IntN(len(all))].Name)
		}
		if seed%3 == 2 && g.IntN(2) == 0 {
			tr.bans = tr.levels()
		}
		tr.begin(t, algorithms, true)
		g.trials = append(g.trials, tr)
	}
	s.findTogether(t)
	end := g.trials[0].now + (50 * 365 * 24 * time.Hour).Microseconds()
	for range 60 {
		if g.trials[0].now > end || !g.step(t) || t.Failed() {
			break
		}
	}
	if !t.Failed() {
		g.end(t)
	}
	if t.Failed() {
		for _, tr := range g.trials {
			t.Logf("%s:", tr.name)
			for _, line := range tr.trace {
				t.Log(line)
			}
		}
	}
}

// end lets every key expire, except for those that a reset deletes, and checks that nothing stays stored.
func (g *group) end(t *testing.T) {
	t.Helper()
	latest := int64(0)
	for _, key := range g.store.keys(t) {
		if g.store.Redis.PTTL(t.Context(), key).Val() == -1 {
			t.Errorf("%s never expires", key)
		}
	}
	for _, tr := range g.trials {
		latest = max(latest, tr.latest, tr.now)
	}
	g.store.Advance(3*time.Hour + micros(latest-g.trials[0].now))
	changed := false
	for _, tr := range g.trials {
		tr.reset(t)
		tr.unblock(t)
		changed = changed || tr.forward
	}
	if !changed { // otherwise the keys of earlier forms of a limit stay until they expire
		g.store.unstored(t)
	}
}

// step moves the clock and then makes one decision on several keys, or one action on one key. It reports whether the
// history goes on.
func (g *group) step(t *testing.T) bool {
	one := g.trials[g.IntN(len(g.trials))]
	d := one.stride()
	for _, tr := range g.trials {
		d = max(d, -tr.goesBack())
	}
	for _, tr := range g.trials {
		tr.move(d)
		tr.forget()
	}
	g.store.Advance(micros(d))
	var ok bool
	if g.IntN(3) == 0 {
		ok = one.act(t)
	} else {
		ok = g.all(t)
	}
	for _, tr := range g.trials {
		tr.check(t)
	}
	return ok
}

// all makes one decision on several of the keys at once. It reports whether the history goes on.
func (g *group) all(t *testing.T) bool {
	t.Helper()
	g.Shuffle(len(g.trials), func(i, j int) { g.trials[i], g.trials[j] = g.trials[j], g.trials[i] })
	trials := slices.Clone(g.trials[:2+g.IntN(len(g.trials)-1)])
	planted := g.IntN(8) == 0 && g.plant(t, trials)
	var keys []core.Keyed
	var costs []model.Keyed
	quiet := !planted // only a charge or a ban can change the stored values
	for _, tr := range trials {
		n := max(1, tr.cost())
		tr.notef("all, %d of %d", n, len(trials))
		keys, costs = append(keys, tr.lim.On("k").Cost(n)), append(costs, model.Keyed{Model: tr.model, N: n})
		for i := range tr.specs {
			quiet = quiet && tr.model.Held(i) == 0
		}
	}
	before, commands := g.store.snapshot(t), g.store.Commands()
	res, err := core.AllowAll(t.Context(), 1, keys...)
	check.Need(t, err)
	if sent := g.store.Commands() - commands; sent > 4 {
		t.Errorf("a decision took %d commands, want one; at most 4 if scripts are new, or if holds are found", sent)
	}
	want, allowed := model.All(trials[0].now, costs...)
	if !allowed && quiet {
		g.unchanged(t, before)
	}
	return compareAll(t, trials, costs, res, want, allowed)
}

// compareAll compares the Results of all limits, which are in the order of the keys, with the model. It reports whether the
// history goes on: it ends after a debt was rounded up.
func compareAll(t *testing.T, trials []*trial, costs []model.Keyed, res core.Result, want []model.Outcome, allowed bool) bool {
	t.Helper()
	results := slices.Collect(res.All())
	chosen := core.Result{}
	for _, each := range results {
		if each.Tighter(chosen) {
			chosen = each
		}
	}
	if res.LimiterName != chosen.LimiterName || res.LimitName != chosen.LimitName {
		t.Errorf("the Result describes limit %[2]s of %[1]s, want limit %[4]s of %[3]s", res.LimiterName, res.LimitName, chosen.LimiterName, chosen.LimitName)
	}
	rounded, off := false, false
	for i, tr := range trials {
		each := want[i].Each
		if len(each) > len(results) {
			t.Fatalf("the results of %d limits are missing", len(each)-len(results))
		}
		for k, got := range results[:len(each)] {
			rounded = rounded || tr.changed
			off = off || got.Allowed != each[k].Admits
			if rounded && off { // a debt was rounded up
				return false
			}
			tr.verdict(t, k, got, each[k])
			if got.LimiterName != tr.name || got.Banned != want[i].Banned {
				t.Errorf("got a Result of %s with Banned %v, want one of %s with Banned %v", got.LimiterName, got.Banned, tr.name, want[i].Banned)
			}
			if res.Allowed && tr.judges != nil {
				tr.judges[k].Allow(got.At.UnixMicro(), costs[i].N)
			}
		}
		if len(each) > 0 {
			tr.last = results[0]
		}
		results = results[len(each):]
	}
	if len(results) > 0 || res.Allowed != allowed {
		t.Errorf("got Allowed %v, want %v; %d more results than limits, want 0", res.Allowed, allowed, len(results))
	}
	return true
}

// plant overwrites one of the values that are about to be read with a foreign value, which must count as nothing stored. It
// reports whether it found such a value.
func (g *group) plant(t *testing.T, trials []*trial) bool {
	t.Helper()
	for _, tr := range trials {
		if until, _ := tr.model.BanEnds(); until > tr.now {
			return false // during a ban the script does not read the other values
		}
	}
	tr := trials[g.IntN(len(trials))]
	prefix := "rl:" + tr.name + ":{k}:"
	for _, key := range g.store.keys(t) {
		if name, its := strings.CutPrefix(key, prefix); !its || name == "~ban" || len(tr.specs) != 1 {
			continue
		}
		tr.notef("%s is planted", key)
		g.store.Redis.Del(t.Context(), key)
		switch g.IntN(3) {
		case 0:
			g.store.Redis.Set(t.Context(), key, "foreign", 0)
		case 1:
			g.store.Redis.RPush(t.Context(), key, "foreign")
		case 2:
			g.store.Redis.Set(t.Context(), key, "B1 |H1 7", 0)
		}
		tr.model.Lose(0)
		tr.judges, tr.served = nil, nil
		tr.forgetNow()
		return true
	}
	return false
}

// A stored is a value and the time until its key expires.
type stored struct {
	value string
	lasts time.Duration
}

// snapshot returns everything that is stored, except bans and foreign values.
func (s Store) snapshot(t *testing.T) map[string]stored {
	t.Helper()
	all, values := make(map[string]stored), s.dump(t)
	for i, key := range s.keys(t) {
		if !strings.HasSuffix(key, ":~ban") && values[i] != "[]" { // a denial replaces a foreign value by an empty one for a second
			all[key] = stored{values[i], s.Redis.PTTL(t.Context(), key).Val()}
		}
	}
	return all
}

// unchanged fails the test if something stored has changed since the snapshot.
func (g *group) unchanged(t *testing.T, before map[string]stored) {
	t.Helper()
	after := g.store.snapshot(t)
	for key, was := range before {
		if is := after[key]; is.value != was.value || is.lasts > was.lasts || is.lasts < was.lasts-time.Minute {
			t.Errorf("after a denial %s is %+v, want %+v as before", key, is, was)
		}
	}
	if len(after) > len(before) {
		t.Errorf("after a denial %v is stored, want no key more than %v", after, before)
	}
}

// findTogether makes decisions on two keys until the library has found out that one script may use the keys of several
// limiters.
func (s Store) findTogether(t *testing.T) {
	t.Helper()
	a, b := s.limiter(t, "first", core.FixedWindow(core.PerDay(1e6))), s.limiter(t, "second", core.FixedWindow(core.PerDay(1e6)))
	for i := range 1000 {
		before, key := s.Commands(), fmt.Sprint(i)
		if _, err := core.AllowAll(t.Context(), 1, a.On(key), b.On(key+"b")); err != nil {
			t.Fatal(err)
		}
		if s.Commands()-before == 1 {
			_, _ = a.Close(), b.Close() // the earlier calls are settled in the background
			s.Redis.FlushDB(t.Context())
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("after 1000 decisions on two keys none took only one command")
}

// inOneCommand decides on several keys, and checks that the decision took one command and admitted or denied as expected.
func (s Store) inOneCommand(t *testing.T, admits bool, keys ...core.Keyed) core.Result {
	t.Helper()
	for range 2 { // the first call may send the source of a new script in a further command
		if _, err := core.AllowAll(t.Context(), math.MaxInt64, keys...); err != nil {
			t.Fatal(err)
		}
	}
	before := s.Commands()
	res, err := core.AllowAll(t.Context(), 1, keys...)
	if err != nil || res.Allowed != admits {
		t.Errorf("got %+v, %v; want Allowed %v", res, err, admits)
	}
	if n := s.Commands() - before; n != 1 {
		t.Errorf("the decision took %d commands, want one", n)
	}
	return res
}

// TogetherMost decides on as many keys at once as one script may have, of the limits that take the most variables in the
// script, with bans. Then it decides on one key more, which takes several commands.
func TogetherMost(t *testing.T, s Store) {
	s.findTogether(t)
	for _, v := range limits.All() {
		for count, bans := range map[int]core.Option{algorithm.MaxLimits: core.Options(), algorithm.MaxLimits / 2: core.Ban(time.Hour)} {
			var keys []core.Keyed
			for i := range count {
				if !v.Kind.Delays {
					keys = append(keys, s.limiter(t, fmt.Sprintf("%s-%d-%d", v.Name, count, i), v.Limit(core.PerDay(10)), bans).On("k"))
				}
			}
			if keys != nil {
				s.inOneCommand(t, true, keys...)
			}
		}
	}
	var keys []core.Keyed
	var all []*core.Limiter
	for i := range 4 {
		lim := s.limiter(t, fmt.Sprint("most", i), core.TokenBucket(core.PerDay(10)), core.SlidingWindowLog(core.PerDay(10)), core.Ban(time.Hour))
		all, keys = append(all, lim), append(keys, lim.On("k"+fmt.Sprint(i)))
	}
	s.inOneCommand(t, true, keys...)
	held := reserve(t, all[3], "k3", 1)
	if !held.Allowed {
		t.Fatal(held.Result)
	}
	s.inOneCommand(t, true, keys...)
	one := s.limiter(t, "one-more", core.GCRA(core.PerDay(10)))
	if res, err := core.AllowAll(t.Context(), 1, append(keys, one.On("k"))...); err != nil || !res.Allowed {
		t.Errorf("with one key more: got %+v, %v; want it allowed", res, err)
	}
	settle(t, held, 0)
	for i, lim := range all {
		s.settled(t, 7, lim, fmt.Sprint("k", i))
	}
	s.settled(t, 9, one, "k")
	check.Eventually(t, "the hold is settled, and a denial bans", func() bool { return allowN(t, all[1], "k1", 8).Banned })
	if res := s.inOneCommand(t, false, keys...); !res.Banned || res.LimiterName != "most1" || res.RetryAfter != 24*time.Hour {
		t.Errorf("got %+v, want a denial by the ban of most1, with RetryAfter 24h", res)
	}
	var banned []core.Keyed // other keys, because the process remembers which keys have had holds
	for i, lim := range all[:2] {
		check.OK(t, lim.Block(t.Context(), "b", time.Duration(i+1)*time.Hour))
		banned = append(banned, lim.On("b"))
	}
	res := s.inOneCommand(t, false, append(banned, all[2].On("b"))...)
	if n := len(slices.Collect(res.All())); n != 4 || res.LimiterName != "most1" || res.RetryAfter != 2*time.Hour {
		t.Errorf("with two bans: got %+v, with the results of %d limits; want the longer ban, of most1, and 4 limits", res, n)
	}
	s.settled(t, 7, all[3], "k3")
}

// settled waits until the settlements in the background are done and the wanted number of units remains.
func (s Store) settled(t *testing.T, want int64, lim *core.Limiter, key string) {
	t.Helper()
	check.Within(t, time.Minute, fmt.Sprintf("%d of %s remain", want, lim.Name()), func() bool { return peek(t, lim, key).Remaining == want })
}

// TogetherNumbers decides on one key by limits of two different numbers: the units of both are charged to it, one after the
// other.
func TogetherNumbers(t *testing.T, s Store) {
	s.findTogether(t)
	for _, v := range limits.Plain() {
		if v.Kind.Delays {
			continue
		}
		lim := s.limiter(t, v.Name, v.With(core.PerDay(10), limits.Settings{Name: "plan", Burst: 10}))
		less := with(t, lim, v.With(core.PerDay(9), limits.Settings{Name: "plan", Burst: 9}))
		if res, err := core.AllowAll(t.Context(), 2, lim.On("k"), less.On("k").Cost(3)); err != nil || !res.Allowed {
			t.Errorf("%s: got %+v, %v; want it allowed", v.Name, res, err)
		}
		s.Advance(10 * time.Microsecond) // more than the rounding of a bucket's change of rate
		s.settled(t, 5, lim, "k")
		res, err := core.AllowAll(t.Context(), 1, lim.On("k"), less.On("k").Cost(5)) // one unit more than the smaller limit of 9, which is decided first
		if err != nil || res.Allowed {
			t.Errorf("%s: got %+v, %v; want a denial", v.Name, res, err)
		}
		s.settled(t, 5, lim, "k")
	}
}

// TogetherBatches makes many callers decide at once, on keys and costs of their own, some with held units: each is answered
// and charged as if it were alone. In the first round all callers use the same limits and the same cost of the first key.
// In later rounds the costs differ, and half of the callers use other limits for one of the two limiters.
func TogetherBatches(t *testing.T, s Store) {
	s.findTogether(t)
	first := s.limiter(t, "first-of-two", core.GCRA(core.PerDay(1000)), core.Ban(time.Hour), core.Hold(time.Hour))
	second := s.limiter(t, "second-of-two", core.FixedWindow(core.PerDay(1000)), core.SlidingWindowLog(core.PerDay(1000)))
	const callers = 60
	var used [callers][2]int64
	for i := range int64(callers / 5) {
		reserve(t, first, fmt.Sprint("k", 5*i), 7)
		used[5*i][0] = 7
	}
	before := s.Commands()
	for round := range int64(4) {
		var all sync.WaitGroup
		for i := range int64(callers) {
			a, b, costs := first, second, [2]int64{1 + i%4*b2i(round > 0), 2 + i%3}
			if round == 2 && i%2 == 0 {
				a = with(t, first, core.GCRA(core.PerDay(100+i)))
			}
			if round == 3 && i%2 == 0 {
				b = with(t, second, core.FixedWindow(core.PerDay(2000+i)), core.SlidingWindowLog(core.PerDay(3000+i)))
			}
			used[i][0], used[i][1] = used[i][0]+costs[0], used[i][1]+costs[1]
			all.Go(func() {
				k := fmt.Sprint("k", i)
				res, err := core.AllowAll(t.Context(), 1, a.On(k).Cost(costs[0]), b.On("of "+k).Cost(costs[1]))
				results := slices.Collect(res.All())
				if err != nil || !res.Allowed || len(results) != 3 {
					t.Errorf("caller %d: got %+v, %v; want it allowed by 3 limits", i, results, err)
					return
				}
				for _, r := range results { // the limiter of the smaller capacity comes first
					u := used[i][0]
					if r.LimiterName == "second-of-two" {
						u = used[i][1]
					}
					if want := r.Limit - u; r.Remaining != want && round != 2 { // in round 2 another rate rounds the used units up
						t.Errorf("caller %d: got %+v, want %d remaining", i, r, want)
					}
				}
				denied, err := core.AllowAll(t.Context(), 1, a.On(k), b.On("of "+k).Cost(b.Limits()[0].Capacity()))
				if err != nil || denied.Allowed || denied.LimiterName != "second-of-two" {
					t.Errorf("caller %d: got %+v, %v; want a denial by second-of-two", i, denied, err)
				}
			})
		}
		all.Wait()
		s.Advance(10 * time.Microsecond) // as in TogetherNumbers
	}
	if n := s.Commands() - before; n > callers*8 {
		t.Errorf("%d commands for %d decisions, want fewer: decisions share commands", n, callers*8)
	}
	for i := range callers {
		if res := peek(t, first, fmt.Sprint("k", i)); res.Banned {
			t.Errorf("key %d: got %+v, want no ban: only another caller was denied by this limiter", i, res)
		}
		remains(t, second, fmt.Sprint("of k", i), 1000-used[i][1])
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
