package lease_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/suite/conformance"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// leased is the duration of the leases of these tests.
const leased = 100 * time.Millisecond

// A leaser is a Limiter with leases, in a process with clocks of its own.
type leaser struct {
	*core.Limiter
	coreaccess.Driver

	wall, mono time.Duration
}

// A wire is the connection of a process to Redis, as a client that records the scripts sent and can fail.
type wire struct {
	*conformance.Driven

	sent []string    // the digest or source of each script
	down atomic.Bool // every command fails
	back func()      // called while a reply is on its way
}

func (w *wire) Process(ctx context.Context, cmd redis.Cmder) error {
	if w.down.Load() || strings.Contains(fmt.Sprint(cmd.Args()...), "~probe-") { // a probe in the background also fails: it would disturb the counts
		cmd.SetErr(io.EOF)
		return io.EOF
	}
	err := w.Driven.Process(ctx, cmd)
	if strings.HasPrefix(cmd.Name(), "eval") {
		w.sent = append(w.sent, fmt.Sprint(cmd.Args()[1]))
		if w.back != nil {
			w.back()
		}
	}
	return err
}

// wall returns the option with which a limiter over client uses the client's clock, if the client has a driven one.
func wall(client core.Client) core.Option {
	if d, ok := client.(interface{ Wall() core.Option }); ok {
		return d.Wall()
	}
	return core.Options()
}

// newLeaser returns a leaser whose clocks stand unless the test moves them.
func newLeaser(t *testing.T, client core.Client, opts ...core.Option) *leaser {
	t.Helper()
	l := &leaser{wall: time.Hour}
	clocks := coreaccess.Simulation{Leases: func() (wall, mono time.Duration) { return l.wall, l.mono }}
	opts = append(opts, wall(client), inside.Core.Simulate(clocks), core.Lease(leased), core.FailClosed(), core.Timeout(10*time.Second), core.DenyCache(0))
	lim, err := core.New(client, "lease", opts...)
	check.Need(t, err)
	l.Limiter, l.Driver = lim, inside.Core.Driver(lim)
	return l
}

// pass makes time pass for Redis and for processes.
func pass(d *conformance.Driven, by time.Duration, all ...*leaser) {
	d.Advance(by)
	for _, l := range all {
		l.wall += by
		l.mono += by
	}
}

// allowN requests n units, which must not fail.
func (l *leaser) allowN(t *testing.T, n int64) core.Result {
	t.Helper()
	res, err := l.AllowN(context.Background(), "k", n)
	check.Need(t, err)
	return res
}

// heat makes requests until the key has a lease, from which the last request has spent one unit. It returns how many
// requests Redis decided before.
func (l *leaser) heat(t *testing.T) (used int64) {
	t.Helper()
	for used < 100 {
		res := l.allowN(t, 1)
		switch {
		case !res.Allowed || (l.Open() > 0) != (res.Source == core.SourceLease):
			t.Fatalf("request %d: got %+v, want it allowed, and by a lease if and only if one is open", used+1, res)
		case l.Open() > 0:
			return used
		}
		used++
	}
	t.Fatal("after 100 requests no lease is open, want one")
	return 0
}

// remaining returns how many units remain of the key.
func remaining(t *testing.T, lim *core.Limiter) int64 {
	t.Helper()
	res, err := lim.Peek(context.Background(), "k")
	check.Need(t, err)
	return res.Remaining
}

// eachLeasable runs a test with each algorithm whose units can be leased.
func eachLeasable(t *testing.T, run func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit)) {
	t.Helper()
	client := redistest.Server(t).Client(t)
	for _, v := range limits.All() {
		if v.Kind.Unleasable != "" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			client.FlushAll(context.Background())
			run(t, conformance.NewDriven(client), v.Limit)
		})
	}
}

// thousand is a limit of which few units come back while a test runs.
var thousand = core.PerDay(1000)

