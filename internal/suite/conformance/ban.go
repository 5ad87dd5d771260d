package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// ban returns the option Ban for levels in microseconds.
func ban(levels []int64) core.Option {
	all := make([]time.Duration, len(levels))
	for i, d := range levels {
		all[i] = micros(d)
	}
	return core.Ban(all...)
}

// levels returns up to three random levels, in rising order: mostly short ones, and at most a year.
func (tr *trial) levels() []int64 {
	all, last := make([]int64, tr.IntN(4)), int64(0)
	for i := range all {
		last = max(last, 1000*tr.upTo(365*24*3600*1000))
		all[i] = last
	}
	return all
}

// block bans the key by hand for a random time, or ends its ban.
func (tr *trial) block(t *testing.T) {
	if tr.IntN(2) == 0 {
		tr.unblock(t)
		return
	}
	lasts := 1000 * tr.upTo(24*3600*1000)
	block, model, least := tr.lim.Block, tr.model.Block, tr.IntN(2) == 0
	if least {
		block, model = tr.lim.BlockAtLeast, tr.model.BlockAtLeast
	}
	tr.notef("block for %d, at least: %t", lasts, least)
	check.OK(t, block(t.Context(), "k", micros(lasts)))
	model(tr.now, lasts)
}

func (tr *trial) unblock(t *testing.T) {
	if tr.bans == nil {
		return
	}
	tr.notef("unblock")
	check.OK(t, tr.lim.Unblock(t.Context(), "k"))
	tr.model.Unblock()
}

// banCases test bans in ways that random histories do not reach: which denials ban, which limits share the ban of a key,
// foreign values, many callers at once, and writes that Redis refuses.
func banCases() []testCase {
	return slices.Concat(
		each("Ban/Denials", denialsThatBan),
		each("Ban/Until", banUntilAdmitted),
		[]testCase{
			{"Ban/Held", heldUnitsBanNobody}, {"Ban/InFlight", slotsBanNobody}, {"Ban/Levels", levelsRise},
			{"Ban/ByHand", blockByHand}, {"Ban/AtLeast", levelsOutlastBlock}, {"Ban/StepBack", banCountsAgain},
			{"Ban/Shared", banIsShared}, {"Ban/Many", oneBanOfMany},
			{"Ban/Foreign", foreignBans}, {"Ban/Unwritten", banUnwritten}, {"Ban/Events", banEvents},
		},
	)
}

// banned checks that a Result is a denial: by a ban that ends after lasts, or without a ban if lasts is 0.
func banned(t *testing.T, got core.Result, lasts time.Duration) {
	t.Helper()
	if got.Allowed || got.Banned != (lasts > 0) || lasts > 0 && (got.RetryAfter != lasts || got.ResetAfter != lasts || got.Remaining != 0) {
		t.Errorf("got %+v, want a denial by a ban of %v (0s: without a ban)", got, lasts)
	}
}

// denialsThatBan first makes denials that must not ban: of too large a cost, of a Peek, of waits past their deadline, and
// of a limiter that only looks. Then an ordinary denial bans. During the ban every call is denied and nothing stored
// changes.
func denialsThatBan(t *testing.T, s Store, limit maker) {
	ctx := t.Context()
	lim := s.limiter(t, "ban", limit(tenPerTen), core.Ban(time.Minute))
	allowN(t, lim, "k", 10)
	banned(t, allowN(t, lim, "k", 11), 0)
	banned(t, peek(t, lim, "k"), 0)
	brief, cancel := context.WithTimeout(ctx, 900*time.Millisecond) // Redis answers sooner, with a RetryAfter past this deadline
	defer cancel()
	for name, wait := range map[string]func() error{
		"Wait":        func() error { _, err := lim.Wait(brief, "k"); return err },
		"AcquireWait": func() error { _, err := lim.AcquireWait(brief, "k", 1); return err },
		"ReserveWait": func() error { _, err := lim.ReserveWait(brief, "k", 1); return err },
	} {
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got error %v, want context.DeadlineExceeded", name, err)
		}
	}
	looking := inside.Core.WithoutBans(lim)
	banned(t, allowN(t, looking, "k", 1), 0)
	if res := allowN(t, lim, "k", 0); !res.Allowed {
		t.Errorf("a cost of 0 before the ban: got %+v, want it allowed", res)
	}
	banned(t, allowN(t, lim, "k", 1), time.Minute)
	s.Advance(time.Second)
	var stored []string
	if s.Redis != nil {
		stored = s.dump(t)
	}
	nothing := reserve(t, lim, "k", 0)
	check.OK(t, nothing.Settle(ctx, 100)) // the reservation was denied, so Settle charges nothing
	for _, res := range []core.Result{
		nothing.Result, allowN(t, lim, "k", 0), allowN(t, lim, "k", 11), peek(t, lim, "k"), acquire(t, lim, "k", 1).Result, reserve(t, lim, "k", 1).Result,
		allowN(t, looking, "k", 1),
	} {
		banned(t, res, 59*time.Second)
	}
	if s.Redis != nil && !slices.Equal(s.dump(t), stored) {
		t.Errorf("during the ban the stored values became %v, want them unchanged: %v", s.dump(t), stored)
	}
	s.Advance(59*time.Second - time.Microsecond)
	banned(t, peek(t, lim, "k"), time.Microsecond)
	s.Advance(time.Microsecond)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// banUntilAdmitted makes denials whose ban is shorter than the wait for the limit: the ban lasts exactly as long as a limiter without
