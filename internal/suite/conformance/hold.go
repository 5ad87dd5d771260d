package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// holdCases reserve units and settle them. These fail when a rule is broken in the Lua
// scripts, and how many sequences of [Properties] do, of 30 for each algorithm on miniredis
// and as many on a Redis with a driven clock:
//
//	expired holds are forgotten                    Expires, Late, ClockBack, NewestInstant; 333
//	a Settle is applied twice (in Go)              Nothing, Once; 136
//	a Reset forgets what is held                   Reset; 157
//	a late Settle takes from what others hold      ClockBack; 36
//	a late Settle charges what has been charged    Late, ClockBack; 95
//	a decision ignores what is held                Counts, Expires, Several; 319
//	charged before the newest instant of a log     NewestInstant; 1
//	a debt is clipped to the capacity              Debt; 33
//	a refund takes from whatever is owed           Refund/Late, Older, AfterReset, Several; 136
//	the id of the holds is ignored                 Lost; 0
//	expired by the clock, not by the last charged  ClockBack; 1
//	a hold gets an expiry that has been charged    ClockBack; 8
//	the TTL does not cover what is held            TTL, Expires, Late, Order; 168
//	a queue takes back for any cost                Queue, Several; 37
//	a limit holds though another denies            Counts, Once, Several; 386
func holdCases() []testCase {
	var cases []testCase
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s Store, limit maker)
	}{
		{"Counts", holdCounts}, {"Settle", settleExact}, {"Debt", settleDebt}, {"Once", settleOnce},
		{"Expires", holdExpires}, {"Late", settleLate}, {"Reset", holdOutlivesReset}, {"Refund", refundBesideHold},
		{"Lost", settleAfterLoss}, {"Nothing", reserveNothing}, {"Many", reserveMany}, {"Order", settleInAnyOrder},
		{"TTL", holdTTL}, {"ClockBack", holdClockBack}, {"Flushed", holdScriptFlushed}, {"Batches", holdBatches},
		{"Huge", hugeBesideHold},
	} {
		for _, v := range limits.All() {
			if v.Kind.Delays {
				continue // places in a queue cannot be held
			}
			cases = append(cases, testCase{"Hold/" + c.name + "/" + v.Name, func(t *testing.T, s Store) { c.run(t, s, v.Limit) }})
		}
	}
	return append(cases, testCase{"Hold/Queue", reserveInQueue}, testCase{"Hold/Several", reserveSeveral}, testCase{"Hold/Record", foreignRecords},
		testCase{"Hold/Windows", holdWindows}, testCase{"Hold/NewestInstant", holdBehindNewest}, testCase{"Hold/Log", holdsOfLog})
}

func reserve(t *testing.T, lim *core.Limiter, key string, n int64) core.Result {
	t.Helper()
	res, err := lim.Reserve(context.Background(), key, n)
	if err != nil {
		t.Fatalf("Reserve(%q, %d): %v", key, n, err)
	}
	return res
}

func settle(t *testing.T, lim *core.Limiter, res core.Result, actual int64) {
	t.Helper()
	if err := lim.Settle(context.Background(), res, actual); err != nil {
		t.Fatalf("Settle(%d): %v", actual, err)
	}
}

func remains(t *testing.T, lim *core.Limiter, key string, want int64) {
	t.Helper()
	if res := peek(t, lim, key); res.Remaining != want {
		t.Errorf("%d of %d units remain, want %d", res.Remaining, res.Limit, want)
	}
}

// unstored fails if the key has a state.
func (s Store) unstored(t *testing.T) {
	t.Helper()
	if s.Redis != nil && len(s.keys(t)) != 0 {
		t.Errorf("stored is %v", s.dump(t))
	}
}