// TestLease makes one process take a lease, spend it, and take the next one.
func TestLease(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		counted := &wire{Driven: d}
		l := newLeaser(t, counted, limit(thousand))
		other := core.MustNew(d, "lease", limit(thousand), d.Wall(), core.FailClosed())
		used := l.heat(t)
		if used != 8 {
			t.Errorf("%d requests were needed to make the key hot, want 8", used)
		}
		sent := len(counted.sent)
		pass(d, time.Millisecond, l)
		first := l.allowN(t, 1)
		if !first.Allowed || first.Source != core.SourceLease || first.Remaining != 1000-used-2 || first.LimitName != limit(thousand).Name() || first.LimiterName != "lease" {
			t.Errorf("the first request from the lease: got %+v, want it allowed with %d remaining", first, 1000-used-2)
		}
		if at := d.Now(); !first.At.Equal(at) {
			t.Errorf("At is %v, want %v", first.At, at)
		}
		left := remaining(t, other)
		if lease := 1000 - used - left; lease != 8 {
			t.Errorf("%d units are leased, want 8: as many as were used before", lease)
		}
		for i := range int64(6) {
			if res := l.allowN(t, 1); res.Source != core.SourceLease || res.Remaining != first.Remaining-1-i {
				t.Errorf("from the lease: got %+v, want %d remaining", res, first.Remaining-1-i)
			}
		}
		if len(counted.sent) != sent {
			t.Errorf("%d commands were sent for decisions from a lease, want 0", len(counted.sent)-sent)
		}
		res := l.allowN(t, 1)
		if res.Source != core.SourceLease || res.Remaining != 1000-16-1 {
			t.Errorf("from the next lease: got %+v, want %d remaining", res, 1000-16-1)
		}
		if len(counted.sent) != sent+2 {
			t.Errorf("%d commands were sent to exchange a lease, want 2", len(counted.sent)-sent)
		}
		if left = remaining(t, other); left != 1000-16-16 {
			t.Errorf("%d units remain beside the second lease, want %d", left, 1000-16-16)
		}
		check.OK(t, l.Close())
		if left := remaining(t, other); left != 1000-17 {
			t.Errorf("%d units remain after Close, want %d", left, 1000-17)
		}
		if res := l.allowN(t, 1); res.Source != core.SourceRedis || l.Open() != 0 {
			t.Errorf("after Close: got %+v with %d open leases, want a decision by Redis and no lease", res, l.Open())
		}
	})
}

// leasePair returns a process with a lease of eight units, one of which is spent, and a Limiter without leases.
func leasePair(t *testing.T, client core.Client, limits ...core.Option) (l *leaser, other *core.Limiter) {
	t.Helper()
	l = newLeaser(t, client, limits...)
	other, err := core.New(client, "lease", append(limits, wall(client), core.FailClosed())...)
	check.Need(t, err)
	l.heat(t)
	return l, other
}

// TestLeaseSettledLate settles a lease, 3 units of which were spent, after Redis has lost the key and while Redis's clock
// shows an instant before the expiry. If the lease is over by a clock of the process, it counts as charged already;
// otherwise it is charged now.
func TestLeaseSettledLate(t *testing.T) {
	client := redistest.Server(t).Client(t)
	for name, settle := range map[string]func(l *leaser) (requested int64){
		"by the next request": func(l *leaser) int64 { l.allowN(t, 1); return 1 },
		"in the background":   func(l *leaser) int64 { l.CloseOld(); return 0 },
	} {
		for passed, charged := range map[time.Duration]int64{leased * 9 / 10: 3, 2 * leased: 0} {
			client.FlushAll(context.Background())
			l, other := leasePair(t, conformance.NewDriven(client), core.TokenBucket(thousand))
			for range 2 {
				if res := l.allowN(t, 1); res.Source != core.SourceLease {
					t.Fatalf("a request was decided by %v, want the lease", res.Source)
				}
			}
			client.FlushDB(context.Background())
			l.wall += passed
			requested := settle(l)
			_ = l.Close() // gives back a lease that the request took
			if left := remaining(t, other); left != 1000-charged-requested {
				t.Errorf("%s, after %v: %d units remain, want %d", name, passed, left, 1000-charged-requested)
			}
		}
	}
}

// TestLeaseEnds checks that a lease ends by each clock of the process: the clock by which more time has passed decides.
func TestLeaseEnds(t *testing.T) {
	client := redistest.Server(t).Client(t)
	last := leased - time.Millisecond - leased/1000 // the first instant at which a lease is not spent any more
	for name, c := range map[string]struct {
		wall, mono time.Duration
		spent      bool
		call       func(lim *core.Limiter) (core.Result, error)
	}{
		"before its end":              {last - 1, last - 1, true, allow},
		"at its end":                  {last, last, false, allow},
		"suspended":                   {last, 0, false, allow},
		"the wall clock set back":     {-time.Hour, last, false, allow},
		"set back, before":            {-time.Hour, last - 1, true, allow},
		"reserved in its first half":  {last/2 - 1, last/2 - 1, true, reserve}, // in the second half the reservation would be renewed at once
		"reserved in its second half": {last / 2, last / 2, false, reserve},
	} {
		client.FlushAll(context.Background())
		l, _ := leasePair(t, conformance.NewDriven(client), core.TokenBucket(thousand))
		before := l.Latest("k")
		l.wall += c.wall
		l.mono += c.mono
		if res, err := c.call(l.Limiter); err != nil || res.Source != core.SourceLease || (l.Latest("k") == before) != c.spent {
			t.Errorf("%s: got a decision by %v, %v; want one by a lease, by the same lease: %v", name, res.Source, err, c.spent)
		}
	}
}

