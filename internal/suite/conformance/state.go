package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

// stateCases are about what is stored: it expires, denials do not change it, and
// foreign values and flushed scripts do no harm.
func stateCases() []testCase {
	return slices.Concat(
		each("Expires", expires),
		eachWithSlots("Foreign", foreign),
		eachWithSlots("ScriptFlushed", scriptFlushed),
	)
}

// expires compares the TTL of a key with the time for which it is needed, after each
// kind of decision. The units of one rate take a fraction of a microsecond with a large
// denominator: its parts must not be taken for microseconds.
func expires(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to look at")
	}
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
				t.Errorf("%s stored something", what)
			}
		} else if at := s.expiry(t, key); at.Before(needed.Add(-s.blur(charged))) || at.After(needed.Add(time.Second)) {
			t.Errorf("%s: it expires %v after it is no longer needed", what, at.Sub(needed))
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
		t.Errorf("a denied call, a cost of 0 or a Peek changed what is stored or its expiry: %v, before it %v", s.dump(t), before)
	}
	step("the last charge", 1)
	cancel(t, acquire(t, lim, "other", 3))
	step("after the refund of another", 0)
}

// foreign stores values that no script writes: they count as no value, and after a
// decision the key has a TTL.
func foreign(t *testing.T, s Store, limit maker) {
	if s.Redis == nil {
		t.Skip("no keys to write to")
	}
	ctx := context.Background()
	lim := s.limiter(t, "foreign", limit(tenPerTen))
	admit(t, lim, "k", 1)
	key, now := s.keys(t)[0], peek(t, lim, "k").At.UnixMicro()
	zset := func(scores ...redis.Z) func() error {
		return func() error { return s.Redis.ZAdd(ctx, key, scores...).Err() }
	}
	for name, put := range map[string]func() error{
		"text":                            func() error { return s.Redis.Set(ctx, key, "hello", 0).Err() },
		"empty":                           func() error { return s.Redis.Set(ctx, key, "", 0).Err() },
		"number":                          func() error { return s.Redis.Set(ctx, key, "42", 0).Err() },
		"F1 infinite":                     func() error { return s.Redis.Set(ctx, key, "F1 1e99 99999999999999999999 1", 0).Err() },
		"F1 huge":                         func() error { return s.Redis.Set(ctx, key, "F1 99999999999999999999 9999999999999999999 1", 0).Err() },
		"F1 in 500 days":                  func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("F1 10 %d", now+43_200_000_000_000), 0).Err() },
		"F1 of 500 days":                  func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("F1 10 %d 43200000000000", now), 0).Err() },
		"B1 rate of 0, 2 numbers":         func() error { return s.Redis.Set(ctx, key, "B1 0 1 2", 0).Err() },
		"B1 nan after a number":           func() error { return s.Redis.Set(ctx, key, "B1 10 1 nan", 0).Err() },
		"B1 a number and a part too many": func() error { return s.Redis.Set(ctx, key, "B1 10 1 8000000000000000+10", 0).Err() },
		"B1 rate of 0":                    func() error { return s.Redis.Set(ctx, key, "B1 0 5", 0).Err() },
		"B1 late, 3 numbers":              func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 1 1", 0).Err() },
		"B1 places in no order":           func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 1 5,6,2,3", 0).Err() },
		"B1 places beyond the end":        func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 1 5,9000000000000000", 0).Err() },
		"B1 places without a number":      func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 1 ,,", 0).Err() },
		"B1 an epoch too late":            func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000 99999999999999999", 0).Err() },
		"B1 nan":                          func() error { return s.Redis.Set(ctx, key, "B1 10 nan", 0).Err() },
		"B1 inf":                          func() error { return s.Redis.Set(ctx, key, "B1 10 inf", 0).Err() },
		"B1 half":                         func() error { return s.Redis.Set(ctx, key, "B1 10 5.5", 0).Err() },
		"B1 part":                         func() error { return s.Redis.Set(ctx, key, "B1 10 8000000000000000+10", 0).Err() },
		"B1 no number":                    func() error { return s.Redis.Set(ctx, key, "B1 9 1.5.5", 0).Err() },
		"C1 huge":                         func() error { return s.Redis.Set(ctx, key, "C1 1800000000000000 999999999999 1", 0).Err() },
		"hash":                            func() error { return s.Redis.HSet(ctx, key, "a", "b").Err() },
		"list":                            func() error { return s.Redis.RPush(ctx, key, "a").Err() },
		"B1 plus nan":                     func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("B1 10 %d+nan", now+1e6), 0).Err() },
		"B1 plus inf":                     func() error { return s.Redis.Set(ctx, key, fmt.Sprintf("B1 10 %d+inf", now+1e6), 0).Err() },
		"zset member that is no number":   zset(redis.Z{Score: 1, Member: "a"}),
		"zset score beyond all instants":  zset(redis.Z{Score: 9e18, Member: "5"}),
		"zset instant too late":           zset(redis.Z{Score: 8e15, Member: "8000000000000000"}),
		"zset score inf":                  zset(redis.Z{Score: math.Inf(1), Member: "5"}),
		"zset score -inf":                 zset(redis.Z{Score: math.Inf(-1), Member: "5"}),
		"zset member nan":                 zset(redis.Z{Score: float64(now), Member: "nan"}),
		"zset member plus nan":            zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d+nan", now)}),
		"zset nan of 2 units":             zset(redis.Z{Score: float64(now), Member: "nan:2"}),
		"zset member half":                zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d.5", now)}),
		"zset member before its score":    zset(redis.Z{Score: float64(now), Member: fmt.Sprint(now - 1)}),
		"zset units that are no number":   zset(redis.Z{Score: float64(now), Member: fmt.Sprintf("%d:x", now)}),
		"set":                             func() error { return s.Redis.SAdd(ctx, key, "a").Err() },
	} {
		s.Redis.Del(ctx, key)
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if res := peek(t, lim, "k"); !res.Allowed || res.Remaining != 10 {
			t.Errorf("%s: Peek %+v", name, res)
		}
		if admit(t, lim, "k", 11).Allowed {
			t.Errorf("%s: too large a cost was admitted", name)
		}
		if n := s.Redis.Exists(ctx, key).Val(); n != 0 && s.Redis.PTTL(ctx, key).Val() < 0 {
			t.Errorf("%s: a denied call left it without a TTL", name)
		}
		if res := admit(t, lim, "k", 4); !res.Allowed || res.Remaining != 6 {
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
	flush := func() {
		t.Helper()
		if err := s.Redis.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(5) {
		flush()
		if res := admit(t, lim, "k", 1); !res.Allowed || res.Remaining != 9-i {
			t.Fatalf("call %d: %+v", i+1, res)
		}
	}
	flush()
	held := reserve(t, lim, "k", 4)
	flush()
	cancel(t, held)
	flush()
	remains(t, lim, "k", 5)
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
	// The time last: if the server is delayed between them, the key seems to expire later, not too early.
	const timeAndTTL = "local ttl, time = redis.call('PTTL', KEYS[1]), redis.call('TIME') return {time[1], time[2], ttl}"
	reply, err := s.Redis.Eval(ctx, timeAndTTL, []string{key}).Slice()
	if err != nil {
		t.Fatal(err)
	}
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
	if s.Clock == nil || s.Redis.Type(ctx, key).Val() == "zset" { // a log has an instant as its TTL
		return time.Unix(numbers[0], numbers[1]*1000).Add(ttl)
	}
	return s.Clock().Add(ttl - DrivenGrace)
}

// blur returns how much too early an expiry that was charged at an instant may seem to
// be: the server's clock goes on while the driven one stands, and a TTL is in whole
// milliseconds.
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