// holdCounts has another Limiter, which reserves nothing, count what is held.
func holdCounts(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	other := lim
	if s.Redis != nil {
		other = s.limiter(t, "hold", limit(tenPerTen))
	}
	res := reserve(t, lim, "k", 6)
	if !res.Allowed || res.Remaining != 4 || res.ResetAfter == 0 {
		t.Errorf("reserved: %+v", res)
	}
	remains(t, other, "k", 4)
	if res := allowN(t, other, "k", 5); res.Allowed || res.RetryAfter <= 0 || res.RetryAfter > 20*time.Second {
		t.Errorf("over the limit with what is held: %+v", res)
	}
	if res := allowN(t, other, "k", 3); !res.Allowed || res.Remaining != 1 {
		t.Errorf("beside what is held: %+v", res)
	}
	if res := reserve(t, lim, "k", 2); res.Allowed {
		t.Errorf("reserved over the limit: %+v", res)
	}
	if res := reserve(t, lim, "k", 11); res.Allowed || res.RetryAfter != core.Never {
		t.Errorf("above the capacity: %+v", res)
	}
	settle(t, lim, res, 0)
	remains(t, other, "k", 7)
}

func settleExact(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	settle(t, lim, reserve(t, lim, "k", 6), 0)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
	s.unstored(t)
	settle(t, lim, reserve(t, lim, "k", 6), 6)
	remains(t, lim, "k", 4)
	settle(t, lim, reserve(t, lim, "k", 4), 1)
	remains(t, lim, "k", 3)
	res := reserve(t, lim, "k", 3)
	refund(t, lim, res) // of what is held: as if nothing was used
	remains(t, lim, "k", 3)
}

// settleDebt charges more than fits: the key is denied until that is paid.
func settleDebt(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	settle(t, lim, reserve(t, lim, "k", 1), 25)
	res := allowN(t, lim, "k", 1)
	if res.Allowed || res.Remaining != 0 {
		t.Errorf("in debt: %+v", res)
	}
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Bucket && (res.RetryAfter != 16*time.Second || res.ResetAfter != 25*time.Second) {
		t.Errorf("a debt of 25 at 1 a second: %+v", res)
	}
	s.Advance(res.RetryAfter - time.Microsecond)
	if early := allowN(t, lim, "k", 1); early.Allowed {
		t.Errorf("before the debt is paid: %+v", early)
	}
	s.Advance(time.Microsecond)
	if res := allowN(t, lim, "k", 1); !res.Allowed {
		t.Errorf("the debt is paid: %+v", res)
	}
	for _, actual := range []int64{-1, 1e9 + 1} {
		if err := lim.Settle(context.Background(), res, actual); !errors.Is(err, core.ErrInvalidCost) {
			t.Errorf("Settle(%d): %v", actual, err)
		}
	}
	settle(t, lim, reserve(t, lim, "huge", 1), 1e9)
	if res := peek(t, lim, "huge"); res.Allowed || res.RetryAfter < 0 || res.ResetAfter < 0 {
		t.Errorf("in great debt: %+v", res)
	}
}

func settleOnce(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	res := reserve(t, lim, "k", 2)
	copied := res
	other := reserve(t, lim, "k", 3)
	settle(t, lim, res, 2)
	settle(t, lim, res, 1)
	settle(t, lim, copied, 0)
	refund(t, lim, copied)
	remains(t, lim, "k", 5)
	settle(t, lim, reserve(t, lim, "k", 9), 4) // denied
	settle(t, lim, core.Result{Allowed: true}, 4)
	remains(t, lim, "k", 5)
	if err := lim.Settle(context.Background(), allowN(t, lim, "k", 1), 0); !errors.Is(err, core.ErrInvalidResult) {
		t.Errorf("of an ordinary charge: %v", err)
	}
	if err := s.limiter(t, "other", limit(tenPerTen)).Settle(context.Background(), other, 0); !errors.Is(err, core.ErrInvalidResult) {
		t.Errorf("of another limiter: %v", err)
	}
	settle(t, lim, other, 0)
	remains(t, lim, "k", 7)
}

// holdExpires leaves units unsettled: they are charged when the hold expires.
func holdExpires(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerMinute(10)), core.Hold(6*time.Second))
	reserve(t, lim, "k", 4)
	s.Advance(3 * time.Second)
	reserve(t, lim, "k", 2)
	remains(t, lim, "k", 4)
	s.Advance(4 * time.Second) // the first has expired, rounded up to a second; it was charged up to a second ago
	remains(t, lim, "k", 4)
	if res := allowN(t, lim, "k", 5); res.Allowed {
		t.Errorf("over the limit with what has expired: %+v", res)
	}
	s.Advance(10 * time.Minute)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// settleLate settles after the hold has expired: what exceeds it is charged.
