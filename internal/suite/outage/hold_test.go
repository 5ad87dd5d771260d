package outage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestHoldsInEachMode checks that units reserved in Redis before an outage cannot be settled during it: the settlement is
// sent once, returns an error, and the units stay held. Units reserved by the outage policy are settled by the policy, even
// if Redis has returned meanwhile, because Redis never learns of them.
func TestHoldsInEachMode(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Run("modes", func(t *testing.T) {
		inEachMode(t, func(t *check.Round, m mode, timeout time.Duration) {
			e := newEnv(t, setup{})
			l, watch := limiter(e.rdb, "holds", append(m.options, core.Timeout(timeout))...)
			awaitRedis(t, l, "k")
			before := reserve(t, l, 3, core.SourceRedis)
			e.proxy.Silence()
			first, err := l.Reserve(t.Context(), "k", 2)
			m.during(t, resultOf(first), err)
			if err := before.Settle(t.Context(), 1); !errors.Is(err, core.ErrUnavailable) {
				t.Errorf("Settle of units that Redis holds: got error %v, want ErrUnavailable", err)
			}
			if err := before.Settle(t.Context(), 1); err != nil {
				t.Errorf("a second Settle: got error %v, want nil, as it does nothing", err)
			}
			var second *core.Reservation
			if m.name != "FailClosed" {
				if err := first.Settle(t.Context(), 1); err != nil {
					t.Errorf("Settle of units that the policy admitted: got error %v, want nil", err)
				}
				second = reserve(t, l, 3, m.source())
				m.wantLocal(t, l, 1+3)
			}
			e.proxy.Pass()
			awaitRedis(t, l, "k")
			sent := e.proxy.Count("EVALSHA") + e.proxy.Count("EVAL")
			if err := second.Settle(t.Context(), 5); err != nil {
				t.Errorf("Settle after the outage: got error %v, want nil", err)
			}
			if now := e.proxy.Count("EVALSHA") + e.proxy.Count("EVAL"); now != sent {
				t.Errorf("%d scripts were sent to settle units that Redis does not hold, want 0", now-sent)
			}
			if n := e.used(t, "holds", "k"); n != 3 {
				t.Errorf("Redis counts %d units as used, want the 3 that it holds", n)
			}
			watch.wantOutages(t, 1)
			e.proxy.Silence()
			res, err := l.Allow(t.Context(), "another")
			m.during(t, res, err)
			m.wantLocal(t, l, 1+5)
			e.proxy.Pass()
			awaitRedis(t, l, "k")
		})
	})
	check.NoGoroutineLeft(t, base)
}

// resultOf returns the Result of r, which may be nil.
func resultOf(r *core.Reservation) core.Result {
	if r == nil {
		return core.Result{}
	}
	return r.Result
}

// source returns the source of admissions during an outage.
func (m mode) source() core.Source {
	if m.share > 0 {
		return core.SourceFallback
	}
	return core.SourceNone
}

// reserve reserves n units of "k", which the given source must admit.
func reserve(tb testing.TB, l *core.Limiter, n int64, by core.Source) *core.Reservation {
	tb.Helper()
	r, err := l.Reserve(tb.Context(), "k", n)
	if err != nil || !r.Allowed || r.Source != by {
		tb.Errorf("Reserve: got %+v, %v; want it admitted by %v", r, err, by)
	}
	return r
}

// wantLocal checks how many units of the process's own share are used. A mode without a share has none.
func (m mode) wantLocal(tb testing.TB, l *core.Limiter, used int64) {
	tb.Helper()
	if m.share == 0 {
		return
	}
	if res, err := l.Peek(tb.Context(), "k"); err != nil || res.Source != core.SourceFallback || res.Remaining != limit/m.share-used {
		tb.Errorf("of the process's own share %d units remain by %v, %v; want %d by the fallback", res.Remaining, res.Source, err, limit/m.share-used)
	}
}

// An account is the least and the most that a key may have been charged.
type account struct{ least, most int64 }

func (a *account) add(least, most int64) { a.least, a.most = a.least+least, a.most+most }

// lossy returns limits of which no unit comes back during a test.
func lossy() []core.Option {
	const long = 365 * 24 * time.Hour
	return []core.Option{
		core.FixedWindow(core.Per(20_000, long)), core.TokenBucket(core.Per(20_000, long)),
		core.SlidingWindowLog(core.Per(20_000, long)), core.SlidingWindowCounter(core.Per(20_000, long)),
	}
}

