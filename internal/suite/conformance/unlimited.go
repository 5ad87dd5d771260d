package conformance

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// unlimitedCases are about limits that count nothing: an Unlimited, and a limit of 0.
func unlimitedCases() []testCase {
	return slices.Concat(
		eachWithSlots("Unlimited/Zero", zeroLimit),
		eachWithSlots("Unlimited/Beside", besideOthers),
		[]testCase{
			{"Unlimited/Alone", unlimitedAlone},
			{"Unlimited/Bans", unlimitedBans},
			{"Unlimited/ZeroBans", zeroBans},
			{"Unlimited/All", unlimitedTogether},
			{"Unlimited/Wait", unlimitedWaits},
			{"Unlimited/Lease", unlimitedLease},
		},
	)
}

// uncounted is the Source of a decision for which nobody is asked.
func (s Store) uncounted() core.Source {
	if s.Redis == nil {
		return core.SourceMemory
	}
	return core.SourceUncounted
}

// isUnlimited fails unless a Result describes limits that are all Unlimited, and was decided by source.
func isUnlimited(t *testing.T, what string, res core.Result, source core.Source) {
	t.Helper()
	want := core.Result{
		Allowed: true, Source: source, Limit: math.MaxInt64, Remaining: math.MaxInt64, At: res.At, LimiterName: res.LimiterName, LimitName: "unlimited",
	}
	if res != want || !res.Unlimited() || res.At.IsZero() || len(slices.Collect(res.All())) != 1 {
		t.Errorf("%s: %+v, want %+v", what, res, want)
	}
}

// isZero fails unless a Result is a denial by a limit of 0 alone, decided by source.
func isZero(t *testing.T, what string, res core.Result, limit core.Limit, source core.Source) {
	t.Helper()
	want := core.Result{
		Source: source, RetryAfter: core.Never, Window: res.Window, At: res.At, LimiterName: res.LimiterName, LimitName: limit.Name(),
	}
	slots := limits.Named(limit.Algorithm()).Kind.Slots
	if res != want || res.Unlimited() || res.At.IsZero() || (res.Window == 0) != slots || len(slices.Collect(res.All())) != 1 {
		t.Errorf("%s: %+v, want %+v", what, res, want)
	}
}

// zeroLimit makes the limit of a key 0, in each way to ask. What was used stays used, until a Reset.
func zeroLimit(t *testing.T, s Store, limit maker) {
	ctx, none := t.Context(), limit(core.Per(0, 10*time.Second))
	kind := limits.Named(none.Algorithm()).Kind
	lim := s.limiter(t, "zero", limit(tenPerTen))
	zero := with(t, lim, none)
	if _, err := s.New("literal", none); err == nil {
		t.Error("New takes a limit of 0")
	}
	admit(t, lim, "k", 3)
	used := peek(t, lim, "k").Remaining
	for _, n := range []int64{1, 11, math.MaxInt64} {
		isZero(t, "plain", admit(t, zero, "k", n), none, s.uncounted())
	}
	isZero(t, "Peek", peek(t, zero, "k"), none, s.uncounted())
	for what, g := range map[string]grant{"Acquire": acquire(t, zero, "k", 1), "Reserve": reserve(t, zero, "k", 1)} {
		isZero(t, what, g.Result, none, s.uncounted())
		settle(t, g, 7)
	}
	if res := admit(t, zero, "k", 0); !res.Allowed || res.Limit != 0 || res.RetryAfter != 0 {
		t.Errorf("a cost of 0: %+v", res)
	}
	settle(t, reserve(t, zero, "k", 0), 7)
	if _, err := zero.AcquireWait(ctx, "k", 1); !errors.Is(err, core.ErrNeverAdmitted) {
		t.Errorf("AcquireWait: %v", err)
	}
	if !kind.Slots && !kind.Delays {
		granted, res, err := zero.AllowUpTo(ctx, "k", 5)
		if check.OK(t, err); granted != 0 {
			t.Errorf("AllowUpTo grants %d", granted)
		}
		isZero(t, "AllowUpTo", res, none, s.uncounted())
	}
	remains(t, lim, "k", used)
	check.OK(t, zero.Reset(ctx, "k"))
	if !kind.Slots {
		remains(t, lim, "k", 10)
	}
}

