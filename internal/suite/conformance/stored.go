package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// storedAt is what Redis's clock says in docs/stored.md.
const storedAt = 4_100_000_000_000_000

// storedCases compare what is stored with docs/stored.md, byte for byte: processes of other versions read it.
func storedCases() []testCase {
	return []testCase{
		{"Stored", asDocumented}, {"Stored/Older", storedByOlder}, {"Stored/Newer", storedByNewer}, {"Stored/NewerBeside", newerBeside},
	}
}

// An example is a row of the document, and the history that writes its value.
type example struct {
	row          string
	limit        core.Limit
	opts         []core.Option
	history      func(t *testing.T, lim *core.Limiter) // nil: three units are charged
	remaining    int64
	reset, retry time.Duration // retry is the RetryAfter of one more unit
}

func examples() []example {
	perMinute := core.PerMinute(10)
	one := func(t *testing.T, lim *core.Limiter) { t.Helper(); admit(t, lim, "alice", 1) }
	ones := func(t *testing.T, lim *core.Limiter) { t.Helper(); one(t, lim); one(t, lim); one(t, lim) }
	held := func(t *testing.T, lim *core.Limiter) { t.Helper(); one(t, lim); reserve(t, lim, "alice", 2) }
	hold := []core.Option{core.Hold(30 * time.Second)}
	return append(registered(ones), []example{
		{"FixedWindow, named", core.FixedWindow(perMinute, core.LimitName("calls")), nil, nil, 7, time.Minute, time.Minute},
		{"FixedWindow of a calendar", core.FixedWindow(core.PerDay(10), core.In("UTC")), nil, nil, 7, 25600 * time.Second, 25600 * time.Second},
		{"TokenBucket, named", core.TokenBucket(perMinute, core.LimitName("calls")), nil, nil, 7, 18 * time.Second, 6 * time.Second},
		{"TokenBucket of 7 a second", core.TokenBucket(core.PerSecond(7)), nil, one, 6, 142858 * time.Microsecond, 142858 * time.Microsecond},
		{"LeakyBucket, a place given back", core.LeakyBucket(perMinute, core.Burst(10)), nil, func(t *testing.T, lim *core.Limiter) {
			t.Helper()
			one(t, lim)
			left := acquire(t, lim, "alice", 1)
			one(t, lim)
			cancel(t, left)
		}, 7, 18 * time.Second, 6 * time.Second},
		{"SlidingWindowLog, 3 units at once", core.SlidingWindowLog(perMinute), nil, nil, 7, time.Minute, time.Minute},
		{"InFlight, 1 unit", core.InFlight(10), nil, one, 9, 0, time.Second},
		{"InFlight, 3 units", core.InFlight(10), nil, nil, 7, 0, time.Second},
		{"FixedWindow, 2 of 3 held", core.FixedWindow(perMinute), hold, held, 7, time.Minute, time.Second},
		{"TokenBucket, 2 of 3 held", core.TokenBucket(perMinute), hold, held, 7, 18 * time.Second, time.Second},
		{"SlidingWindowLog, 2 of 3 held", core.SlidingWindowLog(perMinute), hold, held, 7, time.Minute, time.Second},
		{"Ban", core.FixedWindow(perMinute), []core.Option{core.Ban(time.Minute)}, func(t *testing.T, lim *core.Limiter) {
			t.Helper()
			allowN(t, lim, "alice", 10)
			one(t, lim)
		}, 0, time.Minute, time.Minute},
	}...)
}

// registered returns an example of every registered algorithm, of which history charges three units. The
// model says what is left then.
func registered(history func(*testing.T, *core.Limiter)) []example {
	var all []example
	for _, v := range limits.All() {
		if v.Kind.Moves { // its key is the key of a calendar
			continue
		}
		row, numbers := limits.Constructor(v.Kind), model.Limit{Algorithm: model.Algorithm(v.Kind.Name), Count: 10, Period: 60_000_000, Aligned: v.Aligned}
		if v.Aligned {
			row += ", Aligned"
		}
		if v.Kind.Bursts {
			numbers.Burst = 10
		}
		m := model.New(numbers)
		m.Decide(storedAt, 3)
		left := m.Decide(storedAt, 8).Each[0]
		all = append(all, example{
			row, v.With(core.PerMinute(10), limits.Settings{Burst: 10}), nil, history, left.Remaining, ceil(left.ResetAfter), ceil(left.RetryAfter),
		})
	}
	return all
}

// A storedRow is what the document says of an example: the key, its value and for how long it is kept.
type storedRow struct {
	key, value string
	lasts      time.Duration
}

