package conformance

import (
	"context"
	"sort"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// stateCases are about what is stored: that it expires, that denials leave it
// alone, and that foreign values and changed limits do no harm.
func stateCases() []testCase {
	cases := []testCase{
		{"State/RaisedAndLowered", raisedAndLowered},
		{"State/PeriodChanged", periodChanged},
	}
	for _, kind := range kinds {
		cases = append(cases,
			testCase{"State/Reset/" + kind.name, func(t *testing.T, s Store) { reset(t, s, kind.limit()) }},
			testCase{"State/Expires/" + kind.name, func(t *testing.T, s Store) { expires(t, s, kind.limit()) }},
			testCase{"State/Foreign/" + kind.name, func(t *testing.T, s Store) { foreign(t, s, kind.limit()) }},
			testCase{"State/ScriptFlushed/" + kind.name, func(t *testing.T, s Store) { scriptFlushed(t, s, kind.limit()) }},
		)
	}
	return cases
}

func reset(t *testing.T, s Store, limit core.Limit) {
	lim := s.limiter(t, "reset", limit)
	allowN(t, lim, "k", 10)
	allowN(t, lim, "other", 10)
	if err := lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
	if peek(t, lim, "other").Allowed {
		t.Error("Reset forgot another key")
	}
}

// expires holds the TTL of a key against what its last charge needs, after each
// kind of decision.
func expires(t *testing.T, s Store, limit core.Limit) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
	lim := s.limiter(t, "ttl", limit)
	var needed time.Time
	step := func(name string, n int64) {
		res := allowN(t, lim, "k", n)
		if res.Allowed && n > 0 {
			needed = res.At.Add(s.kept(limit, res))
		}
		for _, key := range s.keys(t) {
			at := s.expiry(t, key)
			if at.Before(needed) || at.After(needed.Add(time.Second)) {
				t.Errorf("%s: %s expires %v after it is no longer needed", name, key, at.Sub(needed))
			}
		}
	}
	step("a cost of 0", 0)
	if keys := s.keys(t); len(keys) != 0 {
		t.Errorf("a cost of 0 stored %v", keys)
	}
	step("too large a cost", 11)
	if keys := s.keys(t); len(keys) != 0 {
		t.Errorf("a denied call stored %v", keys)
	}
	step("first charge", 1)
	s.Advance(1234567 * time.Microsecond)
	step("second charge", 8)
	before := s.dump(t)
	step("denied", 9)
	step("too large", 11)
	step("a cost of 0", 0)
	peek(t, lim, "k")
	if after := s.dump(t); len(after) != 1 || after[0] != before[0] {
		t.Error("a denied call, a cost of 0 or a Peek changed what is stored")
	}
	step("last charge", 1)
}

// kept returns how long the state of a limit is needed after a charge.
func (s Store) kept(_ core.Limit, res core.Result) time.Duration { return res.ResetAfter }

// foreign puts what we never wrote at the key: the decision starts afresh, and
// what it stores expires.
func foreign(t *testing.T, s Store, limit core.Limit) {
	if s.Redis == nil {
		t.Skip("no keys to write to")
	}
	ctx := context.Background()
	lim := s.limiter(t, "foreign", limit)
	allowN(t, lim, "k", 1)
	key := s.keys(t)[0]
	for name, put := range map[string]func() error{
		"text":    func() error { return s.Redis.Set(ctx, key, "hello", 0).Err() },
		"empty":   func() error { return s.Redis.Set(ctx, key, "", 0).Err() },
		"number":  func() error { return s.Redis.Set(ctx, key, "42", 0).Err() },
		"version": func() error { return s.Redis.Set(ctx, key, "Z9 1 2 3 4 5 6 7", 0).Err() },
		"huge F1": func() error { return s.Redis.Set(ctx, key, "F1 1e99 99999999999999999999 1", 0).Err() },
		"huge F2": func() error { return s.Redis.Set(ctx, key, "F1 99999999999999999999 9999999999999999999 1", 0).Err() },
		"zero T1": func() error { return s.Redis.Set(ctx, key, "T1 1 1 0 0 0", 0).Err() },
		"nan T1":  func() error { return s.Redis.Set(ctx, key, "T1 1 1 nan 1 1", 0).Err() },
		"hash":    func() error { return s.Redis.HSet(ctx, key, "a", "b").Err() },
		"list":    func() error { return s.Redis.RPush(ctx, key, "a").Err() },
		"zset":    func() error { return s.Redis.ZAdd(ctx, key, redis.Z{Score: 1, Member: "a"}).Err() },
		"set":     func() error { return s.Redis.SAdd(ctx, key, "a").Err() },
	} {
		s.Redis.Del(ctx, key)
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if res := peek(t, lim, "k"); !res.Allowed || res.Remaining != 10 {
			t.Errorf("%s: Peek %+v", name, res)
		}
		if allowN(t, lim, "k", 11).Allowed {
			t.Errorf("%s: too large a cost was admitted", name)
		}
		if n := s.Redis.Exists(ctx, key).Val(); n != 0 && s.Redis.PTTL(ctx, key).Val() < 0 {
			t.Errorf("%s: a denied call left it without a TTL", name)
		}
		if res := allowN(t, lim, "k", 4); !res.Allowed || res.Remaining != 6 {
			t.Errorf("%s: %+v", name, res)
		}
		if s.Redis.PTTL(ctx, key).Val() <= 0 {
			t.Errorf("%s: no TTL after a charge", name)
		}
	}
}

