package conformance

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// stateCases test what is stored: it expires, denials do not change it, and foreign values do no harm.
func stateCases() []testCase {
	return slices.Concat(
		each("Expires", expires),
		eachWithSlots("Foreign", foreign),
	)
}

// expires compares the TTL of a key with the time for which the key is needed, after each kind of decision. One of the
// rates gives units a duration of a fraction of a microsecond with a large denominator. The script stores such a time in
// parts, which must not be mistaken for microseconds.
func expires(t *testing.T, s Store, limit maker) {
	s.needsRedis(t, "no keys to look at")
	expiresAt(t, s, "ttl", limit(tenPerTen))
	expiresAt(t, s, "parts", limit(core.Per(99_991, 24*time.Hour)))
}

func expiresAt(t *testing.T, s Store, name string, limit core.Limit) {
	lim := s.limiter(t, name, limit)
	key := "rl:" + name + ":{k}:" + limit.Name()
	var needed, charged time.Time
	step := func(what string, n int64) {
		t.Helper()
		before := time.Now()
		res := allowN(t, lim, "k", n)
		if res.Allowed && n > 0 {
			needed, charged = res.At.Add(res.ResetAfter), before
		}
		if needed.IsZero() {
			if s.Redis.Exists(t.Context(), key).Val() > 0 {
				t.Errorf("%s stored a key, want none", what)
			}
		} else if at := s.expiry(t, key); at.Before(needed.Add(-s.blur(charged))) || at.After(needed.Add(time.Second)) {
			t.Errorf("%s: the key expires %v after it is no longer needed, want 0s to 1s", what, at.Sub(needed))
		}
	}
	most := limit.Rate().Count()
	step("a cost of 0", 0)
	step("too large a cost", most+1)
	step("the first charge", 1)
	s.Advance(1234567 * time.Microsecond)
	step("the second charge", most-2)
	before, ends := s.dump(t), s.expiry(t, key)
	step("denied", most-1)
	step("too large", most+1)
	step("a cost of 0", 0)
	peek(t, lim, "k")
	if !slices.Equal(s.dump(t), before) || s.expiry(t, key).After(ends.Add(time.Millisecond)) {
		t.Errorf("after a denied call, a cost of 0 and a Peek, %v is stored, or its expiry has changed; want %v with the same expiry", s.dump(t), before)
	}
	step("the last charge", 1)
	cancel(t, acquire(t, lim, "other", 3))
	step("after the refund of another", 0)
}

// ForeignValues returns values that no script writes, as commands without the key.
func ForeignValues(now int64) [][]any {
	values := [][]any{
		{"hset", "a", "b"}, {"rpush", "a"}, {"sadd", "a"},
		{"zadd", 1, "a"}, {"zadd", "9e18", "5"}, {"zadd", "8e15", "8000000000000000"}, {"zadd", "inf", "5"}, {"zadd", "-inf", "5"},
		{"zadd", now, "nan"}, {"zadd", now, fmt.Sprintf("%d+nan", now)}, {"zadd", now, "nan:2"}, {"zadd", now, fmt.Sprintf("%d.5", now)},
		{"zadd", now, now - 1}, {"zadd", now, fmt.Sprintf("%d:x", now)},
	}
	for _, text := range []string{
		"hello", "", "42",
		"F1 1e99 99999999999999999999 1", "F1 99999999999999999999 9999999999999999999 1",
		fmt.Sprintf("F1 10 %d", now+43_200_000_000_000), fmt.Sprintf("F1 10 %d 43200000000000", now), // a window that ends in 500 days, and one that lasts 500 days
		"B1 0 5", "B1 0 1 2", "B1 10 nan", "B1 10 inf", "B1 10 5.5", "B1 9 1.5.5", "B1 10 1 nan",
		"B1 10 8000000000000000+10", "B1 10 1 8000000000000000+10", "B1 10 8000000000000000 1 1",
		"B1 10 8000000000000000 1 5,6,2,3", "B1 10 8000000000000000 1 5,9000000000000000", "B1 10 8000000000000000 1 ,,", // places in a queue
		"B1 10 8000000000000000 99999999999999999", fmt.Sprintf("B1 10 %d+nan", now+1e6), fmt.Sprintf("B1 10 %d+inf", now+1e6),
		"C1 1800000000000000 999999999999 1",
	} {
		values = append(values, []any{"set", text})
	}
	return values
}