// besideOthers has an Unlimited beside a limit, which decides as if it was alone, and then a limit of 0, which denies without
// charging the other.
func besideOthers(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "beside", limit(tenPerTen))
	for _, l := range []*core.Limiter{
		with(t, lim, limit(tenPerTen), core.Unlimited()), with(t, lim, limit(tenPerTen), core.Unlimited(), core.Unlimited()),
		s.others(t, lim, limit(tenPerTen), core.Unlimited()),
	} {
		before := peek(t, lim, "k").Remaining
		res := admit(t, l, "k", 2)
		if !res.Allowed || res.Remaining != before-2 || res.Limit != 10 || res.Unlimited() || len(slices.Collect(res.All())) != 1 {
			t.Errorf("%v: %+v", l.Limits(), res)
		}
		remains(t, lim, "k", before-2)
		isDenied := admit(t, l, "k", 11)
		if isDenied.Allowed || isDenied.LimitName != res.LimitName {
			t.Errorf("%v: %+v", l.Limits(), isDenied)
		}
	}
	none := core.FixedWindow(core.PerDay(0), core.LimitName("none"))
	before := peek(t, lim, "k").Remaining
	for _, asked := range [][]core.Limit{{limit(tenPerTen), none}, {limit(tenPerTen), core.Unlimited(), none}} {
		isZero(t, "beside", admit(t, with(t, lim, asked...), "k", 1), none, s.uncounted())
	}
	remains(t, lim, "k", before)
}

// unlimitedAlone asks for any number of units, in each way. Nothing is stored, and what was used of another limit stays used.
func unlimitedAlone(t *testing.T, s Store) {
	ctx := t.Context()
	lim := s.limiter(t, "alone", core.Unlimited(), core.Unlimited())
	for _, n := range []int64{0, 1, 1e9, math.MaxInt64} {
		isUnlimited(t, "AllowN", allowN(t, lim, "k", n), s.uncounted())
		acquired, reserved := acquire(t, lim, "k", n), reserve(t, lim, "k", n)
		isUnlimited(t, "Acquire", acquired.Result, s.uncounted())
		isUnlimited(t, "Reserve", reserved.Result, s.uncounted())
		reserved.Keep()
		settle(t, reserved, 1e9)
		release(t, acquired)
		granted, res, err := lim.AllowUpTo(ctx, "k", n)
		if check.OK(t, err); granted != n {
			t.Errorf("AllowUpTo grants %d of %d", granted, n)
		}
		isUnlimited(t, "AllowUpTo", res, s.uncounted())
		res, err = lim.WaitN(ctx, "k", n)
		check.OK(t, err)
		isUnlimited(t, "WaitN", res, s.uncounted())
	}
	isUnlimited(t, "Peek", peek(t, lim, "k"), s.uncounted())
	if _, err := lim.AllowN(ctx, "", 1); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("an empty key: %v", err)
	}
	if _, err := lim.AllowN(ctx, "k", -1); !errors.Is(err, core.ErrInvalidCost) {
		t.Errorf("a negative cost: %v", err)
	}
	s.unstored(t)
	limited := with(t, lim, core.FixedWindow(tenPerTen))
	allowN(t, limited, "k", 4)
	check.OK(t, lim.Reset(ctx, "k"))
	remains(t, limited, "k", 6)
}

