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
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/model"
)

// storedAt is the time of Redis's clock in docs/stored.md.
const storedAt = 4_100_000_000_000_000

// storedCases compare what is stored with docs/stored.md, byte for byte, because processes of other versions read the same
// values.
func storedCases() []testCase {
	return []testCase{
		{"Stored", asDocumented}, {"Stored/Older", storedByOlder}, {"Stored/Newer", storedByNewer}, {"Stored/NewerBeside", newerBeside},
	}
}

// An example is a row of the document, with the history that writes its value.
type example struct {
	row          string
	limit        core.Limit
	opts         []core.Option
	history      func(t *testing.T, lim *core.Limiter) // nil: one call that charges three units
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

// registered returns an example of every registered algorithm, whose history charges three units. The model computes how
// many units remain.
func registered(history func(*testing.T, *core.Limiter)) []example {
	var all []example
	for _, v := range limits.All() {
		if v.Kind.Moves { // a calendar has an example of its own
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

// A storedRow is what the document says about an example: the key, its value, and how long the key is kept.
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

// begin returns a Limiter for an example, at the time of the document, with nothing stored.
func (s Store) begin(t *testing.T, e example) *core.Limiter {
	t.Helper()
	s.Redis.Del(t.Context(), append(s.keys(t), "{alice}")...)
	lim := s.limiter(t, "api", append([]core.Option{e.limit}, e.opts...)...)
	s.Advance(time.UnixMicro(storedAt).Sub(peek(t, lim, "alice").At))
	return lim
}

// ids matches the random numbers that identify holds and slots.
var ids = regexp.MustCompile(`(\|H1 |\bs)\d+`)

// value returns the value of a key in the form of the document. A sorted set is written as the arguments of ZADD.
func (s Store) value(t *testing.T, key string) string {
	t.Helper()
	entries := []string{s.Redis.Get(t.Context(), key).Val()}
	for _, z := range s.Redis.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
		entries = append(entries, strings.ToLower(strconv.FormatFloat(z.Score, 'f', 0, 64))+fmt.Sprint(" ", z.Member))
	}
	return ids.ReplaceAllString(strings.TrimPrefix(strings.Join(entries, ", "), ", "), "${1}123")
}

// put stores a value that is given in the form of the document.
func (s Store) put(t *testing.T, key, value string) {
	t.Helper()
	s.Redis.Del(t.Context(), key)
	err := s.Redis.Set(t.Context(), key, value, time.Hour).Err()
	if value[0] < 'A' { // the value begins with a score: it is a sorted set
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

// asDocumented checks that each history writes the value in the document, and that a Limiter decides correctly from the
// document's own bytes.
func asDocumented(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("a store in memory stores nothing in Redis")
	}
	rows, all := storedRows(t), examples()
	if len(rows) > len(all) {
		t.Errorf("docs/stored.md has %d rows, want %d: one for each example", len(rows), len(all))
	}
	for i, e := range all {
		lim, row := s.begin(t, e), rows[e.row]
		begun := time.Now()
		if e.history == nil {
			admit(t, lim, "alice", 3)
		} else {
			e.history(t, lim)
		}
		if row.key == "" {
			missing := s.newRow(t, e.row, begun)
			if !AddRow(t, "docs/stored.md", all[max(0, i-1)].row, missing) {
				t.Errorf("docs/stored.md has no row for %s; add this one, or run the test with REDISLIMIT_ADD_ROWS=1: %s", e.row, missing)
			}
			continue
		}
		if version := anyVersion.FindString(row.value); version != "" && !slices.Contains(strings.Fields(algorithm.Versions), version) {
			t.Errorf("%s: %q has a version that internal/algorithm/registry.go does not list", e.row, row.value)
		}
		got := s.value(t, row.key)
		if got != row.value {
			t.Errorf("%s: %q is stored at %v, want %q at %s as in docs/stored.md", e.row, got, s.keys(t), row.value, row.key)
			continue
		}
		lasts := s.expiry(t, row.key).Sub(time.UnixMicro(storedAt))
		if lasts < row.lasts-s.blur(begun) || lasts > row.lasts+time.Second {
			t.Errorf("%s: the key is kept for %v, want %v as in docs/stored.md", e.row, lasts, row.lasts)
		}
		e.decides(t, s, lim)
		s.Redis.Del(t.Context(), s.keys(t)...)
		s.put(t, row.key, row.value)
		e.decides(t, s, s.limiter(t, "api", append([]core.Option{e.limit}, e.opts...)...))
	}
}

// anyVersion matches the version with which a stored string begins.
var anyVersion = regexp.MustCompile(`^[A-Z]\d+\b`)

// newRow returns the row of the document for an example, whose history began at an instant and has stored a value. The column
// of fields has the names that the comment at the beginning of the Lua file gives them.
func (s Store) newRow(t *testing.T, name string, begun time.Time) string {
	t.Helper()
	keys := s.keys(t)
	if len(keys) != 1 {
		t.Fatalf("%s stores %v at the keys %v, want one key", name, s.dump(t), keys)
	}
	key, value := keys[0], s.value(t, keys[0])
	lasts := (s.expiry(t, key).Sub(time.UnixMicro(storedAt)) + s.blur(begun)).Truncate(10 * time.Millisecond)
	fields := "…"
	for _, v := range limits.All() {
		if constructor, _, _ := strings.Cut(name, ","); constructor != limits.Constructor(v.Kind) {
			continue
		}
		text, err := os.ReadFile(fromRoot(t, "internal/algorithm/lua/"+v.Kind.Name+".lua"))
		check.Need(t, err)
		if form := regexp.MustCompile(`-- Stored: a string, '[A-Z]\d+ ([^']+)'`).FindSubmatch(text); form != nil {
			fields = strings.ReplaceAll(string(form[1]), " ", "; ")
		}
	}
	return fmt.Sprintf("| %s | `%s` | `%s` | %s | %g s |", name, strings.TrimPrefix(key, "rl:api:{alice}"), strings.ReplaceAll(value, "|", `\|`), fields, lasts.Seconds())
}

// storedByOlder decides from the values that earlier versions stored. The folder testdata has a file for each version that
// wrote another form, since 0.1.0. A line of a file has the row of docs/stored.md at that time, the key and the value. The
// library promises only to read the values of the version before.
func storedByOlder(t *testing.T, s Store) {
	if s.Redis == nil {
		t.Skip("a store in memory stores nothing in Redis")
	}
	files, err := filepath.Glob(fromRoot(t, "internal/suite/conformance/testdata/stored-*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("found the files %q, %v; want at least one", files, err)
	}
	all := examples()
	for _, file := range files {
		text, err := os.ReadFile(file)
		check.Need(t, err)
		for line := range strings.Lines(string(text)) {
			row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			i := slices.IndexFunc(all, func(e example) bool { return e.row == row[0] })
			if i < 0 {
				t.Fatalf("%s has a row %q, but no example has this name", file, row[0])
			}
			lim := s.begin(t, all[i])
			s.put(t, row[1], row[2])
			all[i].decides(t, s, lim)
		}
	}
}

// decides checks what a Limiter decides from the stored value of an example.
func (e example) decides(t *testing.T, s Store, lim *core.Limiter) {
	t.Helper()
	res, all := peek(t, lim, "alice"), s.dump(t)
	if res.Remaining != e.remaining || res.ResetAfter != e.reset || res.At.UnixMicro() != storedAt {
		t.Errorf("%s: got %d remaining and ResetAfter %v at %v; want %d and %v at the time of the document", e.row, res.Remaining, res.ResetAfter, res.At, e.remaining, e.reset)
	}
	if res = admit(t, lim, "alice", e.remaining+1); res.Allowed || res.RetryAfter != e.retry {
		t.Errorf("%s: a cost of one more than remains: got %+v, want a denial with RetryAfter %v", e.row, res, e.retry)
	}
	if now := s.dump(t); !slices.Equal(now, all) {
		t.Errorf("%s: after a denial %v is stored, want %v as before", e.row, now, all)
	}
}

// newer returns values of a row as a later version may write them.
func (r storedRow) newer() []string {
	version := regexp.MustCompile(`\b([A-Z])1 `)
	value := version.ReplaceAllString(r.value, "${1}2 ")
	switch first := strings.Replace(r.value, "F1", "F2", 1); {
	case strings.HasSuffix(r.key, "inflight"):
		return []string{"-inf S2 5, " + value}
	case value == r.value:
		return []string{value + ", +inf L2 5"}
	case first != value && first != r.value: // a later form of the charges, of the holds, and of both
		return []string{first, strings.Replace(value, "F2", "F1", 1), value}
	}
	return []string{value}
}

// storedByNewer makes each call read a value of a later version: the call fails and changes nothing. Only Reset and Unblock
// delete the value.
func storedByNewer(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("a store in memory stores nothing in Redis, and miniredis replies that the script cannot be compiled")
	}
	rows := storedRows(t)
	for _, e := range examples() {
		if rows[e.row].key == "" { // asDocumented reports the missing row
			continue
		}
		for _, value := range rows[e.row].newer() {
			e.refuses(t, s, rows[e.row].key, value)
		}
	}
}

// refuses makes each call of a Limiter on a value of a later version, and checks that each fails.
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
			t.Errorf("%s with %q stored: got error %v, want ErrUnavailable that names the newer version", what, value, err)
		}
	}
	for range 2 {
		_, err := lim.Peek(ctx, "alice")
		refused("Peek", err)
		if !strings.HasPrefix(e.row, "InFlight") {
			_, err = lim.Allow(ctx, "alice")
			refused("Allow", err)
		}
		s.Advance(31 * time.Second) // now every hold has expired
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
		t.Errorf("the refused calls changed %q to %v, want it unchanged", value, after)
	}
	forget := lim.Reset
	if e.row == "Ban" {
		forget = lim.Unblock
	}
	if err := forget(ctx, "alice"); err != nil || !admit(t, lim, "alice", 7).Allowed {
		t.Errorf("after Reset or Unblock of %q: got error %v, with %v stored; want the value deleted and a cost of 7 admitted", value, err, s.dump(t))
	}
}

// newerBeside stores a value of a later version for one of many keys that are decided together in batches: only the calls
// on that key fail.
func newerBeside(t *testing.T, s Store) {
	if s.Redis == nil || s.ForgetsByClock {
		t.Skip("skipped for the reason of storedByNewer")
	}
	lim := s.limiter(t, "api", core.TokenBucket(tenPerTen), core.FixedWindow(tenPerTen))
	s.put(t, "rl:api:{3}:fixed-10s", "F2 5")
	var callers sync.WaitGroup
	for i := range 200 {
		callers.Go(func() {
			if _, err := lim.Allow(t.Context(), strconv.Itoa(i%20)); (err != nil) != (i%20 == 3) {
				t.Errorf("key %d: got error %v, want an error for key 3 only", i%20, err)
			}
		})
	}
	callers.Wait()
	if stored := len(s.keys(t)); stored != 39 {
		t.Errorf("%d keys are stored, want 39: a call that fails on key 3 must not charge its other limit", stored)
	}
}

// fromRoot returns the path of a file in this repository, from whichever folder the test runs.
func fromRoot(t *testing.T, file string) string {
	t.Helper()
	root, err := filepath.Abs(".")
	check.Need(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			return filepath.Join(root, filepath.FromSlash(file))
		}
		if root == filepath.Dir(root) {
			t.Fatal("no folder above has a go.mod, want that of the repository")
		}
		root = filepath.Dir(root)
	}
}
