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

// unlimitedCases test limits that count nothing: Unlimited, and a limit of 0.
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

// uncounted returns the Source of a decision that needs no counting: in memory SourceMemory, as for any decision.
func (s Store) uncounted() core.Source {
	if s.Redis == nil {
		return core.SourceMemory
	}
	return core.SourceUncounted
}

// isUnlimited checks that a Result describes only Unlimited limits and was decided by source.
func isUnlimited(t *testing.T, what string, res core.Result, source core.Source) {
	t.Helper()
	want := core.Result{
		Allowed: true, Source: source, Limit: math.MaxInt64, Remaining: math.MaxInt64, At: res.At, LimiterName: res.LimiterName, LimitName: "unlimited",
	}
	if res != want || !res.Unlimited() || res.At.IsZero() || len(slices.Collect(res.All())) != 1 {
		t.Errorf("%s: got %+v, want %+v", what, res, want)
	}
}

// isZero checks that a Result is a denial by a limit of 0 alone and was decided by source.
func isZero(t *testing.T, what string, res core.Result, limit core.Limit, source core.Source) {
	t.Helper()
	want := core.Result{
		Source: source, RetryAfter: core.Never, Window: res.Window, At: res.At, LimiterName: res.LimiterName, LimitName: limit.Name(),
	}
	slots := limits.Named(limit.Algorithm()).Kind.Slots
	if res != want || res.Unlimited() || res.At.IsZero() || (res.Window == 0) != slots || len(slices.Collect(res.All())) != 1 {
		t.Errorf("%s: got %+v, want %+v", what, res, want)
	}
}

// zeroLimit sets the limit of a key to 0 and makes each kind of call. Units that were used before stay used until a Reset.
func zeroLimit(t *testing.T, s Store, limit maker) {
	ctx, none := t.Context(), limit(core.Per(0, 10*time.Second))
	kind := limits.Named(none.Algorithm()).Kind
	lim := s.limiter(t, "zero", limit(tenPerTen))
	zero := with(t, lim, none)
	if _, err := s.New("literal", none); err == nil {
		t.Error("New accepted a limit of 0, want an error")
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
		t.Errorf("a cost of 0: got %+v, want it allowed with Limit 0", res)
	}
	settle(t, reserve(t, zero, "k", 0), 7)
	if _, err := zero.AcquireWait(ctx, "k", 1); !errors.Is(err, core.ErrNeverAdmitted) {
		t.Errorf("AcquireWait: got error %v, want ErrNeverAdmitted", err)
	}
	if !kind.Slots && !kind.Delays {
		granted, res, err := zero.AllowUpTo(ctx, "k", 5)
		if check.OK(t, err); granted != 0 {
			t.Errorf("AllowUpTo granted %d units, want 0", granted)
		}
		isZero(t, "AllowUpTo", res, none, s.uncounted())
	}
	remains(t, lim, "k", used)
	check.OK(t, zero.Reset(ctx, "k"))
	if !kind.Slots {
		remains(t, lim, "k", 10)
	}
}

// besideOthers uses an Unlimited beside a limit, which decides as if it were alone, and then a limit of 0, which denies
// without charging the other limit.
func besideOthers(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "beside", limit(tenPerTen))
	for _, l := range []*core.Limiter{
		with(t, lim, limit(tenPerTen), core.Unlimited()), with(t, lim, limit(tenPerTen), core.Unlimited(), core.Unlimited()),
		s.others(t, lim, limit(tenPerTen), core.Unlimited()),
	} {
		before := peek(t, lim, "k").Remaining
		res := admit(t, l, "k", 2)
		if !res.Allowed || res.Remaining != before-2 || res.Limit != 10 || res.Unlimited() || len(slices.Collect(res.All())) != 1 {
			t.Errorf("%v: got %+v, want it allowed, with the result of the counted limit alone", l.Limits(), res)
		}
		remains(t, lim, "k", before-2)
		isDenied := admit(t, l, "k", 11)
		if isDenied.Allowed || isDenied.LimitName != res.LimitName {
			t.Errorf("%v, a cost of 11: got %+v, want a denial by %s", l.Limits(), isDenied, res.LimitName)
		}
	}
	none := core.FixedWindow(core.PerDay(0), core.LimitName("none"))
	before := peek(t, lim, "k").Remaining
	for _, more := range [][]core.Limit{{limit(tenPerTen), none}, {limit(tenPerTen), core.Unlimited(), none}} {
		isZero(t, "beside", admit(t, with(t, lim, more...), "k", 1), none, s.uncounted())
	}
	remains(t, lim, "k", before)
}