func allow(lim *core.Limiter) (core.Result, error) { return lim.Allow(context.Background(), "k") }

func reserve(lim *core.Limiter) (core.Result, error) {
	r, err := lim.Reserve(context.Background(), "k", 1)
	if err != nil {
		return core.Result{}, err
	}
	return r.Result, nil
}

// TestLeaseReplyTakesLong checks that the life of a lease begins when its request is sent: Redis holds the units from
// before the reply. A reply that arrives after the end makes no lease.
func TestLeaseReplyTakesLong(t *testing.T) {
	client := redistest.Server(t).Client(t)
	for name, c := range map[string]struct {
		back time.Duration
		open int
	}{"in time": {leased / 2, 1}, "late": {leased, 0}} {
		client.FlushAll(context.Background())
		d := &wire{Driven: conformance.NewDriven(client)}
		l := newLeaser(t, d, core.TokenBucket(thousand))
		other := core.MustNew(d.Driven, "lease", core.TokenBucket(thousand), core.FailClosed())
		for range 8 {
			l.allowN(t, 1)
		}
		d.back = func() { d.back = nil; pass(d.Driven, c.back, l) }
		if res := l.allowN(t, 1); !res.Allowed || l.Open() != c.open {
			t.Errorf("%s: got Allowed %v and %d leases, want true and %d", name, res.Allowed, l.Open(), c.open)
		}
		if left := remaining(t, other); left != 991-7*int64(c.open) {
			t.Errorf("%s: %d units remain, want %d", name, left, 991-7*int64(c.open))
		}
		pass(d.Driven, leased/2, l)
		if res := l.allowN(t, 1); res.Source != core.SourceRedis {
			t.Errorf("%s: %v after the lease was requested, a request was decided by %v, want Redis", name, c.back+leased/2, res.Source)
		}
	}
}

// TestLeaseGivesBack ends a lease in each possible way. The spent units are charged once.
func TestLeaseGivesBack(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		for name, end := range map[string]struct {
			how  func(l *leaser)
			left int64
		}{
			"idle": {func(l *leaser) { pass(d, leased*7/8, l); l.CloseOld() }, 1000 - 8 - 3},
			"close": {func(l *leaser) {
				check.OK(t, l.Close())
			}, 1000 - 8 - 3},
			"dies": {func(l *leaser) { pass(d, 2*leased, l) }, 1000 - 8 - 8},
			"late": {func(l *leaser) {
				pass(d, 2*leased, l)
				_ = l.Close()
			}, 1000 - 8 - 8},
			"reset": {func(l *leaser) { _ = l.Reset(context.Background(), "k") }, 1000},
		} {
			var leases, out, spent int64
			observe := core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind == core.EventLease {
					out, spent = out+e.Cost, spent+e.Spent
					if e.Cost > 0 {
						leases++
					}
				}
			})
			l, other := leasePair(t, d, limit(thousand), observe)
			for range 2 {
				if res := l.allowN(t, 1); res.Source != core.SourceLease {
					t.Errorf("%s: a request was decided by %v, want the lease", name, res.Source)
				}
			}
			end.how(l)
			if left := remaining(t, other); left != end.left {
				t.Errorf("%s: %d units remain, want %d", name, left, end.left)
			}
			check.Need(t, other.Reset(context.Background(), "k"))
			if name == "dies" { // no process is left that could close the lease
				continue
			}
			if l.Open() != 0 {
				t.Errorf("%s: %d leases are open, want 0", name, l.Open())
			}
			if leases != 1 || out != 0 || spent != 3 {
				t.Errorf("%s: by the events there were %d leases, with %d units still leased and %d spent; want 1, 0 and 3", name, leases, out, spent)
			}
		}
	})
}

