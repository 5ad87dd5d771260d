package outage

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// slotKey is the Redis key of the slots in these tests.
const slotKey = "rl:slots:{k}:inflight"

// take takes n slots. The call may be denied.
func take(t testing.TB, l *core.Limiter, n int64) *core.Permit {
	t.Helper()
	r, err := l.Acquire(t.Context(), "k", n)
	check.Need(t, err)
	return r
}

// slotEnv is an env with a Limiter of one slot for each key. If hold is long, the slot is renewed only when the test does
// so.
type slotEnv struct {
	*env
	lim  *core.Limiter
	lost atomic.Int64
}

func newSlotEnv(t testing.TB, hold time.Duration, options ...core.Option) *slotEnv {
	t.Helper()
	e := &slotEnv{env: newEnv(t, setup{})}
	observe := core.Observe(func(_ context.Context, ev core.Event) {
		if ev.Kind == core.EventSlotLost {
			e.lost.Add(ev.Cost)
		}
	})
	e.lim, _ = watched(e.rdb, "slots", append(options, core.InFlight(1, core.SlotTTL(hold)), observe)...)
	t.Cleanup(func() { _ = e.lim.Close() })
	return e
}

// expires returns the instant until which Redis holds the slot of the key, in microseconds, or 0 if it does not hold one.
func (e *slotEnv) expires(t testing.TB) float64 {
	t.Helper()
	slots, err := e.admin.ZRangeWithScores(t.Context(), slotKey, 0, -1).Result()
	if err != nil || len(slots) > 1 {
		t.Fatalf("Redis holds the slots %v, %v; want at most one", slots, err)
	}
	if len(slots) == 0 {
		return 0
	}
	if ttl := e.admin.PTTL(t.Context(), slotKey).Val(); ttl <= 0 && ttl != -2 { // -2: the slot has just been freed
		t.Errorf("the key of the slots has a TTL of %v, want one above 0", ttl)
	}
	return slots[0].Score
}

// renewUntil renews until the slot is held for longer than before. This may take a while, because the circuit breaker may
// be open.
func (e *slotEnv) renewUntil(t testing.TB, before float64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); e.expires(t) <= before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the slot was not renewed within a minute")
		}
		inside.Core.Driver(e.lim).Renew()
	}
}

// TestSlotOutlastsLostReplies loses or delays the reply to a renewal: whether or not the renewal has run, the next renewal
// must find the slot. The test would notice a holder that loses its slot because it does not know the expiry that Redis has
// stored.
func TestSlotOutlastsLostReplies(t *testing.T) {
	t.Parallel()
	check.Rounds(t, timeouts, slotOutlastsLostReplies)
}

func slotOutlastsLostReplies(t *check.Round, timeout time.Duration) {
	e := newSlotEnv(t, time.Hour, core.FailClosed(), core.Timeout(timeout))
	r := take(t, e.lim, 1)
	ctx, cancel := r.Context(t.Context())
	defer cancel()
	before := e.expires(t)
	for name, fault := range map[string]func(){
		"reply dropped": func() { e.proxy.DropReply("evalsha", "eval") },
		"half a reply":  func() { e.proxy.HalfReply("evalsha", "eval") },
		"slow":          func() { e.proxy.Latency(2 * timeout) },
		"silent":        e.proxy.Silence,
		"refused":       e.proxy.Refuse,
	} {
		fault()
		inside.Core.Driver(e.lim).Renew()
		inside.Core.Driver(e.lim).Renew()
		e.proxy.Pass()
		e.renewUntil(t, max(before, e.expires(t)))
		before = e.expires(t)
		if ctx.Err() != nil || e.lost.Load() != 0 {
			t.Fatalf("%s: the slot was reported lost, with the cause %v; want it held", name, context.Cause(ctx))
		}
		if other := core.MustNew(e.admin, "slots", core.InFlight(1), core.FailClosed(), core.Timeout(time.Minute)); take(t, other, 1).Allowed {
			t.Fatalf("%s: another holder was admitted to the slot, want a denial", name)
		}
	}
	check.Need(t, r.Release(t.Context()))
	if e.expires(t) != 0 {
		t.Error("the slot is held after its Release, want it free")
	}
}

// TestLostSlotsAreFreed loses the reply to a decision: the slot that the decision took is freed in the background, by its
// id, once Redis answers again. A Release that cannot be sent is not repeated, and its slot is not renewed, so that the
// slot expires. The test would notice a slot that leaks for the lifetime of the process.
func TestLostSlotsAreFreed(t *testing.T) {
	t.Parallel()
	e := newSlotEnv(t, time.Hour, core.FailLocal(), core.Timeout(time.Minute)) // no call fails because the machine is late
	if err := take(t, e.lim, 1).Release(t.Context()); err != nil {             // now Redis knows the script
		t.Fatal(err)
	}
	e.proxy.DropReply("EVALSHA")
	r := take(t, e.lim, 1)
	if !r.Allowed || r.Source != core.SourceFallback {
		t.Fatalf("Acquire: got %+v, want it admitted by the fallback", r)
	}
	e.proxy.Pass()
	check.Eventually(t, "the slot is freed", func() bool { return e.expires(t) == 0 })
	check.OK(t, r.Release(t.Context()))

	for r = take(t, e.lim, 1); r.Source != core.SourceRedis; r = take(t, e.lim, 1) { // the circuit breaker is open
		check.Need(t, r.Release(t.Context()))
		time.Sleep(10 * time.Millisecond)
	}
	taken := e.expires(t)
	e.proxy.Refuse()
	if err := r.Release(t.Context()); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Release while Redis does not answer: got error %v, want ErrUnavailable", err)
	}
	e.proxy.Pass()
	if err := r.Release(t.Context()); err != nil {
		t.Errorf("a second Release: got error %v, want nil", err)
	}
	inside.Core.Driver(e.lim).Renew()
	if got := e.expires(t); got != taken && got != 0 {
		t.Errorf("after its Release the slot expires at %.0f, want %.0f as before, or no slot", got, taken)
	}
}