// unlimitedAlone asks for any number of units in each kind of call. Nothing is stored, and the used units of another limit
// stay used.
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
			t.Errorf("AllowUpTo granted %d units, want %d", granted, n)
		}
		isUnlimited(t, "AllowUpTo", res, s.uncounted())
		res, err = lim.WaitN(ctx, "k", n)
		check.OK(t, err)
		isUnlimited(t, "WaitN", res, s.uncounted())
	}
	isUnlimited(t, "Peek", peek(t, lim, "k"), s.uncounted())
	if _, err := lim.AllowN(ctx, "", 1); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("an empty key: got error %v, want ErrInvalidKey", err)
	}
	if _, err := lim.AllowN(ctx, "k", -1); !errors.Is(err, core.ErrInvalidCost) {
		t.Errorf("a negative cost: got error %v, want ErrInvalidCost", err)
	}
	s.unstored(t)
	limited := with(t, lim, core.FixedWindow(tenPerTen))
	allowN(t, limited, "k", 4)
	check.OK(t, lim.Reset(ctx, "k"))
	remains(t, limited, "k", 6)
}

// unlimitedBans checks that a limiter without a limit denies banned keys: during a ban that a limit began, during one by
// hand, and not after its end.
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
		t.Errorf("got %+v, want a ban reported by the Unlimited", res)
	}
	for what, res := range map[string]core.Result{
		"a cost of 0": allowN(t, free, "k", 0), "Peek": peek(t, free, "k"), "Acquire": acquire(t, free, "k", 1).Result,
		"Reserve": reserve(t, free, "k", 0).Result,
	} {
		if !res.Banned || res.Allowed {
			t.Errorf("%s: got %+v, want a denial by the ban", what, res)
		}
	}
	if granted, res, err := free.AllowUpTo(ctx, "k", 5); err != nil || granted != 0 || !res.Banned {
		t.Errorf("AllowUpTo: got %d, %+v, %v; want 0 granted because of the ban", granted, res, err)
	}
	check.OK(t, free.Reset(ctx, "k")) // Reset keeps the ban
	banned(t, peek(t, free, "k"), 59*time.Second)
	check.OK(t, free.Unblock(ctx, "k"))
	isUnlimited(t, "unblocked", allowN(t, free, "k", 1), source)
	settle(t, reserve(t, free, "k", 5), 1e6)
	if s.Redis != nil && slices.ContainsFunc(s.keys(t), func(key string) bool { return strings.HasSuffix(key, ":unlimited") }) {
		t.Errorf("%v is stored at %v, want no key of an Unlimited", s.dump(t), s.keys(t))
	}
	check.OK(t, free.Block(ctx, "k", time.Hour))
	banned(t, peek(t, lim, "k"), time.Hour)
	banned(t, allowN(t, free, "k", 1), time.Hour)
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := free.Wait(brief, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait on a banned key: got error %v, want context.DeadlineExceeded", err)
	}
}

// zeroBans checks that the denials of a limit of 0 ban nobody, and that such a limit does not hide a ban.
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
		t.Errorf("after denials by a limit of 0: got %+v, want no ban", res)
	}
	check.OK(t, lim.Block(ctx, "k", time.Hour))
	banned(t, allowN(t, zero, "k", 1), time.Hour)
	banned(t, allowN(t, zero, "k", 0), time.Hour)
	check.OK(t, zero.Unblock(ctx, "k"))
	isZero(t, "unblocked", allowN(t, zero, "k", 1), none, source)
}

