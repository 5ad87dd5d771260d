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

// A wire is the way of a process to Redis.
type wire struct {
	*conformance.Driven

	sent []string    // the digest of each script
	down atomic.Bool // also for probes in the background
	back func()      // called while a reply is on its way
}

func (w *wire) Process(ctx context.Context, cmd redis.Cmder) error {
	if w.down.Load() || strings.Contains(fmt.Sprint(cmd.Args()...), "~probe-") { // those come from the background
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

// wall has a limiter over client go by its clock, if it is driven.
func wall(client core.Client) core.Option {
	if d, ok := client.(interface{ Wall() core.Option }); ok {
		return d.Wall()
	}
	return core.Options()
}

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

// pass has time pass for Redis and for processes.
func pass(d *conformance.Driven, by time.Duration, all ...*leaser) {
	d.Advance(by)
	for _, l := range all {
		l.wall += by
		l.mono += by
	}
}

func (l *leaser) allowN(t *testing.T, n int64) core.Result {
	t.Helper()
	res, err := l.AllowN(context.Background(), "k", n)
	check.Need(t, err)
	return res
}

// heat asks until the key has a lease, of which that request has one unit. It returns how many Redis decided before.
func (l *leaser) heat(t *testing.T) (used int64) {
	t.Helper()
	for used < 100 {
		res := l.allowN(t, 1)
		switch {
		case !res.Allowed || (l.Open() > 0) != (res.Source == core.SourceLease):
			t.Fatalf("request %d: %+v", used+1, res)
		case l.Open() > 0:
			return used
		}
		used++
	}
	t.Fatal("100 requests made no lease")
	return 0
}

func remaining(t *testing.T, lim *core.Limiter) int64 {
	t.Helper()
	res, err := lim.Peek(context.Background(), "k")
	check.Need(t, err)
	return res.Remaining
}

// eachLeasable runs a test over each algorithm whose units can be leased.
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

// thousand is a limit of which little comes back while a test runs.
var thousand = core.PerDay(1000)

// TestLease makes one process take a lease, spend it, and take the next.
func TestLease(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		counted := &wire{Driven: d}
		l := newLeaser(t, counted, limit(thousand))
		other := core.MustNew(d, "lease", limit(thousand), d.Wall(), core.FailClosed())
		used := l.heat(t)
		if used != 8 {
			t.Errorf("%d requests made the key hot, want 8", used)
		}
		sent := len(counted.sent)
		pass(d, time.Millisecond, l)
		first := l.allowN(t, 1)
		if !first.Allowed || first.Source != core.SourceLease || first.Remaining != 1000-used-2 || first.LimitName != limit(thousand).Name() || first.LimiterName != "lease" {
			t.Errorf("from the lease: %+v", first)
		}
		if at := d.Now(); !first.At.Equal(at) {
			t.Errorf("At is %v, want %v", first.At, at)
		}
		left := remaining(t, other)
		if lease := 1000 - used - left; lease != 8 {
			t.Errorf("%d units are leased, want the 8 that were used before", lease)
		}
		for i := range int64(6) {
			if res := l.allowN(t, 1); res.Source != core.SourceLease || res.Remaining != first.Remaining-1-i {
				t.Errorf("from the lease: %+v", res)
			}
		}
		if len(counted.sent) != sent {
			t.Errorf("%d commands were sent for decisions from a lease", len(counted.sent)-sent)
		}
		res := l.allowN(t, 1)
		if res.Source != core.SourceLease || res.Remaining != 1000-16-1 {
			t.Errorf("after the lease: %+v", res)
		}
		if len(counted.sent) != sent+2 {
			t.Errorf("%d commands were sent to exchange a lease", len(counted.sent)-sent)
		}
		if left = remaining(t, other); left != 1000-16-16 {
			t.Errorf("%d remain beside the second lease, want %d", left, 1000-16-16)
		}
		check.OK(t, l.Close())
		if left := remaining(t, other); left != 1000-17 {
			t.Errorf("%d remain after Close, want %d", left, 1000-17)
		}
		if res := l.allowN(t, 1); res.Source != core.SourceRedis || l.Open() != 0 {
			t.Errorf("after Close: %+v", res)
		}
	})
}

// leasePair returns a process with a lease of eight units, of which one is spent, and a Limiter without leases.
func leasePair(t *testing.T, client core.Client, limits ...core.Option) (l *leaser, other *core.Limiter) {
	t.Helper()
	l = newLeaser(t, client, limits...)
	other, err := core.New(client, "lease", append(limits, wall(client), core.FailClosed())...)
	check.Need(t, err)
	l.heat(t)
	return l, other
}