// TestHoldsWithLostReplies cuts connections and loses replies while many callers decide, alone and in batches, with several
// limits at once. Every key is charged at least the acknowledged units, and at most the units that were sent, once. The
// test would notice a Settle or a Reserve that is sent again.
func TestHoldsWithLostReplies(t *testing.T) {
	t.Parallel()
	for on, open := range map[string]func(testing.TB) (client redis.UniversalClient, auditor core.Client, proxies []*faultproxy.Proxy){
		"Redis": lossyServer, "Cluster": lossyCluster,
	} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) {
				client, admin, proxies := open(t)
				l, _ := watched(client, "lossy", append(lossy(), core.FailClosed(), core.Timeout(timeout), core.Hold(time.Hour))...)
				auditor := core.MustNew(admin, "lossy", append(lossy(), core.FailClosed(), core.Timeout(time.Minute))...)
				loseReplies(t, l, auditor, proxies)
			})
		})
	}
}

func lossyServer(t testing.TB) (redis.UniversalClient, core.Client, []*faultproxy.Proxy) {
	e := newEnv(t, setup{})
	return e.rdb, e.admin, []*faultproxy.Proxy{e.proxy}
}

// lossyCluster starts a Cluster with a proxy in front of each node.
func lossyCluster(t testing.TB) (redis.UniversalClient, core.Client, []*faultproxy.Proxy) {
	addrs := redistest.Cluster(t)
	proxies, dial := faultproxy.Before(t, addrs...)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Dialer: dial})
	t.Cleanup(func() { _ = client.Close() })
	return client, redistest.ClusterClient(t, addrs), proxies
}

