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

// ban returns the option for levels in microseconds.
func ban(levels []int64) core.Option {
	all := make([]time.Duration, len(levels))
	for i, d := range levels {
		all[i] = micros(d)
	}
	return core.Ban(all...)
}

// levels returns random ones: none at times, mostly short, and at most a year.
func (tr *trial) levels() []int64 {
	all, last := make([]int64, tr.IntN(4)), int64(0)
	for i := range all {
		last = max(last, 1000*tr.upTo(365*24*3600*1000))
		all[i] = last
	}
	return all
}

// block bans by hand, or ends a ban.
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

// banCases test what random histories of bans do not reach: denials that do not ban, which limits share the
// key of a ban, foreign values, many callers, and writes that Redis refuses.
func banCases() []testCase {
	return append(each("Ban/Who", whoIsBanned),
		testCase{"Ban/Held", heldBansNobody}, testCase{"Ban/InFlight", slotsBanNobody}, testCase{"Ban/Levels", levelsRise},
		testCase{"Ban/ByHand", blockByHand}, testCase{"Ban/AtLeast", levelsOutlastBlock},
		testCase{"Ban/Shared", banIsShared}, testCase{"Ban/Many", oneBanOfMany},
		testCase{"Ban/Foreign", foreignBans}, testCase{"Ban/Unwritten", banUnwritten}, testCase{"Ban/Events", banEvents},
	)
}

// banned checks whether a Result reports a ban, and for how long.
func banned(t *testing.T, got core.Result, lasts time.Duration) {
	t.Helper()
	if got.Allowed || got.Banned != (lasts > 0) || lasts > 0 && (got.RetryAfter != lasts || got.ResetAfter != lasts || got.Remaining != 0) {
		t.Errorf("%+v, want banned for %v", got, lasts)
	}
}

// whoIsBanned first makes denials that do not ban, and then one that does. During the ban everything is
// denied, and nothing changes.
func whoIsBanned(t *testing.T, s Store, limit maker) {
	ctx := t.Context()
	lim := s.limiter(t, "ban", limit(tenPerTen), core.Ban(time.Minute))
	allowN(t, lim, "k", 10)
	banned(t, allowN(t, lim, "k", 11), 0)
	banned(t, peek(t, lim, "k"), 0)
	brief, cancel := context.WithTimeout(ctx, 900*time.Millisecond) // a denial comes before that, and says that it takes longer
	defer cancel()
	for name, wait := range map[string]func() error{
		"Wait":        func() error { _, err := lim.Wait(brief, "k"); return err },
		"AcquireWait": func() error { _, err := lim.AcquireWait(brief, "k", 1); return err },
		"ReserveWait": func() error { _, err := lim.ReserveWait(brief, "k", 1); return err },
	} {
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	looking := inside.Core.WithoutBans(lim)
	banned(t, allowN(t, looking, "k", 1), 0)
	if res := allowN(t, lim, "k", 0); !res.Allowed {
		t.Errorf("a cost of 0: %+v", res)
	}
	banned(t, allowN(t, lim, "k", 1), time.Minute)
	s.Advance(time.Second)
	var stored []string
	if s.Redis != nil {
		stored = s.dump(t)
	}
	nothing := reserve(t, lim, "k", 0)
	check.OK(t, nothing.Settle(ctx, 100)) // it was denied, so nothing is charged
	for _, res := range []core.Result{
		nothing.Result, allowN(t, lim, "k", 0), allowN(t, lim, "k", 11), peek(t, lim, "k"), acquire(t, lim, "k", 1).Result, reserve(t, lim, "k", 1).Result,
		allowN(t, looking, "k", 1),
	} {
		banned(t, res, 59*time.Second)
	}
	if s.Redis != nil && !slices.Equal(s.dump(t), stored) {
		t.Errorf("during the ban %v became %v", stored, s.dump(t))
	}
	s.Advance(59*time.Second - time.Microsecond)
	banned(t, peek(t, lim, "k"), time.Microsecond)
	s.Advance(time.Microsecond)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// heldBansNobody is a login lock-out: six parallel successful logins ban nobody, and after five failures
// the sixth is banned. Units that were held before a ban are settled during it.
func heldBansNobody(t *testing.T, s Store) {
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
	banned(t, reserve(t, lim, "k", 2).Result, time.Hour) // two are denied by the four alone: until these are forgotten
	settle(t, last, 1)
	banned(t, peek(t, lim, "k"), time.Hour)
	check.OK(t, lim.Unblock(t.Context(), "k"))
	banned(t, reserve(t, lim, "k", 1).Result, time.Hour)
}

func slotsBanNobody(t *testing.T, s Store) {
	lim := s.limiter(t, "slots", core.InFlight(1), core.FixedWindow(core.PerMinute(3)), core.Ban(time.Hour))
	first := acquire(t, lim, "k", 1)
	banned(t, acquire(t, lim, "k", 1).Result, 0)
	banned(t, acquire(t, lim, "k", 2).Result, 0) // it would fit the window, and never the slots
	release(t, first)
	for range 2 {
		release(t, acquire(t, lim, "k", 1))
	}
	first = acquire(t, lim, "other", 1)
	banned(t, acquire(t, lim, "k", 1).Result, time.Hour) // the window counts, whatever the slots say
	release(t, first)
}

// levelsRise is denied again and again. Each ban is longer, the last repeats, and all are forgotten together.
func levelsRise(t *testing.T, s Store) {
	lim := s.limiter(t, "levels", core.TokenBucket(core.PerMinute(1)), core.Ban(10*time.Second, 3*time.Minute, time.Hour))
	deny := func(lasts time.Duration) {
		t.Helper()
		allowN(t, lim, "k", 1)
		banned(t, allowN(t, lim, "k", 1), lasts)
		s.Advance(lasts)
	}
	deny(time.Minute) // a client that comes back when the limit admits it is not banned again
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
	banned(t, allowN(t, lim, "k", 1), 0) // without levels no denial bans
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
			t.Errorf("Block for %v: %v", d, err)
		}
	}
	if err := lim.Block(ctx, "", time.Minute); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("no key: %v", err)
	}
	without := s.limiter(t, "without", core.FixedWindow(core.PerMinute(1)))
	for _, err := range []error{without.Block(ctx, "k", time.Minute), without.Unblock(ctx, "k")} {
		if err == nil || !strings.Contains(err.Error(), "without the option Ban no key can be blocked") {
			t.Errorf("without Ban: %v", err)
		}
	}
}