// unlimitedBans looks for bans: one that a limit began, one by hand, and its end.
func unlimitedBans(t *testing.T, s Store) {
	ctx, source := t.Context(), core.SourceRedis
	if s.Redis == nil {
		source = core.SourceMemory
	}
	lim := s.limiter(t, "ban", core.FixedWindow(tenPerTen), core.Ban(time.Minute))
	free := with(t, lim, core.Unlimited())
	isUnlimited(t, "no ban", allowN(t, free, "k", 1e12), source)
	banned(t, allowN(t, lim, "k", 11), 0)
	allowN(t, lim, "k", 10)
	banned(t, allowN(t, lim, "k", 1), time.Minute)
	s.Advance(time.Second)
	res := allowN(t, free, "k", 1)
	if banned(t, res, 59*time.Second); !res.Unlimited() || res.LimitName != "unlimited" {
		t.Errorf("%+v, want banned", res)
	}
	for what, res := range map[string]core.Result{
		"a cost of 0": allowN(t, free, "k", 0), "Peek": peek(t, free, "k"), "Acquire": acquire(t, free, "k", 1).Result,
		"Reserve": reserve(t, free, "k", 0).Result,
	} {
		if !res.Banned || res.Allowed {
			t.Errorf("%s: %+v, want banned", what, res)
		}
	}
	if granted, res, err := free.AllowUpTo(ctx, "k", 5); err != nil || granted != 0 || !res.Banned {
		t.Errorf("AllowUpTo: %d, %+v, %v", granted, res, err)
	}
	check.OK(t, free.Reset(ctx, "k")) // which keeps the ban
	banned(t, peek(t, free, "k"), 59*time.Second)
	check.OK(t, free.Unblock(ctx, "k"))
	isUnlimited(t, "unblocked", allowN(t, free, "k", 1), source)
	settle(t, reserve(t, free, "k", 5), 1e6)
	if s.Redis != nil && slices.ContainsFunc(s.keys(t), func(key string) bool { return strings.HasSuffix(key, ":unlimited") }) {
		t.Errorf("what is not limited is stored: %v", s.dump(t))
	}
	check.OK(t, free.Block(ctx, "k", time.Hour))
	banned(t, peek(t, lim, "k"), time.Hour)
	banned(t, allowN(t, free, "k", 1), time.Hour)
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := free.Wait(brief, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait: %v", err)
	}
}

// zeroBans has a limit of 0 deny again and again, which bans nobody; and it does not hide a ban.
func zeroBans(t *testing.T, s Store) {
	ctx, none, source := t.Context(), core.TokenBucket(core.PerMinute(0), core.Burst(0)), core.SourceRedis
	if s.Redis == nil {
		source = core.SourceMemory
	}
	lim := s.limiter(t, "zeroban", core.TokenBucket(core.PerMinute(10)), core.Ban(time.Minute))
	zero := with(t, lim, none)
	for range 3 {
		isZero(t, "denied", allowN(t, zero, "k", 1), none, source)
	}
	if res := peek(t, lim, "k"); !res.Allowed {
		t.Errorf("a limit of 0 has banned: %+v", res)
	}
	check.OK(t, lim.Block(ctx, "k", time.Hour))
	banned(t, allowN(t, zero, "k", 1), time.Hour)
	banned(t, allowN(t, zero, "k", 0), time.Hour)
	check.OK(t, zero.Unblock(ctx, "k"))
	isZero(t, "unblocked", allowN(t, zero, "k", 1), none, source)
}

