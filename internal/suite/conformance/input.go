package conformance

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// inputCases test wrong arguments, and keys as clients may send them.
func inputCases() []testCase {
	return []testCase{
		{"Input/Errors", inputErrors},
		{"Input/Keys", inputKeys},
		{"Input/Apart", apart},
		{"Input/Collisions", collisions},
		{"Input/Printed", printed},
	}
}

// collisions uses keys that contain the prefixes that a store in memory puts before keys, and the suffixes of keys in
// Redis: none of them equals the key of another limit or of a ban.
func collisions(t *testing.T, s Store) {
	if s.Redis != nil {
		t.Skip("in Redis each limit has a key of its own")
	}
	token := func(name string) core.Limit { return core.TokenBucket(tenPerTen, core.LimitName(name)) }
	window := func(name string) core.Limit { return core.FixedWindow(tenPerTen, core.LimitName(name)) }
	lim := s.limiter(t, "collisions", core.FixedWindow(tenPerTen), core.Ban())
	all := map[*core.Limiter][]string{
		with(t, lim, token("a")): nil, with(t, lim, window("a")): nil, with(t, lim, token("b"), window("c")): nil, lim: nil,
	}
	for l := range all {
		for i := range 100 { // with this many keys, some share a shard in memory
			k := strconv.Itoa(i)
			all[l] = append(all[l], k, "\x00"+k, "\x00k"+k, "\x00b"+k, "\x00k\x00b"+k, "\x00b\x00k"+k, "a~bucket"+k, "a~bucket\x00"+k)
		}
	}
	for i := range 100 {
		check.OK(t, lim.Block(t.Context(), "banned"+strconv.Itoa(i), time.Hour))
		check.OK(t, lim.Block(t.Context(), "\x00banned"+strconv.Itoa(i), time.Hour))
	}
	for l, keys := range all {
		for _, key := range keys {
			allowN(t, l, key, 3)
		}
	}
	for l, keys := range all {
		for _, key := range keys {
			if res := peek(t, l, key); res.Remaining != 7 {
				t.Errorf("key %q of %v: %d units remain, want 7", key, l.Limits(), res.Remaining)
			}
		}
	}
}

// inputErrors checks the errors for wrong costs, an empty key and a context that has ended.
func inputErrors(t *testing.T, s Store) {
	lim := s.limiter(t, "errors", core.TokenBucket(tenPerTen))
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		key  string
		n    int64
		want error
	}{
		{"negative cost", ctx, "k", -1, core.ErrInvalidCost},
		{"most negative cost", ctx, "k", -1 << 63, core.ErrInvalidCost},
		{"empty key", ctx, "", 1, core.ErrInvalidKey},
		{"cancelled", cancelled, "k", 1, context.Canceled},
	} {
		res, err := lim.AllowN(c.ctx, c.key, c.n)
		if !errors.Is(err, c.want) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
		if res.Allowed {
			t.Errorf("%s: got %+v, want it not allowed", c.name, res)
		}
	}
	if _, err := lim.Peek(ctx, ""); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("Peek of an empty key: got error %v, want ErrInvalidKey", err)
	}
	if err := lim.Reset(ctx, ""); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("Reset of an empty key: got error %v, want ErrInvalidKey", err)
	}
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
}

// printed prints Results and Events in every form in which programs log them: none contains the key.
func printed(t *testing.T, s Store) {
	const secret = "alice@example.org"
	var events []core.Event
	var out bytes.Buffer
	loggers := []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))}
	for _, limits := range [][]core.Option{
		{core.TokenBucket(core.PerMinute(1))},
		{core.TokenBucket(core.PerMinute(1)), core.SlidingWindowLog(core.PerHour(9))},
	} {
		observe := core.Observe(func(_ context.Context, e core.Event) { events = append(events, e) })
		lim := s.limiter(t, "printed", append(limits, observe)...)
		for range 3 {
			g := acquire(t, lim, secret, 1)
			events = append(events, core.Event{Result: g.Result})
			cancel(t, g)
		}
		events = append(events, core.Event{Result: peek(t, lim, secret)})
	}
	for _, e := range events {
		for _, v := range []any{e, &e, e.Result, &e.Result, []core.Event{e}, []core.Result{e.Result}, map[string]any{"result": e.Result}, slices.Collect(e.Result.All())} {
			fmt.Fprintf(&out, "%v %+v %#v %s %q %d %x\n", v, v, v, v, v, v, v)
			fmt.Fprintln(&out, v)
			for _, logger := range loggers {
				logger.Info("decided", "value", v)
			}
		}
		if text := fmt.Sprintf("%+v", e.Result); e.Result.Source != core.SourceNone && !strings.Contains(text, "Remaining:"+strconv.FormatInt(e.Result.Remaining, 10)) {
			t.Errorf("a Result is printed as %s, want its Remaining shown", text)
		}
	}
	for _, form := range []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret)))} {
		if at := strings.Index(out.String(), form); at >= 0 {
			t.Errorf("the output contains the key, which must not be logged: ...%s", out.String()[max(0, at-200):at+len(form)])
		}
	}
	if len(events) < 14 {
		t.Errorf("only %d events were printed, want at least 14", len(events))
	}
}