// levelsOutlastBlock bans by hand, for little more than what is left of a long ban: the levels are forgotten no sooner for it.
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

const maxBan = 365 * 24 * time.Hour

// banIsShared has limits of other names and numbers find the ban of a key, and another key and Limiter none.
func banIsShared(t *testing.T, s Store) {
	lim := s.limiter(t, "shared", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour))
	other := with(t, lim, core.TokenBucket(core.PerHour(5), core.LimitName("other")), core.FixedWindow(core.PerDay(9)))
	allowN(t, lim, "k", 1)
	banned(t, allowN(t, lim, "k", 1), time.Hour)
	banned(t, allowN(t, other, "k", 1), time.Hour)
	check.OK(t, other.Unblock(t.Context(), "k"))
	if res := allowN(t, other, "k", 1); !res.Allowed {
		t.Errorf("%+v", res)
	}
	allowN(t, other, "k", 4)
	banned(t, allowN(t, other, "k", 1), time.Hour)
	banned(t, peek(t, lim, "k"), time.Hour)
	for _, res := range []core.Result{
		allowN(t, lim, "~ban", 1), allowN(t, lim, "k}:~ban", 1), allowN(t, s.limiter(t, "another", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour)), "k", 1),
	} {
		if !res.Allowed {
			t.Errorf("%+v", res)
		}
	}
}

// oneBanOfMany denies many calls at once: the level rises once.
func oneBanOfMany(t *testing.T, s Store) {
	lim := s.limiter(t, "many", core.FixedWindow(core.PerMinute(10)), core.Ban(time.Hour, 2*time.Hour))
	var admitted atomic.Int64
	check.Together(100, func(int) {
		if allowN(t, lim, "k", 1).Allowed {
			admitted.Add(1)
		}
	})
	if admitted.Load() != 10 {
		t.Errorf("%d were admitted, want 10", admitted.Load())
	}
	if res := peek(t, lim, "k"); !res.Banned || res.RetryAfter > time.Hour {
		t.Errorf("%+v, want the first level", res)
	}
}

// foreignBans has values where the ban of a key is that no script writes: they are no bans, and are deleted.
func foreignBans(t *testing.T, s Store) {
	s.needsRedis(t, "nobody else writes to the memory")
	ctx, key := t.Context(), "rl:foreign:{k}:~ban"
	lim := s.limiter(t, "foreign", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour, 2*time.Hour))
	now := peek(t, lim, "k").At.UnixMicro()
	over := fmt.Sprintf("X1 %d 1 1000000", now-1e6) // it stays: if the clock steps back, it counts
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
			t.Errorf("%.40q bans: %+v", value, res)
		}
		if n := s.Redis.Exists(ctx, key).Val(); n != 0 && value != over {
			t.Errorf("%.40q stays, without a TTL, where nobody is denied", value)
		}
		banned(t, allowN(t, lim, "k", 1), time.Hour)
		if ttl := s.Redis.PTTL(ctx, key).Val(); ttl < time.Hour {
			t.Errorf("after %.40q the ban has a TTL of %v", value, ttl)
		}
	}
	s.Redis.Set(ctx, key, fmt.Sprintf("X1 %d 1 60000000", now+60e6), 0) // as a script wrote it, and somebody has taken the TTL
	banned(t, peek(t, lim, "k"), time.Minute)
}

// banUnwritten has Redis refuse to write: it is full. The denial stands, and is none of a ban.
func banUnwritten(t *testing.T, s Store) {
	if s.Redis == nil || s.Redis.ConfigSet(t.Context(), "maxmemory", "0").Err() != nil {
		t.Skip("it cannot be full")
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

// banEvents checks the events that observers receive.
func banEvents(t *testing.T, s Store) {
	var told []string
	lim := s.limiter(t, "events", core.FixedWindow(core.PerMinute(1)), core.Ban(time.Hour), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventBan {
			told = append(told, fmt.Sprint("ban ", e.Took, " ", e.Result.LimitName))
		}
		if e.Kind == core.EventDecision {
			told = append(told, fmt.Sprint("decision ", e.Result.Allowed, " ", e.Result.Banned))
		}
	}))
	for range 3 {
		allowN(t, lim, "k", 1)
	}
	check.OK(t, lim.Block(t.Context(), "k", time.Minute))
	check.OK(t, lim.Unblock(t.Context(), "k"))
	if want := []string{
		"decision true false", "ban 1h0m0s fixed-1m", "decision false true", "decision false true", "ban 1m0s ", "ban 0s ",
	}; !slices.Equal(told, want) {
		t.Errorf("told were %q, want %q", told, want)
	}
}