// unlimitedTogether decides on a user and an organization together: on users without a limit, with a limit of 0, and
// banned. The organization's limit is charged only if all limiters admit.
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
			t.Errorf("%s: got %+v, want it allowed, with the result of org alone", name, res)
		}
		remains(t, org, "o", left)
		res, err = ways[name](org.On("o"), zero.On("k"), rest.On("r"))
		check.Need(t, err)
		if res.Allowed || res.LimiterName != "user" || res.Limit != 0 || res.RetryAfter != core.Never {
			t.Errorf("%s, with a limit of 0: got %+v, want a denial forever by user", name, res)
		}
		res, err = ways[name](org.On("o"), free.On("banned"))
		check.Need(t, err)
		if res.Allowed || !res.Banned || res.LimiterName != "user" {
			t.Errorf("%s, banned: got %+v, want a denial by the ban of user", name, res)
		}
		res, err = ways[name](rest.On("a"), rest.On("b"))
		check.Need(t, err)
		if !res.Allowed || !res.Unlimited() {
			t.Errorf("%s, all unlimited: got %+v, want it allowed without a limit", name, res)
		}
		check.Eventually(t, "the held units are given back", func() bool { return peek(t, org, "o").Remaining == left })
	}
	if res, err := core.AllowAll(ctx, 0, org.On("o"), zero.On("k"), rest.On("r")); err != nil || !res.Allowed {
		t.Errorf("a cost of 0: got %+v, %v; want it allowed", res, err)
	}
	if res, err := core.AllowAll(ctx, 5, org.On("o"), free.On("k")); err != nil || res.Allowed || res.LimiterName != "org" {
		t.Errorf("more units than the organization has: got %+v, %v; want a denial by org", res, err)
	}
}

// unlimitedWaits makes calls without a limit while another caller waits for the units of a limit of the same key: such a
// call does not wait behind the other caller.
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
	check.Receive(t, "the first caller waits", waiter.Waits())
	brief, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := free.Wait(brief, "k"); err != nil {
		t.Errorf("Wait without a limit, behind a waiting caller: got error %v, want it admitted", err)
	}
	res := core.Result{}
	waiting := coreaccess.Waiting{Key: "k", N: 1, UpTo: time.Minute, Most: 10}
	if _, err := inside.Core.AcquireUpTo(brief, free, waiting, &res); err != nil || !res.Allowed {
		t.Errorf("AcquireUpTo without a limit, behind a waiting caller: got %+v, %v; want it admitted", res, err)
	}
	leave()
	if err := check.Receive(t, "the waiting caller returns", left); !errors.Is(err, context.Canceled) {
		t.Errorf("the waiting caller got error %v, want context.Canceled", err)
	}
}

// unlimitedLease checks that no lease is taken for keys without a limit, with and without bans.
func unlimitedLease(t *testing.T, s Store) {
	s.needsRedis(t, "a store in memory has no leases")
	for _, more := range []core.Option{core.Options(), core.Ban(time.Minute)} {
		lim := s.limiter(t, "lease", core.FixedWindow(core.PerHour(1e6)), core.Lease(time.Second), more,
			inside.Core.Simulate(coreaccess.Simulation{HotDecisions: 2}))
		for _, l := range []*core.Limiter{with(t, lim, core.Unlimited()), with(t, lim, core.FixedWindow(core.PerHour(0)))} {
			for range 20 {
				if res := allowN(t, l, "k", 1); res.Source == core.SourceLease {
					t.Errorf("%v: got %+v, want a decision without a lease", l.Limits(), res)
				}
			}
			if n := inside.Core.Driver(lim).Open(); n != 0 {
				t.Errorf("%v: %d leases are open, want 0", l.Limits(), n)
			}
		}
		leased := with(t, lim, core.Unlimited(), core.FixedWindow(core.PerHour(1e6)))
		for range 20 {
			allowN(t, leased, "k", 1)
		}
		if res := allowN(t, leased, "k", 1); res.Source != core.SourceLease || res.Limit != 1e6 {
			t.Errorf("a limit beside an Unlimited: got %+v, want a decision by a lease", res)
		}
	}
}
