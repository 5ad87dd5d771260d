package conformance

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// queueFamily names the histories of a LeakyBucket that most callers leave before it is their turn.
const queueFamily = "queue"

// A turn is the time in which a queue serves a call: a number of units from an instant on.
type turn struct {
	from  int64
	units int64
	rate  *big.Rat // units per microsecond; nil if the call has no turn
}

// end returns the instant at which the next call may be served.
func (s turn) end() int64 {
	took := new(big.Rat).Quo(new(big.Rat).SetInt64(s.units), s.rate)
	return s.from + ceil(took).Microseconds()
}

// serve records when a call will be served unless it leaves, and checks that no other call is served at the same time.
func (tr *trial) serve(t *testing.T, got core.Result, n int64) turn {
	t.Helper()
	if len(tr.specs) > 1 || !tr.specs[0].queues() {
		return turn{}
	}
	s := turn{got.At.Add(got.Delay).UnixMicro(), n, big.NewRat(tr.specs[0].count, tr.specs[0].period)}
	for _, other := range tr.served {
		if s.from+2 < other.end() && other.from+2 < s.end() { // 2 microseconds: both instants are rounded up
			t.Errorf("%d units are served from %d to %d, and %d units from %d to %d: want no overlap", n, s.from, s.end(), other.units, other.from, other.end())
		}
	}
	tr.served = append(tr.served, s)
	return s
}

// leave removes the turn of a call that leaves, unless it has been served already.
func (tr *trial) leave(s turn) {
	if s.rate != nil && s.from > tr.now {
		tr.served = slices.DeleteFunc(tr.served, func(other turn) bool { return other.from == s.from && other.units == s.units && other.rate == s.rate })
	}
}

func (tr *trial) actInQueue(t *testing.T) bool {
	switch p := tr.IntN(100); {
	case p < 52:
		return tr.acquire(t)
	case p < 92 && len(tr.charged) > 0:
		tr.cancel(t)
	case p < 94:
		return tr.reserve(t)
	case p < 96:
		tr.notef("peek")
		return tr.compare(t, peek(t, tr.lim, "k"), tr.model.Peek(tr.now))
	case p < 97:
		tr.reset(t)
	case p < 98 && tr.store.Redis != nil:
		tr.lose(t)
	case p < 99:
		tr.change(t)
	case len(tr.held) > 0:
		tr.settle(t)
	}
	return true
}

func queueCases() []testCase {
	return []testCase{
		{"Queue/Overload", overloadedQueue},
		{"Queue/Keeps", keptPlaces},
		{"Queue/Lowered", loweredQueue},
		{"Queue/Epochs", epochs},
		{"Queue/Forgotten", forgottenPlaces},
		{"Queue/Begun", begunPlace},
		{"Queue/Beside", placesBesideOtherLimits},
		{"Queue/Looks", looksAtAnotherRate},
	}
}

// overloadedQueue offers twice as many calls as the queue serves, for 20 s. Callers leave after 2 s, and their places go to
// the next callers: nearly everything that the rate allows is served.
func overloadedQueue(t *testing.T, s Store) {
	const offered, interval, patience = 400, 50 * time.Millisecond, 2 * time.Second
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(10), core.Burst(50)))
	served := 0
	waiting := make([]grant, offered)
	for i := range offered {
		if gone := i - int(patience/interval); gone >= 0 && waiting[gone].Delay > patience {
			cancel(t, waiting[gone])
		}
		waiting[i] = acquire(t, lim, "k", 1)
		if waiting[i].Allowed && waiting[i].Delay <= patience && time.Duration(i)*interval+waiting[i].Delay < offered*interval {
			served++
		}
		s.Advance(interval)
	}
	if t.Logf("%d calls are served; the rate allows 200", served); served < 190 || served > 200 {
		t.Errorf("%d calls are served, want 190 to 200", served)
	}
}

// keptPlaces frees more places than a queue remembers: the free places that are furthest away remain gaps.
func keptPlaces(t *testing.T, s Store) {
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1), core.Burst(1000)))
	var all []grant
	for range 300 {
		all = append(all, acquire(t, lim, "k", 1))
	}
	for i := 297; i > 0; i -= 2 {
		cancel(t, all[i])
	}
	for i := 1; i < 298; i += 2 {
		want := time.Duration(i) * time.Second
		if i > 2*128 {
			want = time.Duration(300+(i-2*128)/2) * time.Second
		}
		if res := allowN(t, lim, "k", 1); res.Delay != want {
			t.Fatalf("got %+v, want a Delay of %v", res, want)
		}
	}
}

// loweredQueue lowers the capacity of a queue: a cost above the new capacity is never admitted, although a free place is
// large enough for it.
func loweredQueue(t *testing.T, s Store) {
	s.needsRedis(t, "in memory each Limiter has keys of its own")
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1), core.Burst(20), core.LimitName("a")))
	allowN(t, lim, "k", 1)
	left := acquire(t, lim, "k", 9)
	allowN(t, lim, "k", 10)
	cancel(t, left)
	lower := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1), core.Burst(5), core.LimitName("a")))
	if res := peek(t, lower, "k"); res.Remaining != 5 || res.Delay != time.Second {
		t.Errorf("got %+v, want 5 remaining and a Delay of 1s", res)
	}
	for _, res := range []core.Result{allowN(t, lower, "k", 6), reserve(t, lower, "k", 6).Result} {
		if res.Allowed || res.RetryAfter != core.Never {
			t.Errorf("got %+v, want a denial forever", res)
		}
	}
	if res := allowN(t, lower, "k", 5); !res.Allowed || res.Remaining != 4 || res.Delay != time.Second {
		t.Errorf("got %+v, want the free place: a Delay of 1s and 4 remaining", res)
	}
}