// TestSlotIsLostInOutage makes Redis unavailable for longer than the TTL of a slot. The holder finds out by its own clock
// that the slot is lost: before Redis gives the slot to another holder, and not before the TTL is over. The TTL counts from
// when the last renewal was sent, however long the reply took.
func TestSlotIsLostInOutage(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(t testing.TB, e *slotEnv, hold time.Duration){
		"refused": func(_ testing.TB, e *slotEnv, _ time.Duration) { e.proxy.Refuse() },
		"silent":  func(_ testing.TB, e *slotEnv, _ time.Duration) { e.proxy.Silence() },
		"slow": func(t testing.TB, e *slotEnv, hold time.Duration) {
			taken := e.expires(t)
			e.proxy.Latency(hold / 4)
			check.Eventually(t, "the slot is renewed", func() bool { return e.expires(t) > taken })
			time.Sleep(hold * 3 / 10) // until the reply has arrived
			e.proxy.Refuse()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts, func(t *check.Round, hold time.Duration) {
				e := newSlotEnv(t, hold, core.FailLocal(), core.Timeout(time.Minute))
				begun := time.Now()
				r := take(t, e.lim, 1)
				if !r.Allowed || r.Source != core.SourceRedis {
					t.Fatalf("Acquire: got %+v, want it admitted by Redis", r)
				}
				ctx, cancel := r.Context(t.Context())
				defer cancel()
				away(t, e, hold)
				ends := time.UnixMicro(int64(e.expires(t)))
				select {
				case <-ctx.Done():
				case <-time.After(3 * hold):
				}
				took, early := time.Since(begun), time.Until(ends)
				if !errors.Is(context.Cause(ctx), core.ErrSlotLost) || took < hold || early < -hold/20 { // a twentieth is less than the lateness for which a round is repeated
					t.Errorf("after %v, which is %v before the end of the slot, the cause is %v; want ErrSlotLost, not before %v and not after the end", took, early, context.Cause(ctx), hold)
				}
				if n := e.lost.Load(); n != 1 {
					t.Errorf("events reported %d lost slots, want 1", n)
				}
				e.proxy.Pass()
				if err := r.Release(t.Context()); err != nil {
					t.Errorf("Release of a lost slot: got error %v, want nil", err)
				}
			})
		})
	}
}

// TestSlotDenialsAreNotRemembered checks that the deny cache does not remember a denial for want of a slot: as soon as a
// slot is free, the next call is admitted.
func TestSlotDenialsAreNotRemembered(t *testing.T) {
	t.Parallel()
	e := newEnv(t, setup{})
	for name, limits := range map[string][]core.Option{
		"alone":     {core.InFlight(1)},
		"of two":    {core.InFlight(1), core.FixedWindow(core.PerHour(9))},
		"both deny": {core.InFlight(1), core.FixedWindow(core.PerHour(1))},
	} {
		l := core.MustNew(e.rdb, strings.ReplaceAll(name, " ", "-"), append(limits, core.FailClosed(), core.Timeout(time.Minute))...)
		r := take(t, l, 1)
		for _, n := range []int64{1, 1, 2, 2} { // 2 is above the capacity
			if denied := take(t, l, n); denied.Allowed || denied.Source != core.SourceRedis {
				t.Errorf("%s: got %+v, want a denial by Redis", name, denied)
			}
		}
		if err := r.Release(t.Context()); err != nil || !r.Allowed {
			t.Errorf("%s: got %+v and, from its Release, %v; want it admitted and released", name, r, err)
		}
		if again := take(t, l, 1); again.Allowed != (name != "both deny") {
			t.Errorf("%s: after the Release: got %+v, want Allowed %v", name, again, name != "both deny")
		}
	}
}

// TestManySlotsFarAway holds two hundred times as many slots as one script renews, and then moves Redis far away. Each slot
// is renewed before it expires, the existing connections suffice, and no limiter mistakes Redis for one that is down.
func TestManySlotsFarAway(t *testing.T) {
	t.Parallel()
	for _, contextTimeout := range []bool{true, false} {
		t.Run(clientName(contextTimeout), func(t *testing.T) {
			t.Parallel()
			check.Rounds(t, timeouts[1:], func(t *check.Round, timeout time.Duration) {
				const batch, slots = 8, 200 * 8
				e := newEnv(t, withContextTimeout(contextTimeout))
				l, watch := watched(e.rdb, "slots", core.InFlight(slots), core.MaxBatch(batch), core.Timeout(timeout))
				defer func() { _ = l.Close() }()
				awaitRedis(t, l, "k")
				held := make([]*core.Permit, slots)
				check.Together(32, func(caller int) {
					for i := caller; i < slots; i += 32 {
						held[i] = take(t, l, 1)
					}
				})
				e.proxy.Latency(100 * time.Millisecond)
				time.Sleep(12 * time.Second) // the TTL of a slot is 10 s
				if res, err := l.Peek(t.Context(), "k"); err != nil || res.Source != core.SourceRedis || res.Remaining != 0 {
					t.Errorf("Peek: got %+v, %v; want 0 of %d slots remaining, by Redis", res, err, slots)
				}
				if n := watch.count(core.EventSlotLost); n != 0 {
					t.Errorf("%d slots were reported lost, want 0", n)
				}
				watch.wantOutages(t, 0)
				runtime.KeepAlive(held) // a Permit that is garbage would not be renewed
			})
		})
	}
}