// foreign stores values that no script writes: they count as no value, and after a decision the key has a TTL.
func foreign(t *testing.T, s Store, limit maker) {
	s.needsRedis(t, "no keys to write to")
	ctx := context.Background()
	lim := s.limiter(t, "foreign", limit(tenPerTen))
	admit(t, lim, "k", 1)
	key := s.keys(t)[0]
	for _, value := range ForeignValues(peek(t, lim, "k").At.UnixMicro()) {
		s.Redis.Del(ctx, key)
		check.Need(t, s.Redis.Do(ctx, slices.Insert(value, 1, any(key))...).Err())
		if res := peek(t, lim, "k"); !res.Allowed || res.Remaining != 10 {
			t.Errorf("with %v stored: Peek returned %+v, want all 10 units", value, res)
		}
		if admit(t, lim, "k", 11).Allowed {
			t.Errorf("with %v stored: a cost of 11 was admitted, want a denial", value)
		}
		if n := s.Redis.Exists(ctx, key).Val(); n != 0 && s.Redis.PTTL(ctx, key).Val() < 0 {
			t.Errorf("with %v stored: a denied call left the key without a TTL", value)
		}
		if res := admit(t, lim, "k", 4); !res.Allowed || res.Remaining != 6 {
			t.Errorf("with %v stored: a cost of 4 got %+v, want it allowed with 6 remaining", value, res)
		}
		if s.Redis.PTTL(ctx, key).Val() <= 0 {
			t.Errorf("with %v stored: the key has no TTL after a charge", value)
		}
	}
}

// OnEach runs a function on a server, or on each master of a Cluster, one after the other.
func OnEach(ctx context.Context, client redis.UniversalClient, do func(ctx context.Context, node redis.UniversalClient) error) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return do(ctx, client)
	}
	var one sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		return do(ctx, node)
	})
}

// keys returns the keys of all limiters in Redis, sorted.
func (s Store) keys(t *testing.T) []string {
	t.Helper()
	var keys []string
	if err := OnEach(context.Background(), s.Redis, func(ctx context.Context, node redis.UniversalClient) error {
		more, err := node.Keys(ctx, "*").Result()
		keys = append(keys, more...)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// expiry returns the instant at which a key expires, by the store's clock.
func (s Store) expiry(t *testing.T, key string) time.Time {
	t.Helper()
	ctx := context.Background()
	// The script reads the time last: if the server is delayed in between, the key seems to expire later, and not too
	// early.
	const timeAndTTL = "local ttl, time = redis.call('PTTL', KEYS[1]), redis.call('TIME') return {time[1], time[2], ttl}"
	reply, err := s.Redis.Eval(ctx, timeAndTTL, []string{key}).Slice()
	check.Need(t, err)
	var numbers [3]int64
	for i, v := range reply {
		if numbers[i], err = strconv.ParseInt(fmt.Sprint(v), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	ttl := time.Duration(numbers[2]) * time.Millisecond
	if ttl < 0 {
		t.Errorf("%s has no TTL: %v", key, ttl)
	}
	if s.Clock == nil || s.Redis.Type(ctx, key).Val() == "zset" { // the key of a log expires at an instant, not after a TTL
		return time.Unix(numbers[0], numbers[1]*1000).Add(ttl)
	}
	return s.Clock().Add(ttl - DrivenGrace)
}

// blur returns how much too early the expiry of a key that was charged at an instant may seem. The server's clock goes on
// while the driven clock stands, and a TTL has whole milliseconds.
func (s Store) blur(charged time.Time) time.Duration {
	if s.Clock == nil {
		return 0
	}
	return time.Since(charged) + time.Millisecond
}

// dump returns the values of all keys, in the order of the keys.
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