// bans tells the caller to wait.
func banUntilAdmitted(t *testing.T, s Store, limit maker) {
	rate := core.Per(7, 11*time.Second)
	lim, plain := s.limiter(t, "until", limit(rate), core.Ban(time.Millisecond)), s.limiter(t, "plain", limit(rate))
	denials := 0
	for i := range 60 {
		n := int64(1 + i%3)
		got, want := allowN(t, lim, "k", n), allowN(t, plain, "k", n)
		if got.Allowed != want.Allowed || got.RetryAfter != want.RetryAfter {
			t.Errorf("call %d: got %+v, want RetryAfter %v as without bans", i, got, want.RetryAfter)
		}
		if !got.Allowed {
			denials++
			check.OK(t, lim.Unblock(t.Context(), "k"))
		}
		s.Advance(765_432*time.Microsecond + time.Duration(i)*time.Microsecond)
	}
	if denials < 10 {
		t.Errorf("%d of 60 calls were denied, want at least 10", denials)
	}
}

// heldUnitsBanNobody is a login lock-out that reserves a unit for each attempt and settles only failures. A denial because
// of units that are merely held does not ban, so parallel successful logins ban nobody. After five failures the next
// attempt is banned. Units that were held before a ban can be settled during it.
func heldUnitsBanNobody(t *testing.T, s Store) {
	lim := s.limiter(t, "login", core.FixedWindow(core.Per(5, time.Hour)), core.Ban(time.Minute))
	var logins []grant
	for range 5 {
		logins = append(logins, reserve(t, lim, "k", 1))
	}
	banned(t, reserve(t, lim, "k", 1).Result, 0)
	banned(t, allowN(t, lim, "k", 1), 0)
	for _, login := range logins {
		cancel(t, login)
	}
	for range 4 {
		settle(t, reserve(t, lim, "k", 1), 1)
	}
	last := reserve(t, lim, "k", 1)
	banned(t, reserve(t, lim, "k", 1).Result, 0)
	banned(t, reserve(t, lim, "k", 2).Result, time.Hour) // the four failures alone deny a cost of 2, for an hour
	settle(t, last, 1)
	banned(t, peek(t, lim, "k"), time.Hour)
	check.OK(t, lim.Unblock(t.Context(), "k"))
	banned(t, reserve(t, lim, "k", 1).Result, time.Hour)
}

// slotsBanNobody checks that a denial for want of a slot does not ban.
func slotsBanNobody(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(1), core.FixedWindow(core.PerMinute(3)), core.Ban(time.Hour))
	first := acquire(t, lim, "k", 1)
	banned(t, acquire(t, lim, "k", 1).Result, 0)
	banned(t, acquire(t, lim, "k", 2).Result, 0) // a cost of 2 fits the window, and never the slots
	release(t, first)
	for range 2 {
		release(t, acquire(t, lim, "k", 1))
	}
	first = acquire(t, lim, "other", 1)
	banned(t, acquire(t, lim, "k", 1).Result, time.Hour) // the window denies, too, and its denial bans
	release(t, first)
}

// levelsRise denies a key again after each ban: each ban is longer, the last level repeats, and all levels are forgotten
// together.
func levelsRise(t *testing.T, s Store) {
	lim := s.limiter(t, "levels", core.TokenBucket(core.PerMinute(1)), core.Ban(10*time.Second, 3*time.Minute, time.Hour))
	deny := func(lasts time.Duration) {
		t.Helper()
		allowN(t, lim, "k", 1)
		banned(t, allowN(t, lim, "k", 1), lasts)
		s.Advance(lasts)
	}
	deny(time.Minute) // the limit's RetryAfter exceeds the level, so the ban lasts until the limit admits again
	for _, lasts := range []time.Duration{3 * time.Minute, time.Hour, time.Hour} {
		deny(lasts)
	}
	s.Advance(time.Hour - time.Microsecond)
	deny(time.Hour)
	s.Advance(time.Hour)
	if s.Redis != nil && s.ForgetsByClock {
		s.Advance(time.Second)
		s.unstored(t)
	}
	deny(time.Minute)
}