// TestLeaseUnits gives back units of a lease, and reserves them.
func TestLeaseUnits(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		counted := &wire{Driven: d}
		l, other := leasePair(t, counted, limit(thousand)) // 8 units are used, and one of 8 leased ones
		sent := len(counted.sent)
		use := func(take func(*core.Limiter, context.Context, string, int64) (*permits.Any, error), n int64) *permits.Any {
			r, err := take(l.Limiter, context.Background(), "k", n)
			if err != nil || !r.Allowed || r.Source != core.SourceLease {
				t.Fatalf("got %+v, %v; want it admitted from the lease", r, err)
			}
			return r
		}
		end := func(r *permits.Any, actual int64) {
			check.OK(t, r.Settle(context.Background(), actual))
		}
		want := func(when string, used int64) {
			if left := remaining(t, other); left != 1000-8-used {
				t.Errorf("%d units remain %s, want %d", left, when, 1000-8-used)
			}
		}
		spent, canceled := use(permits.Acquire, 1), use(permits.Acquire, 3)
		end(canceled, 0)
		end(canceled, 0) // gives back nothing more
		nothing, less, late, later := use(permits.Reserve, 2), use(permits.Reserve, 2), use(permits.Reserve, 1), use(permits.Reserve, 1)
		end(nothing, 0)
		end(less, 1)
		end(less, 1)
		if next := l.allowN(t, 1); next.Source != core.SourceLease || next.Remaining != 1000-8-2-1-1-1-1 {
			t.Errorf("after giving back: got %+v, want a decision by the lease with %d remaining", next, 1000-8-2-1-1-1-1)
		}
		if len(counted.sent) != sent {
			t.Errorf("%d scripts were sent, want 0: the lease decides", len(counted.sent)-sent)
		}
		check.Need(t, l.Close())
		want("with two units that are still reserved", 2+1+1+1+1)
		end(later, 0)
		want("with one unit that is still reserved", 2+1+1+1)
		end(late, 5)
		want("after a cost of 5, more than was reserved", 2+1+1+5)
		end(spent, 0)
		want("after a Cancel whose lease has ended, which gives back nothing", 2+1+1+5)
		if res := l.allowN(t, 1); res.Source != core.SourceRedis {
			t.Errorf("after the lease has ended: got %+v, want a decision by Redis", res)
		}
	})
}

// TestLeaseSeveral leases units of several limits: of all of them, or of none.
func TestLeaseSeveral(t *testing.T) {
	client := redistest.Server(t).Client(t)
	d := conformance.NewDriven(client)
	l, other := leasePair(t, d, core.TokenBucket(thousand), core.SlidingWindowLog(core.PerDay(500)))
	res := l.allowN(t, 2)
	var all []int64
	for each := range res.All() {
		all = append(all, each.Remaining)
		if each.Source != core.SourceLease {
			t.Errorf("got %+v, want a decision by the lease", each)
		}
	}
	if res.Source != core.SourceLease || len(all) != 2 || all[0] != 989 || all[1] != 489 || res.LimitName != "log-1d" {
		t.Errorf("got %+v with %v remaining, want the result of log-1d from the lease with [989 489] remaining", res, all)
	}
	if err := l.Close(); err != nil || remaining(t, other) != 489 {
		t.Errorf("after Close %d units remain, %v; want 489", remaining(t, other), err)
	}
}

// TestLeaseNearLimit checks that leases shrink near the limit, so that another process is not denied while units remain.
// With several limits, the limit with the fewest units left decides.
func TestLeaseNearLimit(t *testing.T) {
	const most = 40
	near := func(t *testing.T, d *conformance.Driven, limits ...core.Option) {
		t.Helper()
		l := newLeaser(t, d, limits...)
		other := core.MustNew(d, "lease", append(limits, d.Wall(), core.FailClosed())...)
		admitted := int64(0)
		for l.allowN(t, 1).Allowed {
			if admitted++; admitted > most {
				t.Fatalf("%d units were admitted, want at most the limit of %d", admitted, most)
			}
			left := most - admitted
			if out := left - remaining(t, other); out < 0 || out > max(1, (left+8)/8) {
				t.Errorf("%d of the %d remaining units are leased, want about an eighth at most", out, left)
			}
		}
		if admitted != most {
			t.Errorf("%d units were admitted, want %d", admitted, most)
		}
	}
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		near(t, d, limit(core.PerDay(most)))
	})
	t.Run("several", func(t *testing.T) {
		near(t, conformance.NewDriven(redistest.Server(t).Client(t)), core.TokenBucket(thousand), core.SlidingWindowLog(core.PerDay(most)))
	})
}