// epochs changes the rate of a queue forth and back within one instant: giving back a place from before the changes frees
// no present place.
func epochs(t *testing.T, s Store) {
	s.needsRedis(t, "in memory each Limiter has keys of its own")
	with := func(rate int64) *core.Limiter {
		return s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(rate), core.Burst(20), core.LimitName("a")))
	}
	slow, fast := with(1), with(2)
	allowN(t, slow, "k", 1)
	old := acquire(t, slow, "k", 1)
	allowN(t, slow, "k", 1)
	allowN(t, fast, "k", 1)
	allowN(t, slow, "k", 3)
	before := peek(t, slow, "k")
	cancel(t, old)
	if res := peek(t, slow, "k"); res.Delay != before.Delay || res.Remaining != before.Remaining {
		t.Errorf("after an old place was given back: got %+v, want %+v as before", res, before)
	}
}

// forgottenPlaces keeps a queue from being empty until the numbers of its units are so large that a new epoch begins, which
// forgets the free places. Remaining then counts no free place any more. In Redis the new epoch begins with the first of the
// last two charges, and in memory with the second.
func forgottenPlaces(t *testing.T, s Store) {
	const million = 1_000_000
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1000*million), core.Burst(1000*million)))
	allowN(t, lim, "k", 1000*million)
	for range 272 {
		s.Advance(500 * time.Millisecond)
		allowN(t, lim, "k", 500*million)
	}
	s.Advance(950 * time.Millisecond) // 50 million units wait, and the end is 137e9 units after the epoch; 2^37 is 137.4e9
	left := acquire(t, lim, "k", 250*million)
	allowN(t, lim, "k", 100*million)
	cancel(t, left)
	for _, want := range []int64{340 * million, 80 * million} {
		got, peeked := allowN(t, lim, "k", 260*million), peek(t, lim, "k")
		if !got.Allowed || got.Remaining != want || peeked.Remaining != want {
			t.Errorf("got %+v, and then %+v, want %d remaining in both", got, peeked, want)
		}
	}
}

// leavePlace makes a queue of 1 unit per second that has units from 0 s to 1 s and from 5 s to 6 s, and a free place between them.
func leavePlace(t *testing.T, lim *core.Limiter) {
	t.Helper()
	allowN(t, lim, "k", 1)
	left := acquire(t, lim, "k", 4)
	allowN(t, lim, "k", 1)
	cancel(t, left)
}

// begunPlace waits until two of the four units of a free place have begun: only a cost of up to two units gets the place.
func begunPlace(t *testing.T, s Store) {
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1), core.Burst(20)))
	leavePlace(t, lim)
	s.Advance(2500 * time.Millisecond)
	for _, c := range []struct {
		cost int64
		want time.Duration
	}{{3, 3500 * time.Millisecond}, {2, 500 * time.Millisecond}} {
		if res := allowN(t, lim, "k", c.cost); res.Delay != c.want {
			t.Errorf("%d units: got %+v, want a Delay of %v", c.cost, res, c.want)
		}
	}
}

// placesBesideOtherLimits gives back a place that was a free place before, in a Limiter that also has another limit.
func placesBesideOtherLimits(t *testing.T, s Store) {
	lim := s.limiter(t, "queue", core.LeakyBucket(core.PerSecond(1), core.Burst(20)), core.FixedWindow(core.PerDay(1000)))
	leavePlace(t, lim)
	again := acquire(t, lim, "k", 2)
	cancel(t, again)
	if res := allowN(t, lim, "k", 4); again.Delay != time.Second || res.Delay != time.Second {
		t.Errorf("got %+v, and after it was given back %+v, want a Delay of 1s in both", again.Result, res)
	}
}

// looksAtAnotherRate calls Peek, and is denied, by a limit of another rate: a place that was charged before can still be given back.
func looksAtAnotherRate(t *testing.T, s Store) {
	queue := func(rate, burst int64) core.Limit {
		return core.LeakyBucket(core.PerSecond(rate), core.Burst(burst), core.LimitName("plan"))
	}
	lim := s.limiter(t, "queue", queue(1, 20))
	other := with(t, lim, queue(2, 5))
	allowN(t, lim, "k", 1)
	left := acquire(t, lim, "k", 10)
	peek(t, other, "k")
	if res := allowN(t, other, "k", 1); res.Allowed {
		t.Errorf("by the other limit: got %+v, want a denial", res)
	}
	cancel(t, left)
	if res := allowN(t, lim, "k", 1); res.Delay != time.Second {
		t.Errorf("after a place was given back: got %+v, want a Delay of 1s", res)
	}
}