// TestLeaseSettledLate settles a lease, of which 3 units were spent, when Redis has lost the key, and its clock shows an instant before
// the expiry. What is over by a clock of the process has been charged; what is not is charged now.
func TestLeaseSettledLate(t *testing.T) {
	client := redistest.Server(t).Client(t)
	for name, settle := range map[string]func(l *leaser) (asked int64){
		"by the next request": func(l *leaser) int64 { l.allowN(t, 1); return 1 },
		"in the background":   func(l *leaser) int64 { l.CloseOld(); return 0 },
	} {
		for passed, charged := range map[time.Duration]int64{leased * 9 / 10: 3, 2 * leased: 0} {
			client.FlushAll(context.Background())
			l, other := leasePair(t, conformance.NewDriven(client), core.TokenBucket(thousand))
			for range 2 {
				if res := l.allowN(t, 1); res.Source != core.SourceLease {
					t.Fatalf("decided by %v", res.Source)
				}
			}
			client.FlushDB(context.Background())
			l.wall += passed
			asked := settle(l)
			_ = l.Close() // a lease that it took is given back
			if left := remaining(t, other); left != 1000-charged-asked {
				t.Errorf("%s, after %v: %d remain, want %d", name, passed, left, 1000-charged-asked)
			}
		}
	}
}

// TestLeaseEnds has each clock of a process end its lease: whichever says that more time has
// passed.
func TestLeaseEnds(t *testing.T) {
	client := redistest.Server(t).Client(t)
	last := leased - time.Millisecond - leased/1000 // the first instant at which a lease is not spent
	for name, c := range map[string]struct {
		wall, mono time.Duration
		spent      bool
		ask        func(lim *core.Limiter) (core.Result, error)
	}{
		"before its end":              {last - 1, last - 1, true, allow},
		"at its end":                  {last, last, false, allow},
		"suspended":                   {last, 0, false, allow},
		"the wall clock set back":     {-time.Hour, last, false, allow},
		"set back, before":            {-time.Hour, last - 1, true, allow},
		"reserved in its first half":  {last/2 - 1, last/2 - 1, true, reserve}, // it is renewed in the second
		"reserved in its second half": {last / 2, last / 2, false, reserve},
	} {
		client.FlushAll(context.Background())
		l, _ := leasePair(t, conformance.NewDriven(client), core.TokenBucket(thousand))
		before := l.Latest("k")
		l.wall += c.wall
		l.mono += c.mono
		if res, err := c.ask(l.Limiter); err != nil || res.Source != core.SourceLease || (l.Latest("k") == before) != c.spent {
			t.Errorf("%s: decided by %v, %v", name, res.Source, err)
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

// TestLeaseReplyTakesLong counts the life of a lease from when it was asked for: Redis holds
// its units from before the reply. A reply after that makes no lease.
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
			t.Errorf("%s: %v, %d leases", name, res.Allowed, l.Open())
		}
		if left := remaining(t, other); left != 991-7*int64(c.open) {
			t.Errorf("%s: %d remain", name, left)
		}
		pass(d.Driven, leased/2, l)
		if res := l.allowN(t, 1); res.Source != core.SourceRedis {
			t.Errorf("%s: spent %v after it was asked for", name, c.back+leased/2)
		}
	}
}

// TestLeaseGivesBack ends a lease in each way. The spent units are charged, once.
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
					t.Errorf("%s: %v", name, res.Source)
				}
			}
			end.how(l)
			if left := remaining(t, other); left != end.left {
				t.Errorf("%s: %d remain, want %d", name, left, end.left)
			}
			check.Need(t, other.Reset(context.Background(), "k"))
			if name == "dies" { // nobody is left who could close the lease
				continue
			}
			if l.Open() != 0 {
				t.Errorf("%s: a lease is open", name)
			}
			if leases != 1 || out != 0 || spent != 3 {
				t.Errorf("%s: %d leases, %d units out and %d spent", name, leases, out, spent)
			}
		}
	})
}