func settleLate(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerHour(100)), core.Hold(6*time.Second))
	less, more, gone := reserve(t, lim, "k", 10), reserve(t, lim, "k", 10), reserve(t, lim, "k", 10)
	s.Advance(8 * time.Second)
	remains(t, lim, "k", 70)
	settle(t, lim, less, 3)
	settle(t, lim, gone, 0)
	remains(t, lim, "k", 70)
	settle(t, lim, more, 15)
	remains(t, lim, "k", 65)
}

func holdOutlivesReset(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	allowN(t, lim, "k", 3)
	res := reserve(t, lim, "k", 4)
	if err := lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	remains(t, lim, "k", 6)
	settle(t, lim, res, 1)
	remains(t, lim, "k", 9)
	if err := lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
	s.unstored(t)
}

func refundBesideHold(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	held := reserve(t, lim, "k", 4)
	charged := allowN(t, lim, "k", 3)
	remains(t, lim, "k", 3)
	refund(t, lim, charged)
	remains(t, lim, "k", 6)
	settle(t, lim, held, 0)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
	s.unstored(t)
}

// settleAfterLoss settles after the key was evicted, and others have reserved since.
func settleAfterLoss(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("memory evicts by itself")
	}
	lim := s.limiter(t, "hold", limit(tenPerTen))
	lost, lostToo := reserve(t, lim, "k", 4), reserve(t, lim, "k", 2)
	for _, key := range s.keys(t) {
		if err := s.Redis.Del(context.Background(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, lim, lost, 3)
	remains(t, lim, "k", 7)
	others := reserve(t, lim, "k", 5)
	settle(t, lim, lostToo, 1)
	remains(t, lim, "k", 1)
	settle(t, lim, others, 0)
	remains(t, lim, "k", 6)
}

// hugeBesideHold asks for so much that its sum with what is held is beyond an int64.
func hugeBesideHold(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	reserve(t, lim, "k", 1)
	for _, n := range []int64{11, 1 << 31, 1<<62 + 1, 1<<63 - 1} {
		if res := allowN(t, lim, "k", n); res.Allowed || res.RetryAfter != core.Never {
			t.Errorf("%d of 10: %+v", n, res)
		}
	}
	remains(t, lim, "k", 9)
}

// reserveNothing settles a cost of which nothing was reserved.
func reserveNothing(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(tenPerTen))
	settle(t, lim, reserve(t, lim, "k", 0), 0)
	s.unstored(t)
	res := reserve(t, lim, "k", 0)
	if !res.Allowed || res.Remaining != 10 {
		t.Errorf("reserved nothing: %+v", res)
	}
	settle(t, lim, res, 3)
	settle(t, lim, res, 3)
	remains(t, lim, "k", 7)
}

// reserveMany has many callers at once reserve one unit and give it back.
func reserveMany(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerMinute(100)))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			res, err := lim.Reserve(context.Background(), "k", 1)
			if err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
			if err := lim.Settle(context.Background(), res, 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	want(t, peek(t, lim, "k"), true, 100, 0, 0)
	s.unstored(t)
}

// settleInAnyOrder has holds of several expiries settled in other orders.
func settleInAnyOrder(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerHour(100)), core.Hold(time.Minute))
	var held []core.Result
	for range 20 {
		held = append(held, reserve(t, lim, "k", 3))
		s.Advance(2500 * time.Millisecond)
	}
	remains(t, lim, "k", 40)
	for i := range held {
		settle(t, lim, held[(i*7)%len(held)], 0)
		remains(t, lim, "k", 40+3*int64(i+1))
	}
	s.unstored(t)
}