// scriptFlushed empties Redis's script cache between calls: none fails, none is
// charged twice.
func scriptFlushed(t *testing.T, s Store, limit core.Limit) {
	if s.Redis == nil {
		t.Skip("no scripts")
	}
	lim := s.limiter(t, "flushed", limit)
	for i := range int64(10) {
		if err := s.Redis.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		if res := allowN(t, lim, "k", 1); !res.Allowed || res.Remaining != 9-i {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
}

// raisedAndLowered changes the count of live limits: units used stay used.
func raisedAndLowered(t *testing.T, s Store) {
	for _, kind := range []struct {
		name string
		make func(core.Rate, ...core.LimitOption) core.Limit
	}{{"FixedWindow", core.FixedWindow}, {"TokenBucket", core.TokenBucket}} {
		ten := s.limiter(t, "live", kind.make(core.PerMinute(10)))
		twenty := s.limiter(t, "live", kind.make(core.PerMinute(20)))
		three := s.limiter(t, "live", kind.make(core.PerMinute(3)))
		allowN(t, ten, kind.name, 10)
		if res := allowN(t, twenty, kind.name, 4); !res.Allowed || res.Remaining != 6 || res.Limit != 20 {
			t.Errorf("%s raised: %+v", kind.name, res)
		}
		if res := allowN(t, ten, kind.name, 1); res.Allowed || res.Remaining != 0 {
			t.Errorf("%s lowered again: %+v", kind.name, res)
		}
		if res := allowN(t, three, kind.name, 1); res.Allowed || res.Remaining != 0 || res.RetryAfter <= 0 {
			t.Errorf("%s lowered far: %+v", kind.name, res)
		}
		if res := allowN(t, three, kind.name, 0); !res.Allowed || res.RetryAfter != 0 {
			t.Errorf("%s: a cost of 0 over a lowered limit: %+v", kind.name, res)
		}
		if res := allowN(t, twenty, kind.name, 6); !res.Allowed || res.Remaining != 0 {
			t.Errorf("%s raised once more: %+v", kind.name, res)
		}
	}
}

// periodChanged gives a named limit another period.
func periodChanged(t *testing.T, s Store) {
	name := core.Name("quota")
	minute := s.limiter(t, "period", core.FixedWindow(core.PerMinute(10), name))
	hour := s.limiter(t, "period", core.FixedWindow(core.PerHour(10), name))
	allowN(t, minute, "fixed", 4)
	s.Advance(10 * time.Second)
	want(t, allowN(t, hour, "fixed", 1), true, 5, 0, 50*time.Second)
	s.Advance(50 * time.Second)
	want(t, allowN(t, hour, "fixed", 1), true, 9, 0, time.Hour)

	minute = s.limiter(t, "buckets", core.TokenBucket(core.PerMinute(10), name))
	hour = s.limiter(t, "buckets", core.TokenBucket(core.PerHour(10), name))
	allowN(t, minute, "token", 4)
	s.Advance(9 * time.Second) // one and a half tokens come back at the old rate
	want(t, allowN(t, hour, "token", 1), true, 6, 0, 21*time.Minute)
	want(t, peek(t, minute, "token"), true, 6, 0, 21*time.Second)

	aligned := s.limiter(t, "aligned", core.FixedWindow(core.PerMinute(10), name, core.Aligned()))
	allowN(t, aligned, "fixed", 4)
	aligned = s.limiter(t, "aligned", core.FixedWindow(core.PerHour(10), name, core.Aligned()))
	if res := peek(t, aligned, "fixed"); res.Remaining != 10 {
		t.Errorf("an aligned window of another period: %+v", res)
	}
}

// keys returns the redis keys of all limiters, sorted.
func (s Store) keys(t *testing.T) []string {
	t.Helper()
	keys, err := s.Redis.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(keys)
	return keys
}

// expiry returns the instant at which key expires by the store's clock.
func (s Store) expiry(t *testing.T, key string) time.Time {
	t.Helper()
	at, err := s.Redis.PExpireTime(context.Background(), key).Result()
	if err != nil || at < 0 {
		t.Errorf("%s has no TTL: %v, %v", key, at, err)
	}
	return time.UnixMilli(at.Milliseconds())
}

// dump returns what is stored, with the instant at which it expires.
func (s Store) dump(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, key := range s.keys(t) {
		value, err := s.Redis.Dump(context.Background(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, value+s.expiry(t, key).String())
	}
	return all
}