// blockByHand bans by Block and BlockAtLeast, and checks which of several bans of a key lasts, the errors for wrong
// arguments, and a limiter without the option Ban.
func blockByHand(t *testing.T, s Store) {
	ctx := t.Context()
	lim := s.limiter(t, "hand", core.FixedWindow(core.PerMinute(1)), core.Ban())
	for _, err := range []error{
		lim.Block(ctx, "k", time.Hour), lim.Block(ctx, "k", time.Minute), lim.Reset(ctx, "k"),
	} {
		check.OK(t, err)
	}
	banned(t, allowN(t, lim, "k", 0), time.Minute)
	s.Advance(time.Minute)
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), 0) // a Ban without levels: only Block bans
	for _, block := range []struct{ lasts, want time.Duration }{
		{time.Minute, time.Minute}, {time.Second, time.Minute}, {2 * time.Minute, 2 * time.Minute}, {time.Minute, 2 * time.Minute},
	} {
		check.OK(t, lim.BlockAtLeast(ctx, "k", block.lasts))
		banned(t, peek(t, lim, "k"), block.want)
	}
	check.OK(t, lim.Block(ctx, "k", time.Hour))
	check.OK(t, lim.Unblock(ctx, "k"))
	banned(t, allowN(t, lim, "k", 1), 0)
	for d, err := range map[time.Duration]error{0: lim.BlockAtLeast(ctx, "k", 0), -1: lim.Block(ctx, "k", -1), maxBan + 1: lim.Block(ctx, "k", maxBan+1)} {
		if err == nil || !strings.Contains(err.Error(), "allowed is 1ms to 8760h0m0s") {
			t.Errorf("a block of %v: got error %v, want one that names the allowed range", d, err)
		}
	}
	if err := lim.Block(ctx, "", time.Minute); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("Block of an empty key: got error %v, want ErrInvalidKey", err)
	}
	without := s.limiter(t, "without", core.FixedWindow(core.PerMinute(1)))
	for _, err := range []error{without.Block(ctx, "k", time.Minute), without.Unblock(ctx, "k")} {
		if err == nil || !strings.Contains(err.Error(), "no key can be blocked without the option Ban") {
			t.Errorf("without the option Ban: got error %v, want one that names the option", err)
		}
	}
}

// levelsOutlastBlock extends a long ban by hand shortly before its end: the short block must not make the levels be
// forgotten sooner.
func levelsOutlastBlock(t *testing.T, s Store) {
	lim := s.limiter(t, "levels", core.TokenBucket(core.PerMinute(1)), core.Ban(time.Hour, 2*time.Hour))
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), time.Hour)
	s.Advance(time.Hour - time.Second)
	check.OK(t, lim.BlockAtLeast(t.Context(), "k", 2*time.Second))
	s.Advance(2*time.Second + 59*time.Minute)
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), 2*time.Hour)
}

// banCountsAgain steps the server's clock back into a ban that a decision has found to be forgotten: the ban counts again.
func banCountsAgain(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("this store deletes what its clock has passed")
	}
	lim := s.limiter(t, "back", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour))
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), time.Hour)
	s.Advance(2 * time.Hour)
	if res := allowN(t, lim, "k", 1); !res.Allowed {
		t.Errorf("after the ban: got %+v, want it allowed", res)
	}
	s.Advance(-90 * time.Minute)
	banned(t, peek(t, lim, "k"), 30*time.Minute)
}

const maxBan = 365 * 24 * time.Hour

// banIsShared checks that limits of other names and numbers share the ban of a key, and that another key or another Limiter
// does not.
func banIsShared(t *testing.T, s Store) {
	lim := s.limiter(t, "shared", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour))
	other := with(t, lim, core.TokenBucket(core.PerHour(5), core.LimitName("other")), core.FixedWindow(core.PerDay(9)))
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), time.Hour)
	banned(t, allowN(t, other, "k", 1), time.Hour)
	check.OK(t, other.Unblock(t.Context(), "k"))
	if res := allowN(t, other, "k", 1); !res.Allowed {
		t.Errorf("after Unblock: got %+v, want it allowed", res)
	}
	allowN(t, other, "k", 4)
	banned(t, allowN(t, other, "k", 1), time.Hour)
	banned(t, peek(t, lim, "k"), time.Hour)
	for _, res := range []core.Result{
		allowN(t, lim, "~ban", 1), allowN(t, lim, "k}:~ban", 1), allowN(t, s.limiter(t, "another", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour)), "k", 1),
	} {
		if !res.Allowed {
			t.Errorf("another key or Limiter: got %+v, want it allowed", res)
		}
	}
}