// holdTTL compares the TTL of a key with what it will be once all holds are charged.
func holdTTL(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
	lim := s.limiter(t, "ttl", limit(tenPerTen), core.Hold(30*time.Second))
	before := time.Now()
	res := reserve(t, lim, "k", 4)
	for _, key := range s.keys(t) {
		expires, least := s.expiry(t, key), res.At.Add(30*time.Second+4*time.Second-s.blur(before))
		if most := res.At.Add(35*time.Second + 2*10*time.Second + time.Second); expires.Before(least) || expires.After(most) {
			t.Errorf("%s expires %v after it was reserved", key, expires.Sub(res.At))
		}
	}
	settle(t, lim, res, 4)
	for _, key := range s.keys(t) {
		if expires := s.expiry(t, key); expires.After(res.At.Add(20*time.Second + time.Second + s.blur(before))) {
			t.Errorf("%s expires %v after it was settled", key, expires.Sub(res.At))
		}
	}
}

// holdClockBack turns the clock back after a hold has expired: a hold that begins then
// is not taken for one that was charged.
func holdClockBack(t *testing.T, s Store, limit maker) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("the clock does not step back")
	}
	lim := s.limiter(t, "hold", limit(core.PerHour(100)), core.Hold(6*time.Second))
	late := reserve(t, lim, "k", 10)
	s.Advance(8 * time.Second)
	allowN(t, lim, "k", 1)
	s.Advance(-8 * time.Second)
	left := int64(89)
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Bucket {
		left = 88 // the debt ends when it did, which is later now
	}
	res := reserve(t, lim, "k", 20)
	remains(t, lim, "k", left-20)
	settle(t, lim, late, 10) // it has been charged, though by the clock it has not expired
	remains(t, lim, "k", left-20)
	settle(t, lim, res, 0)
	remains(t, lim, "k", left)
}

func holdScriptFlushed(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no scripts")
	}
	lim := s.limiter(t, "hold", limit(tenPerTen))
	flush := func() {
		t.Helper()
		if err := s.Redis.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	res := reserve(t, lim, "k", 4)
	flush()
	settle(t, lim, res, 2)
	flush()
	remains(t, lim, "k", 8)
}

// holdBatches has many callers at once reserve, settle and charge, on several keys.
func holdBatches(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "hold", limit(core.PerHour(1000)))
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			key := fmt.Sprint("k", i%4)
			if i%3 == 0 {
				if _, err := lim.AllowN(context.Background(), key, 2); err != nil {
					t.Error(err)
				}
				return
			}
			res, err := lim.Reserve(context.Background(), key, 5)
			if err != nil || !res.Allowed {
				t.Errorf("%+v, %v", res, err)
			}
			if err := lim.Settle(context.Background(), res, int64(i%3)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for k := range 4 {
		left := int64(1000)
		for i := range 60 {
			switch {
			case i%4 != k:
			case i%3 == 0:
				left -= 2
			default:
				left -= int64(i % 3)
			}
		}
		remains(t, lim, fmt.Sprint("k", k), left)
	}
}