// storedRows returns the rows of the table of docs/stored.md.
func storedRows(t *testing.T) map[string]storedRow {
	t.Helper()
	text, err := os.ReadFile(fromRoot(t, "docs/stored.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]storedRow)
	for _, m := range regexp.MustCompile("(?m)^\\| (.+?) \\| `(:.+?)` \\| `(.+?)` \\|.* ([\\d.]+) s \\|$").FindAllStringSubmatch(string(text), -1) {
		lasts, err := time.ParseDuration(m[4] + "s")
		if err != nil {
			t.Error(err)
		}
		rows[m[1]] = storedRow{"rl:api:{alice}" + m[2], strings.ReplaceAll(m[3], `\|`, "|"), lasts}
	}
	return rows
}

// begin returns a Limiter of an example, at the time of the document, where nothing is stored.
func (s Store) begin(t *testing.T, e example) *core.Limiter {
	t.Helper()
	s.Redis.Del(t.Context(), append(s.keys(t), "{alice}")...)
	lim := s.limiter(t, "api", append([]core.Option{e.limit}, e.opts...)...)
	s.Advance(time.UnixMicro(storedAt).Sub(peek(t, lim, "alice").At))
	return lim
}

// ids are chosen at random, for holds and slots.
var ids = regexp.MustCompile(`(\|H1 |\bs)\d+`)

// value returns what is stored at key, as the document has it. A sorted set is as ZADD takes it.
func (s Store) value(t *testing.T, key string) string {
	t.Helper()
	entries := []string{s.Redis.Get(t.Context(), key).Val()}
	for _, z := range s.Redis.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
		entries = append(entries, strings.ToLower(strconv.FormatFloat(z.Score, 'f', 0, 64))+fmt.Sprint(" ", z.Member))
	}
	return ids.ReplaceAllString(strings.TrimPrefix(strings.Join(entries, ", "), ", "), "${1}123")
}

// put stores what the document has.
func (s Store) put(t *testing.T, key, value string) {
	t.Helper()
	s.Redis.Del(t.Context(), key)
	err := s.Redis.Set(t.Context(), key, value, time.Hour).Err()
	if value[0] < 'A' { // a score
		s.Redis.Del(t.Context(), key)
		for entry := range strings.SplitSeq(value, ", ") {
			score, member, _ := strings.Cut(entry, " ")
			n, _ := strconv.ParseFloat(score, 64)
			err = errors.Join(err, s.Redis.ZAdd(t.Context(), key, redis.Z{Score: n, Member: member}).Err())
		}
		err = errors.Join(err, s.Redis.ExpireAt(t.Context(), key, time.UnixMicro(storedAt).Add(time.Hour)).Err())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// asDocumented has each history write what the document says, and decides from the document's own bytes.
func asDocumented(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("nothing is stored")
	}
	rows, all := storedRows(t), examples()
	if len(rows) != len(all) {
		t.Errorf("docs/stored.md has %d rows, and there are %d examples", len(rows), len(all))
	}
	for _, e := range all {
		lim, row := s.begin(t, e), rows[e.row]
		begun := time.Now()
		if e.history == nil {
			admit(t, lim, "alice", 3)
		} else {
			e.history(t, lim)
		}
		if row.key == "" {
			t.Errorf("docs/stored.md has no row of %s, which stores %v at %v", e.row, s.dump(t), s.keys(t))
			continue
		}
		got := s.value(t, row.key)
		if got != row.value {
			t.Errorf("%s: stored is %q at %v; docs/stored.md says %q at %s", e.row, got, s.keys(t), row.value, row.key)
			continue
		}
		lasts := s.expiry(t, row.key).Sub(time.UnixMicro(storedAt))
		if lasts < row.lasts-s.blur(begun) || lasts > row.lasts+time.Second {
			t.Errorf("%s: it is kept for %v; docs/stored.md says %v", e.row, lasts, row.lasts)
		}
		e.decides(t, s, lim)
		s.Redis.Del(t.Context(), s.keys(t)...)
		s.put(t, row.key, row.value)
		e.decides(t, s, s.limiter(t, "api", append([]core.Option{e.limit}, e.opts...)...))
	}
}

// storedByOlder decides from what each version has stored since 0.1.0: testdata has a file of each that writes another form.
// A line is the row of docs/stored.md then, the key and the value. Its promise is that the version before is read.
func storedByOlder(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("nothing is stored")
	}
	files, err := filepath.Glob(fromRoot(t, "internal/suite/conformance/testdata/stored-*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	all := examples()
	for _, file := range files {
		text, err := os.ReadFile(file)
		check.Need(t, err)
		for line := range strings.Lines(string(text)) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			i := slices.IndexFunc(all, func(e example) bool { return e.row == row[0] })
			if i < 0 {
				t.Fatalf("%s: there is no example of %q", file, row[0])
			}
			lim := s.begin(t, all[i])
			s.put(t, row[1], row[2])
			all[i].decides(t, s, lim)
		}
	}
}

// decides compares what a limiter makes of the value of an example.
func (e example) decides(t *testing.T, s Store, lim *core.Limiter) {
	t.Helper()
	res, all := peek(t, lim, "alice"), s.dump(t)
	if res.Remaining != e.remaining || res.ResetAfter != e.reset || res.At.UnixMicro() != storedAt {
		t.Errorf("%s: %d remain, all in %v, at %v; want %d, %v", e.row, res.Remaining, res.ResetAfter, res.At, e.remaining, e.reset)
	}
	if res = admit(t, lim, "alice", e.remaining+1); res.Allowed || res.RetryAfter != e.retry {
		t.Errorf("%s: one unit more: %+v, want RetryAfter %v", e.row, res, e.retry)
	}
	if now := s.dump(t); !slices.Equal(now, all) {
		t.Errorf("%s: that changed %v to %v", e.row, all, now)
	}
}

// newer returns the value of a row as a later version may write it.
func (r storedRow) newer() []string {
	version := regexp.MustCompile(`\b([A-Z])1 `)
	value := version.ReplaceAllString(r.value, "${1}2 ")
	switch first := strings.Replace(r.value, "F1", "F2", 1); {
	case strings.HasSuffix(r.key, "inflight"):
		return []string{"-inf S2 5, " + value}
	case value == r.value:
		return []string{value + ", +inf L2 5"}
	case first != value && first != r.value: // what is charged, what is held, and both
		return []string{first, strings.Replace(value, "F2", "F1", 1), value}
	}
	return []string{value}
}

// storedByNewer makes each call read a value of a later version: the call fails and changes nothing. Reset
// and Unblock forget it.
func storedByNewer(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("nothing is stored, or miniredis replies that the script cannot be compiled")
	}
	rows := storedRows(t)
	for _, e := range examples() {
		if rows[e.row].key == "" { // the case above says it
			continue
		}
		for _, value := range rows[e.row].newer() {
			e.refuses(t, s, rows[e.row].key, value)
		}
	}
}

// refuses makes each call of a limiter on a value of a later version.
func (e example) refuses(t *testing.T, s Store, key, value string) {
	t.Helper()
	ctx, lim := t.Context(), s.begin(t, e)
	open := acquire(t, lim, "alice", 2)
	var held grant
	if strings.Contains(value, "|") {
		held = reserve(t, lim, "alice", 1)
	}
	s.Redis.Del(ctx, s.keys(t)...)
	s.put(t, key, value)
	before := s.dump(t)
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "a newer version of redislimit") {
			t.Errorf("%s of %q: %v", what, value, err)
		}
	}
	for range 2 {
		_, err := lim.Peek(ctx, "alice")
		refused("Peek", err)
		if !strings.HasPrefix(e.row, "InFlight") {
			_, err = lim.Allow(ctx, "alice")
			refused("Allow", err)
		}
		s.Advance(31 * time.Second) // what is held has expired
	}
	for n := range int64(2) {
		_, err := lim.Acquire(ctx, "alice", 1+10*n)
		refused("Acquire", err)
		_, err = lim.Reserve(ctx, "alice", 1+10*n)
		refused("Reserve", err)
	}
	if e.row == "Ban" {
		refused("Block", lim.Block(ctx, "alice", time.Hour))
	} else {
		refused("Cancel", open.Cancel(ctx))
	}
	if held.Any != nil {
		held.Keep()
		inside.Core.Driver(lim).Renew()
		refused("Settle", held.Settle(ctx, 1))
	}
	if after := s.dump(t); !slices.Equal(before, after) {
		t.Errorf("%q was changed to %v", value, after)
	}
	forget := lim.Reset
	if e.row == "Ban" {
		forget = lim.Unblock
	}
	if err := forget(ctx, "alice"); err != nil || !admit(t, lim, "alice", 7).Allowed {
		t.Errorf("%q is not forgotten: %v, %v", value, err, s.dump(t))
	}
}

// newerBeside has one of many keys, that are decided on together, be of a later version.
func newerBeside(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("as of the case before")
	}
	lim := s.limiter(t, "api", core.TokenBucket(tenPerTen), core.FixedWindow(tenPerTen))
	s.put(t, "rl:api:{3}:fixed-10s", "F2 5")
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			if _, err := lim.Allow(t.Context(), strconv.Itoa(i%20)); (err != nil) != (i%20 == 3) {
				t.Errorf("key %d: %v", i%20, err)
			}
		})
	}
	callers.Wait()
	if stored := len(s.keys(t)); stored != 39 {
		t.Errorf("%d keys, want 39: nothing was charged beside what is of a later version", stored)
	}
}

// fromRoot returns the path of a file of this repository, in whichever of its folders the test runs.
func fromRoot(t *testing.T, file string) string {
	t.Helper()
	root, err := filepath.Abs(".")
	check.Need(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, filepath.FromSlash(file))
		}
		if root == filepath.Dir(root) {
			t.Fatal("no go.mod in the folders above")
		}
		root = filepath.Dir(root)
	}
}