// oneBanOfMany denies many calls at once: they raise the level only once.
func oneBanOfMany(t *testing.T, s Store) {
	lim := s.limiter(t, "many", core.FixedWindow(core.PerMinute(10)), core.Ban(time.Hour, 2*time.Hour))
	var admitted atomic.Int64
	check.Together(100, func(int) {
		if allowN(t, lim, "k", 1).Allowed {
			admitted.Add(1)
		}
	})
	if admitted.Load() != 10 {
		t.Errorf("%d calls were admitted, want 10", admitted.Load())
	}
	if res := peek(t, lim, "k"); !res.Banned || res.RetryAfter > time.Hour {
		t.Errorf("got %+v, want a ban of the first level, one hour", res)
	}
}

// foreignBans stores values that no script writes where the ban of a key is stored: none of them bans, and each is deleted.
// The exception is a valid ban that is over: it stays, and counts again if the clock steps back.
func foreignBans(t *testing.T, s Store) {
	s.needsRedis(t, "nobody else writes to the memory")
	ctx, key := t.Context(), "rl:foreign:{k}:~ban"
	lim := s.limiter(t, "foreign", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour, 2*time.Hour))
	now := peek(t, lim, "k").At.UnixMicro()
	over := fmt.Sprintf("X1 %d 1 1000000", now-1e6) // a valid ban that is over
	for _, value := range []string{
		"", "banned", "X1", fmt.Sprintf("X1 %d 1", now+1e9), fmt.Sprintf("X1 %d 1 1 1", now+1e9),
		fmt.Sprintf("X1 %d 1 1000000", now+401*24*3600*1e6), "X1 99999999999999999999 1 1", fmt.Sprintf("X1 %d 1 99999999999999999999", now+1e9),
		fmt.Sprintf("X1 %d 99999999999 1000000", now+1e9), fmt.Sprintf("X1 %d -1 1000000", now+1e9), fmt.Sprintf("X1 %d 1 0x10", now+1e9),
		strings.Repeat("X1 1 ", 1e6), over, "a set",
	} {
		s.Redis.Del(ctx, s.keys(t)...)
		if value == "a set" {
			s.Redis.SAdd(ctx, key, "X1")
		} else {
			s.Redis.Set(ctx, key, value, 0)
		}
		if res := allowN(t, lim, "k", 1); !res.Allowed {
			t.Errorf("with %.40q stored: got %+v, want it allowed", value, res)
		}
		if n := s.Redis.Exists(ctx, key).Val(); n != 0 && value != over {
			t.Errorf("an admitted call left %.40q stored, want it deleted", value)
		}
		banned(t, allowN(t, lim, "k", 1), time.Hour)
		if ttl := s.Redis.PTTL(ctx, key).Val(); ttl < time.Hour {
			t.Errorf("a ban after %.40q has a TTL of %v, want at least one hour", value, ttl)
		}
	}
	s.Redis.Set(ctx, key, fmt.Sprintf("X1 %d 1 60000000", now+60e6), 0) // a valid ban whose TTL somebody removed
	banned(t, peek(t, lim, "k"), time.Minute)
}

// banUnwritten makes Redis refuse writes because its memory is full: the call is still denied, but does not report a ban,
// for none is stored.
func banUnwritten(t *testing.T, s Store) {
	if s.Redis == nil || s.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err() != nil {
		t.Skip("the memory of this store cannot be full")
	}
	lim := s.limiter(t, "full", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour))
	allowN(t, lim, "k", 1)
	memory := func(most string) {
		t.Helper()
		if err := OnEach(context.Background(), s.Redis, func(ctx context.Context, node redis.UniversalClient) error {
			return node.ConfigSet(ctx, "maxmemory", most).Err()
		}); err != nil {
			t.Fatal(err)
		}
	}
	defer memory("0")
	memory("1")
	want(t, allowN(t, lim, "k", 1), false, 0, time.Minute, time.Minute)
	banned(t, reserve(t, lim, "k", 1).Result, 0)
	memory("0")
	banned(t, allowN(t, lim, "k", 1), time.Hour)
}

// banEvents checks which events observers receive of decisions, bans and blocks.
func banEvents(t *testing.T, s Store) {
	var events []string
	lim := s.limiter(t, "events", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventBan {
			events = append(events, fmt.Sprint("ban ", e.Took, " ", e.Result.LimitName))
		}
		if e.Kind == core.EventDecision {
			events = append(events, fmt.Sprint("decision ", e.Result.Allowed, " ", e.Result.Banned))
		}
	}))
	for range 3 {
		allowN(t, lim, "k", 1)
	}
	check.OK(t, lim.Block(t.Context(), "k", time.Minute))
	check.OK(t, lim.Unblock(t.Context(), "k"))
	if want := []string{
		"decision true false", "ban 1h0m0s fixed-1m", "decision false true", "decision false true", "ban 1m0s ", "ban 0s ",
	}; !slices.Equal(events, want) {
		t.Errorf("the observer received %q, want %q", events, want)
	}
}