// reserveInQueue reserves in a leaky bucket: that is a charge, which 0 takes back.
func reserveInQueue(t *testing.T, s Store) {
	lim := s.limiter(t, "queue", core.LeakyBucket(tenPerTen, core.Burst(10)), core.Hold(time.Second))
	first, second := reserve(t, lim, "k", 2), reserve(t, lim, "k", 3)
	if first.Delay != 0 || second.Delay != 2*time.Second || second.Remaining != 5 {
		t.Errorf("got %+v and %+v", first, second)
	}
	settle(t, lim, second, 0)
	remains(t, lim, "k", 8)
	settle(t, lim, first, 7) // it keeps the charge
	remains(t, lim, "k", 8)
	s.Advance(2 * time.Second)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// reserveSeveral reserves by several limits: all of them, or none.
func reserveSeveral(t *testing.T, s Store) {
	lim := s.limiter(t, "several", core.FixedWindow(core.PerMinute(10)), core.SlidingWindowLog(core.PerHour(20)),
		core.LeakyBucket(core.PerMinute(30), core.Burst(30)), core.GCRA(core.PerHour(40)))
	all := func(want ...int64) {
		t.Helper()
		i := 0
		for each := range peek(t, lim, "k").All() {
			if each.Remaining != want[i] {
				t.Errorf("%s: %d remain, want %d", each.Name, each.Remaining, want[i])
			}
			i++
		}
	}
	res := reserve(t, lim, "k", 6)
	all(4, 14, 24, 34)
	if res := reserve(t, lim, "k", 5); res.Allowed {
		t.Errorf("over one of the limits: %+v", res)
	}
	all(4, 14, 24, 34)
	settle(t, lim, res, 2)
	all(8, 18, 24, 38)
	res = reserve(t, lim, "k", 8)
	settle(t, lim, res, 0)
	all(8, 18, 24, 38)
}

// foreignRecords has values like those with holds: what is not understood counts as
// nothing stored, and does not stay for ever.
func foreignRecords(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("no keys to write")
	}
	ctx := context.Background()
	lim := s.limiter(t, "foreign", core.TokenBucket(core.PerMinute(10)))
	res := reserve(t, lim, "k", 4)
	stored := s.keys(t)[0]
	value, err := s.Redis.Get(ctx, stored).Result()
	if err != nil {
		t.Fatal(err)
	}
	settle(t, lim, res, 0)
	main, record, _ := strings.Cut(value, "|")
	for _, planted := range []string{
		"|", "||", main + "|", main + "|x", main + "|1", main + "|1 2 3", main + "|1 0 5:0", main + "|99999999999999999999 0 5:1", "|1 0 nan:nan",
		main + "|" + record + "|" + record, "B1 10 5+nan|" + record, main + "|1 0 5:99999999999999999999",
	} {
		if err := s.Redis.Set(ctx, stored, planted, 0).Err(); err != nil {
			t.Fatal(err)
		}
		got := reserve(t, lim, "k", 10)
		if !got.Allowed && got.RetryAfter > time.Hour {
			t.Errorf("%q: %+v", planted, got)
		}
		settle(t, lim, got, 0)
		if ttl := s.Redis.PTTL(ctx, stored).Val(); ttl == -1 {
			t.Errorf("%q: it never expires", planted)
		}
	}
}

// holdWindows charges what is held to the window in which it is settled, or expires.
func holdWindows(t *testing.T, s Store) {
	lim := s.limiter(t, "windows", core.FixedWindow(tenPerTen), core.Hold(30*time.Second))
	allowN(t, lim, "k", 1)
	first, second := reserve(t, lim, "k", 4), reserve(t, lim, "k", 5)
	s.Advance(10 * time.Second)
	remains(t, lim, "k", 1) // the window is over; what is held is not
	settle(t, lim, first, 4)
	want(t, peek(t, lim, "k"), true, 1, 0, 10*time.Second) // and opens a window of its own
	s.Advance(10 * time.Second)
	remains(t, lim, "k", 5)
	settle(t, lim, second, 0)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// holdsOfLog has two holds expire, the first so long ago that its charge has left the
// window: the second counts.
func holdsOfLog(t *testing.T, s Store) {
	lim := s.limiter(t, "log", core.SlidingWindowLog(core.Per(24, 88*time.Millisecond)), core.Hold(time.Second))
	first := reserve(t, lim, "k", 2)
	s.Advance(590 * time.Millisecond)
	reserve(t, lim, "k", 3)
	expiry := first.At.Add(590*time.Millisecond + time.Second).UnixMicro()
	const step = 166_666
	expiry += (step - expiry%step) % step // as holds are rounded up
	s.Advance(time.Duration(expiry+40_000-first.At.UnixMicro()-590_000) * time.Microsecond)
	remains(t, lim, "k", 21)
	s.Advance(88 * time.Millisecond)
	want(t, peek(t, lim, "k"), true, 24, 0, 0)
}

// holdBehindNewest has a hold expire while the clock is behind the newest charge of a log:
// it is charged at that, as everything is.
func holdBehindNewest(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("the clock does not step back")
	}
	lim := s.limiter(t, "newest", core.SlidingWindowLog(core.PerMinute(10)), core.Hold(6*time.Second))
	allowN(t, lim, "k", 1)
	s.Advance(-50 * time.Second)
	reserve(t, lim, "k", 4)
	s.Advance(8 * time.Second)
	want(t, peek(t, lim, "k"), true, 5, 0, time.Minute)
	s.Advance(42*time.Second + 30*time.Second)
	want(t, peek(t, lim, "k"), true, 5, 0, 30*time.Second)
	s.Advance(30 * time.Second)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}