// inputKeys uses up the limit of many unusual keys that a client may choose. Each is counted separately and takes a bounded
// number of bytes.
func inputKeys(t *testing.T, s Store) {
	lim := s.limiter(t, "keys", core.FixedWindow(core.PerHour(2)))
	keys := []string{
		"a", "a ", " a", "A", "a:b", "a}", "{a", "{a}", "a}:fixed-1h", "}:fixed-1h", "{}", "{}a", "~a", "~",
		"a\x00", "a\r\nGET b", "\xff\xfe", "\xff\xff", "é", "e\u0301", "*", "?", "[a]", "'", `"`, `\`,
		strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20+1),
	}
	for _, key := range keys {
		if res := allowN(t, lim, key, 2); !res.Allowed || res.Remaining != 0 {
			t.Errorf("the first call on key %.40q: got %+v, want it allowed, as no other key counts with it", key, res)
		}
	}
	for _, key := range keys {
		if res := allowN(t, lim, key, 1); res.Allowed {
			t.Errorf("a call on the used key %.40q: got %+v, want a denial", key, res)
		}
	}
	if s.Redis == nil {
		return
	}
	stored := s.keys(t)
	if len(stored) != len(keys) {
		t.Errorf("%d keys are stored, want %d", len(stored), len(keys))
	}
	for _, key := range stored {
		inner, tail, ok := strings.Cut(strings.TrimPrefix(key, "rl:keys:{"), "}")
		if !ok || tail != ":fixed-1h" || strings.ContainsAny(inner, "{}") || len(key) > 100 {
			t.Errorf("the Redis key is %q, of %d bytes; want the form rl:keys:{...}:fixed-1h and at most 100 bytes", key, len(key))
		}
	}
}

// apart checks that limiters of different names, prefixes, periods and algorithms share no counts, and that limiters of one
// name do.
func apart(t *testing.T, s Store) {
	limit := core.FixedWindow(core.PerHour(2))
	first := s.limiter(t, "first", limit)
	for name, other := range map[string]*core.Limiter{
		"another name":      s.limiter(t, "second", limit),
		"another period":    s.limiter(t, "first", core.FixedWindow(core.PerDay(2))),
		"a named limit":     s.limiter(t, "first", core.FixedWindow(core.PerHour(2), core.LimitName("hourly"))),
		"aligned":           s.limiter(t, "first", core.FixedWindow(core.PerHour(2), core.Aligned())),
		"another algorithm": s.limiter(t, "first", core.TokenBucket(core.PerHour(2))),
	} {
		allowN(t, first, name, 2)
		if res := allowN(t, other, name, 2); !res.Allowed {
			t.Errorf("%s: got %+v, want it allowed by a count of its own", name, res)
		}
	}
	if s.Redis != nil {
		prefixed := s.limiter(t, "first", limit, core.Prefix("app"))
		allowN(t, first, "prefix", 2)
		if res := allowN(t, prefixed, "prefix", 2); !res.Allowed {
			t.Errorf("another prefix: got %+v, want it allowed by a count of its own", res)
		}
		twin := s.limiter(t, "first", limit)
		if res := allowN(t, twin, "prefix", 1); res.Allowed {
			t.Errorf("a limiter of the same name: got %+v, want a denial by the shared count", res)
		}
	}
}
