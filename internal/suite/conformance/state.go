package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// stateCases are about what is stored: that it expires, that denials leave it
// alone, and that foreign values and changed limits do no harm.
func stateCases() []testCase {
	return slices.Concat(
		each("Reset", reset),
		each("Expires", expires),
		each("ExpiresInTime", expiresInTime),
		each("Foreign", foreign),
		each("ScriptFlushed", scriptFlushed),
	)
}

func reset(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "reset", limit(tenPerTen))
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
func expires(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
	lim := s.limiter(t, "ttl", limit(tenPerTen))
	var needed, charged time.Time
	step := func(name string, n int64) {
		before := time.Now()
		res := allowN(t, lim, "k", n)
		if res.Allowed && n > 0 {
			needed, charged = res.At.Add(res.ResetAfter), before
		}
		for _, key := range s.keys(t) {
			at := s.expiry(t, key)
			if at.Before(needed.Add(-s.blur(charged))) || at.After(needed.Add(time.Second)) {
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
	before, ends := s.dump(t), s.expiry(t, s.keys(t)[0])
	step("denied", 9)
	step("too large", 11)
	step("a cost of 0", 0)
	peek(t, lim, "k")
	if after := s.dump(t); len(after) != 1 || after[0] != before[0] {
		t.Error("a denied call, a cost of 0 or a Peek changed what is stored")
	}
	if after := s.expiry(t, s.keys(t)[0]); after.After(ends.Add(time.Millisecond)) {
		t.Errorf("a denied call, a cost of 0 or a Peek moved the expiry by %v", after.Sub(ends))
	}
	step("last charge", 1)
	other := allowN(t, lim, "other", 3)
	if err := lim.Refund(context.Background(), other); err != nil {
		t.Fatal(err)
	}
	step("after the refund of another", 0)
}

// expiresInTime is expires for a rate of which a unit takes a fraction of many
// parts: they are no microseconds.
func expiresInTime(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
	lim := s.limiter(t, "parts", limit(core.Per(99_991, 24*time.Hour)))
	for _, n := range []int64{1, 2, 1000} {
		before := time.Now()
		res := allowN(t, lim, "k", n)
		needed := res.At.Add(res.ResetAfter)
		for _, key := range s.keys(t) {
			if at := s.expiry(t, key); at.Before(needed.Add(-s.blur(before))) || at.After(needed.Add(time.Second)) {
				t.Errorf("after %d units: %s expires %v after it is no longer needed", n, key, at.Sub(needed))
			}
		}
		s.Advance(1234567 * time.Microsecond)
	}
}

// foreign puts what we never wrote at the key: the decision starts afresh, and
// what it stores expires.
func foreign(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to write to")
	}
	ctx := context.Background()
	lim := s.limiter(t, "foreign", limit(tenPerTen))
	allowN(t, lim, "k", 1)
	key, now := s.keys(t)[0], peek(t, lim, "k").At.UnixMicro()
	zset := func(scores ...redis.Z) func() error {
		return func() error { return s.Redis.ZAdd(ctx, key, scores...).Err() }
	}
	for name, put := range map[string]func() error{
		"text":    func() error { return s.Redis.Set(ctx, key, "hello", 0).Err() },
		"empty":   func() error { return s.Redis.Set(ctx, key, "", 0).Err() },
		"number":  func() error { return s.Redis.Set(ctx, key, "42", 0).Err() },
		"version": func() error { return s.Redis.Set(ctx, key, "Z9 1 2 3 4 5 6 7", 0).Err() },
		"huge F1": func() error { return s.Redis.Set(ctx, key, "F1 1e99 99999999999999999999 1", 0).Err() },
		"huge F2": func() error { return s.Redis.Set(ctx, key, "F1 99999999999999999999 9999999999999999999 1", 0).Err() },
		"zero T1": func() error { return s.Redis.Set(ctx, key, "B1 0 1 2", 0).Err() },
		"nan T1":  func() error { return s.Redis.Set(ctx, key, "B1 10 1 nan", 0).Err() },
		"part T1": func() error { return s.Redis.Set(ctx, key, "B1 10 1 8000000000000000+10", 0).Err() },
		"zero G1": func() error { return s.Redis.Set(ctx, key, "B1 0 5", 0).Err() },
		"late T1": func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 1", 0).Err() },
		"nan G1":  func() error { return s.Redis.Set(ctx, key, "B1 10 nan", 0).Err() },
		"inf L1":  func() error { return s.Redis.Set(ctx, key, "B1 10 inf", 0).Err() },
		"half L1": func() error { return s.Redis.Set(ctx, key, "B1 10 5.5", 0).Err() },
		"part G1": func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000+10", 0).Err() },
		"none L1": func() error { return s.Redis.Set(ctx, key, "B1 9 1.5.5", 0).Err() },
		"huge C1": func() error { return s.Redis.Set(ctx, key, "C1 1800000000000000 999999999999 1", 0).Err() },
		"hash":    func() error { return s.Redis.HSet(ctx, key, "a", "b").Err() },
		"list":    func() error { return s.Redis.RPush(ctx, key, "a").Err() },
		"+nan B1": func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("B1 10 %d+nan", now+1e6), 0).Err() },
		"+inf B1": func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("B1 10 %d+inf", now+1e6), 0).Err() },
		"zset":    zset(redis.Z{Score: 1, Member: "a"}),
		"scores":  zset(redis.Z{Score: 9e18, Member: "5"}),
		"far":     zset(redis.Z{Score: 8e15, Member: "8000000000000000"}),
		"inf":     zset(redis.Z{Score: math.Inf(1), Member: "5"}),
		"-inf":    zset(redis.Z{Score: math.Inf(-1), Member: "5"}),
		"nan":     zset(redis.Z{Score: float64(now), Member: "nan"}),
		"+nan":    zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d+nan", now)}),
		"nan:2":   zset(redis.Z{Score: float64(now), Member: "nan:2"}),
		"half":    zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d.5", now)}),
		"before":  zset(redis.Z{Score: float64(now), Member: fmt.Sprint(now - 1)}),
		"units":   zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d:x", now)}),
		"powers":  zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d:2", now)}, redis.Z{Score: -5, Member: "x"}),
		"power":   zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d:2", now)}, redis.Z{Score: -1e300, Member: fmt.Sprintf("%d*1e300", now)}),
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
func scriptFlushed(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no scripts")
	}
	lim := s.limiter(t, "flushed", limit(tenPerTen))
	for i := range int64(10) {
		if err := s.Redis.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		if res := allowN(t, lim, "k", 1); !res.Allowed || res.Remaining != 9-i {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
}

// keys returns the redis keys of all limiters, sorted.
func (s Store) keys(t *testing.T) []string {
	t.Helper()
	var keys []string
	look := func(ctx context.Context, node redis.Cmdable) error {
		more, err := node.Keys(ctx, "*").Result()
		keys = append(keys, more...)
		return err
	}
	var err error
	if cluster, ok := s.Redis.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		err = cluster.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return look(ctx, node)
		})
	} else {
		err = look(context.Background(), s.Redis)
	}
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(keys)
	return keys
}

// expiry returns the instant at which key expires by the store's clock.
func (s Store) expiry(t *testing.T, key string) time.Time {
	t.Helper()
	ctx := context.Background()
	ttl, err := s.Redis.PTTL(ctx, key).Result()
	if err != nil || ttl < 0 {
		t.Errorf("%s has no TTL: %v, %v", key, ttl, err)
	}
	if s.Clock == nil || s.Redis.Type(ctx, key).Val() == "zset" { // a log has an instant as its TTL
		now, err := s.Redis.Time(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		return now.Add(ttl)
	}
	return s.Clock().Add(ttl - DrivenGrace)
}

// blur returns how much sooner than it does a key may seem to expire. The server's
// clock goes on while a driven one stands, and a TTL is cut to milliseconds.
func (s Store) blur(charged time.Time) time.Duration {
	if s.Clock == nil {
		return 0
	}
	return time.Since(charged) + time.Millisecond
}

// dump returns what is stored.
func (s Store) dump(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, key := range s.keys(t) {
		value := s.Redis.Get(context.Background(), key).Val()
		entries := s.Redis.ZRangeWithScores(context.Background(), key, 0, -1).Val()
		all = append(all, fmt.Sprint(value, entries))
	}
	return all
}