// TestLeaseDenied makes Redis deny the next lease of a process, because another process has used up the limit meanwhile.
func TestLeaseDenied(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		l, other := leasePair(t, d, limit(thousand))
		if res, err := other.AllowN(context.Background(), "k", 1000-8-8); err != nil || !res.Allowed {
			t.Fatalf("the other process: got %+v, %v; want it allowed", res, err)
		}
		for i := range 9 {
			if res := l.allowN(t, 1); res.Allowed != (i < 7) {
				t.Errorf("request %d: got %+v, want Allowed %v", i, res, i < 7)
			}
		}
		if n := l.Open(); n != 0 {
			t.Errorf("%d leases are open although the limit is used up, want 0", n)
		}
	})
}

// TestLeaseOfWith checks that a lease is spent only by the limits to which it was granted.
func TestLeaseOfWith(t *testing.T) {
	client := redistest.Server(t).Client(t)
	d := conformance.NewDriven(client)
	l, _ := leasePair(t, d, core.TokenBucket(thousand, core.LimitName("x")))
	lower, err := l.With(core.TokenBucket(core.PerDay(20), core.LimitName("x")))
	check.Need(t, err)
	d.Advance(10 * time.Microsecond) // more than the rounding of a change of rate
	res, err := lower.Allow(context.Background(), "k")
	if err != nil || res.Source != core.SourceRedis || res.Limit != 20 || res.Remaining != 20-8-8-1 {
		t.Errorf("by a lower limit: got %+v, %v; want a decision by Redis with %d of 20 remaining", res, err, 20-8-8-1)
	}
}

// TestLeaseRedisAway checks that leases are spent to their end while Redis does not answer.
func TestLeaseRedisAway(t *testing.T) {
	client := redistest.Server(t).Client(t)
	away := &wire{Driven: conformance.NewDriven(client)}
	l, _ := leasePair(t, away, core.TokenBucket(thousand))
	away.down.Store(true)
	for range 7 {
		if res := l.allowN(t, 1); res.Source != core.SourceLease {
			t.Errorf("got %+v, want a decision by the lease", res)
		}
	}
	if _, err := l.Allow(context.Background(), "k"); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("after the lease: got error %v, want ErrUnavailable", err)
	}
}

// TestLeaseNotGivenBack closes a limiter while Redis does not answer. Close returns an error that says how many units it
// could not give back, but only once. Redis charges these units when they expire.
func TestLeaseNotGivenBack(t *testing.T) {
	client := redistest.Server(t).Client(t)
	away := &wire{Driven: conformance.NewDriven(client)}
	l, other := leasePair(t, away, core.TokenBucket(thousand))
	_ = l.allowN(t, 2)
	away.down.Store(true)
	err := l.Close()
	if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "5 leased units could not be given back (keys: 1)") {
		t.Errorf("Close: got error %v, want ErrUnavailable that names the 5 units not spent", err)
	}
	if again := l.Close(); again != nil {
		t.Errorf("a second Close: got error %v, want nil", again)
	}
	away.down.Store(false)
	pass(away.Driven, 2*leased, l)
	if left := remaining(t, other); left != 1000-8-8 {
		t.Errorf("%d units remain, want %d: all units of the lease are charged", left, 1000-8-8)
	}
}

// TestLeaseReservationLasts keeps a reservation of leased units for longer than the lease: the units are moved to a hold of
// their own.
func TestLeaseReservationLasts(t *testing.T) {
	client := redistest.Server(t).Client(t)
	check.Rounds(t, slices.Repeat([]time.Duration{time.Second}, 4), func(t *check.Round, d time.Duration) {
		client.FlushAll(t.Context())
		lim := core.MustNew(client, "lasts", core.FixedWindow(thousand), core.Lease(d), core.FailClosed(), core.Timeout(time.Minute))
		for last := false; !last; {
			r, err := lim.Reserve(t.Context(), "k", 1)
			if err != nil || !r.Allowed {
				t.Fatalf("Reserve: got %+v, %v; want it admitted", r, err)
			}
			if last = r.Source == core.SourceLease; last {
				time.Sleep(d * 3 / 2) // the units held for the lease have expired
			}
			check.Need(t, r.Cancel(t.Context()))
		}
		check.Need(t, lim.Close())
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 1000 {
			t.Errorf("after all reservations were canceled, %d units remain, %v; want 1000", res.Remaining, err)
		}
	})
}