// TestLeaseUnits takes leased units back, and reserves them.
func TestLeaseUnits(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		counted := &wire{Driven: d}
		l, other := leasePair(t, counted, limit(thousand)) // 8 are used, and one of 8 leased
		sent := len(counted.sent)
		use := func(ask func(*core.Limiter, context.Context, string, int64) (*permits.Any, error), n int64) *permits.Any {
			r, err := ask(l.Limiter, context.Background(), "k", n)
			if err != nil || !r.Allowed || r.Source != core.SourceLease {
				t.Fatalf("%+v, %v", r, err)
			}
			return r
		}
		end := func(r *permits.Any, actual int64) {
			check.OK(t, r.Settle(context.Background(), actual))
		}
		want := func(when string, used int64) {
			if left := remaining(t, other); left != 1000-8-used {
				t.Errorf("%d remain %s, want %d", left, when, 1000-8-used)
			}
		}
		spent, canceled := use(permits.Acquire, 1), use(permits.Acquire, 3)
		end(canceled, 0)
		end(canceled, 0) // once
		nothing, less, late, later := use(permits.Reserve, 2), use(permits.Reserve, 2), use(permits.Reserve, 1), use(permits.Reserve, 1)
		end(nothing, 0)
		end(less, 1)
		end(less, 1)
		if next := l.allowN(t, 1); next.Source != core.SourceLease || next.Remaining != 1000-8-2-1-1-1-1 {
			t.Errorf("after those: %+v", next)
		}
		if len(counted.sent) != sent {
			t.Errorf("%d scripts were sent", len(counted.sent)-sent)
		}
		check.Need(t, l.Close())
		want("with two units that are still reserved", 2+1+1+1+1)
		end(later, 0)
		want("with one unit that is still reserved", 2+1+1+1)
		end(late, 5)
		want("with 5 that cost more than was reserved", 2+1+1+5)
		end(spent, 0)
		want("after a lease has ended, which gives nothing back", 2+1+1+5)
		if res := l.allowN(t, 1); res.Source != core.SourceRedis {
			t.Errorf("what was given back to a lease that has ended was spent: %+v", res)
		}
	})
}

// TestLeaseSeveral leases units of several limits, of all or of none.
func TestLeaseSeveral(t *testing.T) {
	client := redistest.Server(t).Client(t)
	d := conformance.NewDriven(client)
	l, other := leasePair(t, d, core.TokenBucket(thousand), core.SlidingWindowLog(core.PerDay(500)))
	res := l.allowN(t, 2)
	var all []int64
	for each := range res.All() {
		all = append(all, each.Remaining)
		if each.Source != core.SourceLease {
			t.Errorf("%+v", each)
		}
	}
	if res.Source != core.SourceLease || len(all) != 2 || all[0] != 989 || all[1] != 489 || res.LimitName != "log-1d" {
		t.Errorf("%+v: %v", res, all)
	}
	if err := l.Close(); err != nil || remaining(t, other) != 489 {
		t.Errorf("%d remain, %v", remaining(t, other), err)
	}
}

// TestLeaseNearLimit has leases shrink, so that another process is not
// denied while units remain for it; of several limits by the one that has the fewest left.
func TestLeaseNearLimit(t *testing.T) {
	const most = 40
	near := func(t *testing.T, d *conformance.Driven, limits ...core.Option) {
		t.Helper()
		l := newLeaser(t, d, limits...)
		other := core.MustNew(d, "lease", append(limits, d.Wall(), core.FailClosed())...)
		admitted := int64(0)
		for l.allowN(t, 1).Allowed {
			if admitted++; admitted > most {
				t.Fatal("more than the limit was admitted")
			}
			left := most - admitted
			if out := left - remaining(t, other); out < 0 || out > max(1, (left+8)/8) {
				t.Errorf("%d of %d units are out on leases", out, left)
			}
		}
		if admitted != most {
			t.Errorf("%d of %d were admitted", admitted, most)
		}
	}
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		near(t, d, limit(core.PerDay(most)))
	})
	t.Run("several", func(t *testing.T) {
		near(t, conformance.NewDriven(redistest.Server(t).Client(t)), core.TokenBucket(thousand), core.SlidingWindowLog(core.PerDay(most)))
	})
}

// TestLeaseDenied has Redis deny the next lease of a process, because another has used up the limit meanwhile.
func TestLeaseDenied(t *testing.T) {
	eachLeasable(t, func(t *testing.T, d *conformance.Driven, limit func(core.Rate) core.Limit) {
		l, other := leasePair(t, d, limit(thousand))
		if res, err := other.AllowN(context.Background(), "k", 1000-8-8); err != nil || !res.Allowed {
			t.Fatalf("the other: %+v, %v", res, err)
		}
		for i := range 9 {
			if res := l.allowN(t, 1); res.Allowed != (i < 7) {
				t.Errorf("request %d: %+v", i, res)
			}
		}
		if n := l.Open(); n != 0 {
			t.Errorf("%d leases of a limit that is used up", n)
		}
	})
}

// TestLeaseOfWith spends a lease only by the limits that it was granted to.
func TestLeaseOfWith(t *testing.T) {
	client := redistest.Server(t).Client(t)
	d := conformance.NewDriven(client)
	l, _ := leasePair(t, d, core.TokenBucket(thousand, core.LimitName("x")))
	lower, err := l.With(core.TokenBucket(core.PerDay(20), core.LimitName("x")))
	check.Need(t, err)
	d.Advance(10 * time.Microsecond) // a change of rate is rounded up by less
	res, err := lower.Allow(context.Background(), "k")
	if err != nil || res.Source != core.SourceRedis || res.Limit != 20 || res.Remaining != 20-8-8-1 {
		t.Errorf("by other numbers: %+v, %v", res, err)
	}
}