// unlimitedTogether has users without a limit, with one of 0, and banned ones decide together with their organization, whose
// limit is charged only if all admit.
func unlimitedTogether(t *testing.T, s Store) {
	ctx, left := t.Context(), int64(10)
	user, org := s.limiter(t, "user", core.FixedWindow(tenPerTen), core.Ban()), s.limiter(t, "org", core.FixedWindow(tenPerTen))
	free, zero := with(t, user, core.Unlimited()), with(t, user, core.FixedWindow(core.PerDay(0)))
	rest := s.limiter(t, "rest", core.Unlimited())
	check.Need(t, user.Block(ctx, "banned", time.Hour))
	ways := map[string]func(keys ...core.Keyed) (core.Result, error){
		"All": func(keys ...core.Keyed) (core.Result, error) { return core.AllowAll(ctx, 2, keys...) },
		"AcquireAll": func(keys ...core.Keyed) (core.Result, error) {
			r, err := core.AcquireAll(ctx, 2, keys...)
			check.OK(t, r.Release(ctx))
			return r.Decided(), err
		},
		"ReserveAll": func(keys ...core.Keyed) (core.Result, error) {
			r, err := core.ReserveAll(ctx, 1, keys...)
			check.OK(t, r.Settle(ctx, 2))
			return r.Decided(), err
		},
	}
	for _, name := range []string{"All", "AcquireAll", "ReserveAll"} {
		res, err := ways[name](free.On("k"), org.On("o"), rest.On("r"))
		check.Need(t, err)
		left -= 2
		if !res.Allowed || res.LimiterName != "org" || res.Unlimited() || len(slices.Collect(res.All())) != 1 {
			t.Errorf("%s: %+v", name, res)
		}
		remains(t, org, "o", left)
		res, err = ways[name](org.On("o"), zero.On("k"), rest.On("r"))
		check.Need(t, err)
		if res.Allowed || res.LimiterName != "user" || res.Limit != 0 || res.RetryAfter != core.Never {
			t.Errorf("%s, with a limit of 0: %+v", name, res)
		}
		res, err = ways[name](org.On("o"), free.On("banned"))
		check.Need(t, err)
		if res.Allowed || !res.Banned || res.LimiterName != "user" {
			t.Errorf("%s, banned: %+v", name, res)
		}
		res, err = ways[name](rest.On("a"), rest.On("b"))
		check.Need(t, err)
		if !res.Allowed || !res.Unlimited() {
			t.Errorf("%s, all unlimited: %+v", name, res)
		}
		check.Eventually(t, "what was held is given back", func() bool { return peek(t, org, "o").Remaining == left })
	}
	if res, err := core.AllowAll(ctx, 0, org.On("o"), zero.On("k"), rest.On("r")); err != nil || !res.Allowed {
		t.Errorf("a cost of 0: %+v, %v", res, err)
	}
	if res, err := core.AllowAll(ctx, 5, org.On("o"), free.On("k")); err != nil || res.Allowed || res.LimiterName != "org" {
		t.Errorf("the organization denies: %+v, %v", res, err)
	}
}

// unlimitedWaits asks for units without a limit while another waits for those of a limit of the same key.
func unlimitedWaits(t *testing.T, s Store) {
	lim := s.limiter(t, "waits", core.FixedWindow(core.PerHour(1)))
	free := with(t, lim, core.Unlimited())
	allowN(t, lim, "k", 1)
	ctx, leave := context.WithCancel(t.Context())
	waiter, left := check.NewWaiter(ctx), make(chan error, 1)
	go func() {
		_, err := lim.Wait(waiter, "k")
		left <- err
	}()
	check.Receive(t, "the first waits", waiter.Waits())
	brief, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := free.Wait(brief, "k"); err != nil {
		t.Errorf("behind who waits for units: %v", err)
	}
	res := core.Result{}
	waiting := coreaccess.Waiting{Key: "k", N: 1, UpTo: time.Minute, Most: 10}
	if _, err := inside.Core.AcquireUpTo(brief, free, waiting, &res); err != nil || !res.Allowed {
		t.Errorf("a request behind who waits: %+v, %v", res, err)
	}
	leave()
	if err := check.Receive(t, "who waits", left); !errors.Is(err, context.Canceled) {
		t.Errorf("who waits: %v", err)
	}
}

// unlimitedLease leases nothing for keys without a limit, whether bans are looked for or not.
func unlimitedLease(t *testing.T, s Store) {
	s.needsRedis(t, "leases are of Redis")
	for _, more := range []core.Option{core.Options(), core.Ban(time.Minute)} {
		lim := s.limiter(t, "lease", core.FixedWindow(core.PerHour(1e6)), core.Lease(time.Second), more,
			inside.Core.Simulate(coreaccess.Simulation{HotDecisions: 2}))
		for _, l := range []*core.Limiter{with(t, lim, core.Unlimited()), with(t, lim, core.FixedWindow(core.PerHour(0)))} {
			for range 20 {
				if res := allowN(t, l, "k", 1); res.Source == core.SourceLease {
					t.Errorf("%v: %+v", l.Limits(), res)
				}
			}
			if n := inside.Core.Driver(lim).Open(); n != 0 {
				t.Errorf("%v: %d leases are open", l.Limits(), n)
			}
		}
		leased := with(t, lim, core.Unlimited(), core.FixedWindow(core.PerHour(1e6)))
		for range 20 {
			allowN(t, leased, "k", 1)
		}
		if res := allowN(t, leased, "k", 1); res.Source != core.SourceLease || res.Limit != 1e6 {
			t.Errorf("beside an Unlimited: %+v", res)
		}
	}
}