// loseReplies makes calls while the proxies fail, and then compares what each key was charged with the account of its
// calls.
func loseReplies(t testing.TB, l, auditor *core.Limiter, proxies []*faultproxy.Proxy) {
	const keys, callers, lasts = 12, 24, 3 * time.Second
	awaitRedis(t, l, "first")
	end := time.Now().Add(lasts)
	var mu sync.Mutex
	accounts := make([]account, keys)
	lost := 0
	note := func(i int, err error, exact, least, most int64) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			accounts[i].add(exact, exact)
		case !errors.Is(err, core.ErrUnavailable):
			t.Error(err)
		default:
			lost++
			accounts[i].add(least, most)
		}
	}
	unsent := func(err error) bool { return err != nil && strings.Contains(err.Error(), "breaker open") }
	var running sync.WaitGroup
	for c := range callers {
		running.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for ; time.Now().Before(end); time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond) {
				i := r.IntN(keys)
				key := fmt.Sprint("k", i)
				if r.IntN(3) == 0 {
					if _, err := l.AllowN(t.Context(), key, 2); !unsent(err) {
						note(i, err, 2, 0, 2)
					}
					continue
				}
				res, err := l.Reserve(t.Context(), key, 5)
				if err != nil {
					if !unsent(err) {
						note(i, err, 0, 0, 5)
					}
					continue
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
				switch actual := r.Int64N(10); r.IntN(8) {
				case 0: // the caller does not settle
					note(i, nil, 5, 0, 0)
				default:
					if err := res.Settle(t.Context(), actual); unsent(err) {
						note(i, nil, 5, 0, 0)
					} else {
						note(i, err, actual, min(5, actual), max(5, actual))
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for time.Now().Before(end) {
		p := proxies[r.IntN(len(proxies))]
		switch r.IntN(4) {
		case 0:
			p.Reset()
		case 1:
			p.HalfReply("EVALSHA", "EVAL")
		default:
			p.DropReply("EVALSHA", "EVAL")
		}
		time.Sleep(time.Duration(5+r.IntN(20)) * time.Millisecond)
		p.Reset() // ends the calls that wait for a reply
		p.Pass()
		time.Sleep(time.Duration(50+r.IntN(400)) * time.Millisecond)
	}
	running.Wait()
	ran, acknowledged := int64(0), int64(0)
	for i, a := range accounts {
		res, err := auditor.Peek(t.Context(), fmt.Sprint("k", i))
		check.Need(t, err)
		for each := range res.All() {
			if used := each.Limit - each.Remaining; used < a.least || used > a.most {
				t.Errorf("key k%d: %d units of %s are used, want %d to %d", i, used, each.LimitName, a.least, a.most)
			}
		}
		ran += res.Limit - res.Remaining - a.least
		acknowledged += a.least
	}
	t.Logf("%d calls failed; %d units were acknowledged, and calls that failed charged %d more", lost, acknowledged, ran)
	if lost == 0 || acknowledged == 0 || ran == 0 {
		t.Errorf("%d calls failed, %d units were acknowledged, and calls that failed charged %d more; want some of each", lost, acknowledged, ran)
	}
}

// holdsFor returns the Hold for tests of renewals: long enough for a machine that is as slow as a round tolerates.
func holdsFor(timeout time.Duration) time.Duration { return 2 * timeout }

// TestKeepHeldInOutage checks that Keep keeps units from expiring while Redis answers. While Redis is away for longer than
// their hold, the units expire and are charged. A later Settle then charges only the units beyond them. Units held by the
// fallback are kept, too.
func TestKeepHeldInOutage(t *testing.T) {
	base := runtime.NumGoroutine()
	check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) {
		e, hold := newEnv(t, setup{}), holdsFor(timeout)
		l, _ := limiter(e.rdb, "kept", core.Timeout(timeout), core.Hold(hold))
		defer func() { _ = l.Close() }()
		awaitRedis(t, l, "k")
		well, away, more := reserve(t, l, 3, core.SourceRedis), reserve(t, l, 4, core.SourceRedis), reserve(t, l, 5, core.SourceRedis)
		for _, res := range []*core.Reservation{well, away, more} {
			res.Keep()
		}
		time.Sleep(3 * hold)
		settled(t, well, 0) // this could not give back the units if their hold had expired
		if n := e.used(t, "kept", "k"); n != 9 {
			t.Errorf("%d units are used, want the 9 that are kept", n)
		}
		e.proxy.Refuse()
		check.Eventually(t, "Redis is away", func() bool {
			res, _ := l.Peek(t.Context(), "k")
			return res.Source == core.SourceFallback
		})
		local := reserve(t, l, 6, core.SourceFallback)
		local.Keep()
		time.Sleep(3 * hold)
		settled(t, local, 1)
		mode{share: 1}.wantLocal(t, l, 1)
		e.proxy.Pass()
		awaitRedis(t, l, "k")
		settled(t, away, 0)
		settled(t, more, 7)
		if n := e.used(t, "kept", "k"); n != 4+7 {
			t.Errorf("%d units are used, want the 4 that expired and 7", n)
		}
	})
	check.NoGoroutineLeft(t, base)
}

// settled settles r, which must succeed.
func settled(tb testing.TB, r *core.Reservation, actual int64) {
	tb.Helper()
	if err := r.Settle(tb.Context(), actual); err != nil {
		tb.Errorf("Settle(%d): got error %v, want nil", actual, err)
	}
}

// TestRenewalLost loses the reply to a renewal, which may or may not have moved the hold. A Settle then charges only the
// units beyond the held ones, and the held units are charged when the hold expires, whenever that is.
func TestRenewalLost(t *testing.T) {
	t.Parallel()
	for actual, want := range map[int64]int64{0: 4, 6: 6} {
		t.Run(fmt.Sprint(actual), func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) {
				e, hold := newEnv(t, setup{}), holdsFor(timeout)
				l, watch := limiter(e.rdb, "renewed", core.FailClosed(), core.Timeout(timeout), core.Hold(hold))
				defer func() { _ = l.Close() }()
				awaitRedis(t, l, "k")
				res := reserve(t, l, 4, core.SourceRedis)
				e.proxy.DropReply("EVALSHA", "EVAL")
				res.Keep()
				check.Eventually(t, "a renewal is lost", func() bool { return watch.count(core.EventOutage) > 0 })
				e.proxy.Pass()
				awaitRedis(t, l, "k")
				settled(t, res, actual)
				if n := e.used(t, "renewed", "k"); n != want {
					t.Errorf("%d units are used, want %d", n, want)
				}
				time.Sleep(2 * hold)
				if n := e.used(t, "renewed", "k"); n != want {
					t.Errorf("%d units are used after the hold has expired, want %d", n, want)
				}
			})
		})
	}
}