// TestLeaseRedisAway spends leases to their end while Redis does not answer.
func TestLeaseRedisAway(t *testing.T) {
	client := redistest.Server(t).Client(t)
	away := &wire{Driven: conformance.NewDriven(client)}
	l, _ := leasePair(t, away, core.TokenBucket(thousand))
	away.down.Store(true)
	for range 7 {
		if res := l.allowN(t, 1); res.Source != core.SourceLease {
			t.Errorf("%+v", res)
		}
	}
	if _, err := l.Allow(context.Background(), "k"); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("after the lease: %v", err)
	}
}

// TestLeaseNotGivenBack closes a limiter while Redis does not answer. Close says what it could not give back, which Redis
// charges once it expires; and says so once.
func TestLeaseNotGivenBack(t *testing.T) {
	client := redistest.Server(t).Client(t)
	away := &wire{Driven: conformance.NewDriven(client)}
	l, other := leasePair(t, away, core.TokenBucket(thousand))
	_ = l.allowN(t, 2)
	away.down.Store(true)
	err := l.Close()
	if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "5 leased units could not be given back (keys: 1)") {
		t.Errorf("%v; 5 units were not spent", err)
	}
	if again := l.Close(); again != nil {
		t.Errorf("closed again: %v", again)
	}
	away.down.Store(false)
	pass(away.Driven, 2*leased, l)
	if left := remaining(t, other); left != 1000-8-8 {
		t.Errorf("%d remain, want what the lease had to be charged", left)
	}
}

// TestColdKey has a key that is asked for once too few in each duration of a lease: it is never leased.
func TestColdKey(t *testing.T) {
	d := conformance.NewDriven(redistest.Server(t).Client(t))
	l := newLeaser(t, d, core.TokenBucket(thousand))
	for range 30 {
		for range 7 {
			if res := l.allowN(t, 1); res.Source != core.SourceRedis || l.Open() > 0 {
				t.Fatalf("%+v, and %d leases", res, l.Open())
			}
		}
		pass(d, leased+time.Millisecond, l)
	}
}

func TestLeaseMistakes(t *testing.T) {
	client := redistest.Server(t).Client(t)
	for want, opts := range map[string][]core.Option{
		"allowed is 10ms to 1s":               {core.TokenBucket(thousand), core.Lease(time.Minute)},
		"allowed is 10ms to 1s ":              {core.TokenBucket(thousand), core.Lease(time.Millisecond)},
		"give it once":                        {core.TokenBucket(thousand), core.Lease(leased), core.Lease(leased)},
		"its units are places in a queue":     {core.TokenBucket(thousand), core.LeakyBucket(thousand), core.Lease(leased)},
		"Lease(100ms): limit leaky_bucket 10": {core.LeakyBucket(thousand), core.Lease(leased)},
	} {
		want = strings.TrimSpace(want)
		if _, err := core.New(client, "x", opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
		if _, err := core.NewMemory("x", opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewMemory: %v, want %q", err, want)
		}
	}
	lim := core.MustNew(client, "x", core.TokenBucket(thousand), core.Lease(leased))
	if _, err := lim.With(core.LeakyBucket(thousand)); err == nil || !strings.Contains(err.Error(), "places in a queue") {
		t.Errorf("With: %v", err)
	}
	memory, err := core.NewMemory("x", core.TokenBucket(thousand), core.Lease(leased))
	check.Need(t, err)
	for range 30 {
		if res, err := memory.Allow(context.Background(), "k"); err != nil || res.Source != core.SourceMemory {
			t.Fatal(res, err)
		}
	}
	check.OK(t, memory.Close())
}

// TestLeaseReservationLasts reserves leased units for longer than the lease: they are moved to
// a hold of their own.
func TestLeaseReservationLasts(t *testing.T) {
	client := redistest.Server(t).Client(t)
	check.Rounds(t, slices.Repeat([]time.Duration{time.Second}, 4), func(t *check.Round, d time.Duration) {
		client.FlushAll(t.Context())
		lim := core.MustNew(client, "lasts", core.FixedWindow(thousand), core.Lease(d), core.FailClosed(), core.Timeout(time.Minute))
		for last := false; !last; {
			r, err := lim.Reserve(t.Context(), "k", 1)
			if err != nil || !r.Allowed {
				t.Fatal(r, err)
			}
			if last = r.Source == core.SourceLease; last {
				time.Sleep(d * 3 / 2) // the units held for the lease have expired
			}
			check.Need(t, r.Cancel(t.Context()))
		}
		check.Need(t, lim.Close())
		if res, err := lim.Peek(t.Context(), "k"); err != nil || res.Remaining != 1000 {
			t.Errorf("of 1000 units that all cost nothing %d remain, %v", res.Remaining, err)
		}
	})
}
