package planted

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// A known is a value that once did harm, or would do harm if a rule were weaker.
type known struct {
	name, of string // of is the name of the algorithm
	put      func(w *world) redis.Cmder
}

// text stores a string. "FORM " in it stands for the constants with which a bucket of the limit's own rate begins.
func text(format string, args ...any) func(*world) redis.Cmder {
	return func(w *world) redis.Cmder {
		return w.client.Set(w.t.Context(), key, strings.ReplaceAll(fmt.Sprintf(format, args...), "FORM ", w.form()), 0)
	}
}

// form returns the text with which a value of the limit's own bucket begins.
func (w *world) form() string { return fmt.Sprint(w.members[0].Constants()[0]) }

// behindOwn stores a record of holds behind the value that the limit itself stores for one unit.
func behindOwn(record string) func(*world) redis.Cmder {
	return func(w *world) redis.Cmder {
		w.decide(w.members[:1], algorithm.OpCharge, 1, 1)
		own := w.client.Get(w.t.Context(), key).Val()
		if own == "" {
			w.fatalf("the limit stores no string, want one")
		}
		w.charged, w.grants = 0, nil // the foreign value replaces the charge
		return w.client.Set(w.t.Context(), key, own+record, 0)
	}
}

// set stores a sorted set.
func set(entries ...redis.Z) func(*world) redis.Cmder {
	return func(w *world) redis.Cmder { return w.client.ZAdd(w.t.Context(), key, entries...) }
}

// at returns an entry whose score is the given number of microseconds after the clock.
func at(after float64, format string, args ...any) redis.Z {
	return redis.Z{Score: begin + after, Member: fmt.Sprintf(format, args...)}
}

func atScore(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// holdsOf returns a record of n holds of the given units each, which expire one after the other from an instant on.
func holdsOf(n int, units, from int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "|H1 5 0 %d %d", int64(n)*units, from)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, " %d:%d", from+int64(i), units)
	}
	return b.String()
}

// knownValues returns the known values, with the algorithm whose limit finds each.
func knownValues() []known {
	const log, counter, calendar = "sliding_window_log", "sliding_window_counter", "fixed_window_calendar"
	nines := strings.Repeat("9", 400)
	newest := at(0, "%d", begin)
	values := []known{
		{"a rate of 400 digits", "token_bucket", text("B1 %s %d", nines, begin+1000)},
		{"an epoch of 400 digits", "leaky_bucket", text("B1 7 %d %s", begin+1000, nines)},
		{"the last epoch", "leaky_bucket", text("FORM %d %d", begin-1, int64(1<<53-1))},
		{"a period of 400 digits", "gcra", text("B1 7/%s %d+3", nines, begin+1000)},
		{"an instant that is padded", "fixed_window", text("F1 0 %s%d", strings.Repeat("0", 79), begin)},
		{"an instant that is padded", counter, text("C1 %s%d 0 0", strings.Repeat("0", 77), begin)},
		{"a window with a third number", "fixed_window", text("F1 1 %d %d", begin, int64(6e15))},
		{"a window in 400 days", "fixed_window", text("F1 0 %d", begin+ahead)},
		{"a window in 400 days", calendar, text("W1 1 %d", begin+ahead)},
		{"a window in a thousand years", calendar, text("W1 1 %s", nines[:30])},
		{"an instant that is padded", calendar, text("W1 0 %s%d", strings.Repeat("0", 79), begin)},
		{"a window of 2^31 units and more", calendar, text("W1 %d %d", int64(math.MaxInt32)+2, begin)},
		{"a window of the epoch", calendar, text("W1 1 1")},
		{"another's window", calendar, text("F1 1 %d", begin)},
		{"a window in a thousand years", counter, text("C1 %s 0 0", nines[:30])},
		{"a window with a fourth number", counter, text("C1 5000 %d 0 0", begin)},
		{"a window of 2^31 units and more", counter, text("C1 %d %d 0", begin, int64(math.MaxInt32)+2)},
		{"a window before of 2^31 units and more", counter, text("C1 %d 0 %d", begin, int64(math.MaxInt32)+2)},
		{"the last number", log, set(at(0, "%d", 7<<50-1))},
		{"the last number of 400 days", log, set(at(0, "%d", begin+2*ahead))},
		{"an entry in 400 days", log, set(at(ahead, "%d", begin+ahead))},
		{"a number that remains the last", log, set(at(10, "%d+", begin/10), at(10, "300000000012346e1"), at(10, "3000000000123466.0"))},
		{"a number in another form", log, set(at(20, "300000000012348e1"))},
		{"an entry below all", log, set(newest, atScore(-1e300, "x"))},
		{"a part below all", log, set(newest, atScore(-1e300, "5*1"))},
		{"a part at -inf", log, set(newest, atScore(math.Inf(-1), "5*1"))},
		{"parts beside a plain entry", log, set(at(0, "%d:5", begin), at(1, "%d", begin+1), atScore(-(begin+1<<50)*64, strconv.Itoa(begin)+"*4"))},
		{"an entry that is not ours, and a record", log, set(at(5, "x"), atScore(math.Inf(1), holdsOf(2, 1, begin-1)))},
		{"two records", log, set(newest, atScore(math.Inf(1), holdsOf(1, 1, begin+50)), atScore(math.Inf(1), holdsOf(2, 1, begin+60)))},
		{"slots until inf", "in_flight", set(at(5000, "s1"), atScore(math.Inf(1), "s2"))},
		{"slots until 1e22", "in_flight", set(at(5000, "s1"), atScore(1e22, "s2"), atScore(1e23, "s3"))},
		{"a slot of no name", "in_flight", set(at(5000, "s1"), at(6000, "x"))},
		{"a sum that is none", "in_flight", set(at(5000, "+"), at(6000, "x"))},
	}
	for _, n := range []int{10, 16, 17, 20, 30, 50, 70} {
		few := nines[:n]
		values = append(values,
			known{fmt.Sprintf("a rate of %d digits", n), "token_bucket", text("B1 %s %d", few, begin+ahead)},
			known{fmt.Sprintf("an epoch of %d digits", n), "leaky_bucket", text("B1 7 %d %s", begin+1000, few)},
			known{fmt.Sprintf("a rate of %d digits and parts", n), "gcra", text("B1 %s %d+%s", few, begin+ahead, few[1:])},
			known{fmt.Sprintf("a period of %d digits", n), "gcra", text("B1 7/%s %d+3", few, begin+ahead)},
			known{fmt.Sprintf("a rate and a period of %d digits", n), "leaky_bucket", text("B1 %s/%s7 %d", few[:min(n, 35)], few[:min(n, 35)], begin+ahead)})
	}
	for _, v := range variants() {
		for name, record := range map[string]string{
			"9000 holds that have expired": holdsOf(9000, 1, begin-9000), "9000 holds of 2^40 units": holdsOf(9000, 1<<40, begin+1000),
			"all was charged": fmt.Sprintf("|H1 5 %d 0 0", 1<<53-1), "all of 400 days was charged": fmt.Sprintf("|H1 5 %d 0 0", begin+ahead-1),
			"holds of more than their sum":  fmt.Sprintf("|H1 5 0 3 %d %d:7", begin+1000, begin+2000),
			"a hold of 30 digits":           fmt.Sprintf("|H1 5 0 7 %d %d:%s", begin+1000, begin+1001, nines[:30]),
			"as many holds as there can be": holdsOf(64, 1, begin+1000), "a hold in 400 days": fmt.Sprintf("|H1 5 0 1 %d", begin+ahead),
			"holds at a rate of 20 digits":   fmt.Sprintf("|H1 5 0 1 %d@%s/1", begin+1000, nines[:20]),
			"holds at a rate of 400 digits":  fmt.Sprintf("|H1 5 0 1 %d@%s/1", begin+1000, nines),
			"holds at a rate of 0":           fmt.Sprintf("|H1 5 0 1 %d@1/0", begin+1000),
			"expired at a rate of 20 digits": fmt.Sprintf("|H1 5 %d 1 %d@1/%s", begin-1, begin-1, nines[:20]),
		} {
			switch {
			case v.Kind.Slots:
			case v.Name == log:
				values = append(values, known{name, v.Name, set(newest, atScore(math.Inf(1), record))})
			default:
				values = append(values, known{name, v.Name, behindOwn(record)})
			}
		}
	}
	return values
}

// TestKnown plants each known value, and then uses the limiter in many ways.
func TestKnown(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	for _, k := range knownValues() {
		t.Run(k.of+"/"+k.name, func(t *testing.T) {
			for seed := range uint64(4) {
				w := newWorld(t, client, seed, limits.Named(k.of))
				w.plant = k.name
				check.Need(t, k.put(w).Err())
				w.goOn()
			}
		})
	}
}

// oneLimit returns a world with one limit of the given number of units in ten seconds, whose holds last a
// second.
func oneLimit(t *testing.T, of string, units int64) *world {
	t.Helper()
	v := limits.Named(of)
	w := newWorld(t, redistest.Server(t).Client(t), 1, v)
	numbers := algorithm.Numbers{Count: units, Period: 10_000_000, Burst: units}
	w.members, w.keys = []algorithm.Limit{{Kind: v.Kind, Evaluator: v.Kind.New(numbers), HoldDuration: 1_000_000}}, w.keys[:1]
	return w
}

// TestExpiredSlots lets slots expire whose number of units is one that no call can have: then the sum of the taken slots is
// 0, and not less.
func TestExpiredSlots(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	w := newWorld(t, client, 1, limits.Named("in_flight"))
	w.plant, w.loose = "s1 of 30 digits", true
	client.ZAdd(t.Context(), key, atScore(-4, "+"), at(-5, "s1:%s", strings.Repeat("9", 30)), at(5000, "s2:5"))
	w.goOn()
}

// TestSlotWithoutEnd plants a slot that never expires beside one that does: it is removed when the next slot is taken.
func TestSlotWithoutEnd(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	w := newWorld(t, client, 1, limits.Named("in_flight"))
	three := algorithm.Limit{Kind: algorithm.InFlight, Evaluator: algorithm.InFlight.New(algorithm.Numbers{Count: 3, Burst: 3}), HoldDuration: 1_000_000}
	w.members = []algorithm.Limit{three}
	client.ZAdd(t.Context(), key, at(5000, "s1"), atScore(math.Inf(1), "s2"))
	for i := range 3 {
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpReserve, N: 1, HoldID: w.id(), Handles: make([]algorithm.Handle, 1)})
		if taken := min(i+1, 2); len(w.older) != taken {
			t.Errorf("%d slots were taken, want %d; stored is %v", len(w.older), taken, client.ZRangeWithScores(t.Context(), key, 0, -1).Val())
		}
	}
}

// TestHoldOfQueue plants a hold beside a full queue with free places. A queue has no holds: the next call takes a place,
// and the value becomes no longer, so that the script still accepts it as its own.
func TestHoldOfQueue(t *testing.T) {
	t.Parallel()
	w := oneLimit(t, "leaky_bucket", 10)
	w.plant = "a hold beside 8 free places"
	check.Need(t, text("FORM %d %d 0,8|H1 5 0 1 %d", begin+10_000_000, begin, begin+5_000_000)(w).Err())
	for range 12 {
		w.hold(w.members, algorithm.Operation{Op: algorithm.OpCharge, N: 1, HoldID: w.id(), Handles: make([]algorithm.Handle, 1)})
	}
}

// TestEntryOfNoName plants an entry with an empty name beside a log with a hold. A script writes an entry of this name to
// find out whether Redis's memory is full. A denied call must not change the planted entry.
func TestEntryOfNoName(t *testing.T) {
	t.Parallel()
	w := oneLimit(t, "sliding_window_log", 1)
	w.plant = "an entry of no name"
	record := fmt.Sprintf("|H1 5 0 1 %d", int64(begin+5_000_000))
	check.Need(t, set(at(0, "%d", begin), atScore(-1<<53+2, ""), atScore(math.Inf(1), record))(w).Err())
	w.decide(w.members, algorithm.OpCharge, 1, 2)
}

// TestPaddedCounter charges many units on top of an instant that is padded with zeros, until the value would become longer
// than the scripts read.
func TestPaddedCounter(t *testing.T) {
	t.Parallel()
	w := oneLimit(t, "sliding_window_counter", 10)
	w.plant = "an instant that is padded"
	check.Need(t, text("C1 %s%d 0 0", strings.Repeat("0", 77), begin)(w).Err())
	for range 12 {
		w.decide(w.members, algorithm.OpCharge, 1, 1)
	}
}

// TestForeignIsNothing plants values that no limiter writes, although they look like its own. They count as nothing, so that the
// whole limit is admitted.
func TestForeignIsNothing(t *testing.T) {
	t.Parallel()
	for _, foreign := range []known{
		{"a window whose units are padded", "fixed_window", text("F1 %s3 %d", strings.Repeat("0", 100), int64(begin))},
		{"2^31 units are held", "token_bucket", behindOwn(fmt.Sprintf("|H1 5 0 %d %d", int64(1<<31), int64(begin+1_000_000)))},
	} {
		t.Run(foreign.name, func(t *testing.T) {
			t.Parallel()
			w := oneLimit(t, foreign.of, 10)
			check.Need(t, foreign.put(w).Err())
			w.plant = foreign.name
			for range 11 {
				w.decide(w.members, algorithm.OpCharge, 1, 1)
			}
			if len(w.grants) != 10 {
				t.Errorf("%d of 11 calls were admitted, want 10, which is the limit", len(w.grants))
			}
		})
	}
}

// TestHoldInFullRecord plants as many holds as a script reads. Further units are held together with one of these holds, and
// can be settled.
func TestHoldInFullRecord(t *testing.T) {
	t.Parallel()
	w := oneLimit(t, "token_bucket", 1000)
	w.plant = holdsOf(64, 1, begin+1000) + "@1000/10000000"
	check.Need(t, text("%s", w.plant)(w).Err())
	handles := make([]algorithm.Handle, 1)
	w.hold(w.members, algorithm.Operation{Op: algorithm.OpReserve, N: 3, HoldID: w.id(), Handles: handles})
	w.hold(w.members, algorithm.Operation{Op: algorithm.OpSettle, N: 3, Handles: handles})
	if got := w.client.Get(t.Context(), key).Val(); got != w.plant {
		t.Errorf("after 3 units were held and given back: %q is stored, want %q as planted", got, w.plant)
	}
}

// cpu returns how much processor time the server has used.
func cpu(t *testing.T, client *redis.Client) time.Duration {
	t.Helper()
	sum := 0.0
	for line := range strings.SplitSeq(client.Info(t.Context(), "cpu").Val(), "\r\n") {
		if name, value, _ := strings.Cut(line, ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
			n, err := strconv.ParseFloat(value, 64)
			check.Need(t, err)
			sum += n
		}
	}
	return time.Duration(sum * float64(time.Second))
}

// TestLongValues measures the server's processor time for each operation on values that are much longer than the scripts
// write. The time must not grow faster than the length of the values, which the server has to read.
func TestLongValues(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	const long = 1 << 18
	ones := strings.Repeat("1", long)
	texts := []string{
		ones, "B1 " + ones + "x", "B1 1" + ones + " " + ones, "F1 1 " + ones + "x", "F1 " + ones, "C1 " + ones + "x", "C1 1 1" + ones + "x",
		"|" + ones + "x", "|H1 " + ones + "x", "|H1 1 1 1 1" + ones + "x", "|H1 1 0 1 1 " + ones + ":x",
		holdsOf(long/20, 1, begin-long), "F1 0 1" + holdsOf(long/20, 1, begin-long), ones + ":x", "s" + ones + "x", ":" + ones + "x",
	}
	for _, v := range variants() {
		for i, value := range texts {
			t.Run(fmt.Sprintf("%s/%d", v.Name, i), func(t *testing.T) {
				for _, put := range []func(*world) redis.Cmder{
					func(w *world) redis.Cmder { return w.client.Set(t.Context(), key, value, 0) },
					set(at(0, "%s", value)), set(atScore(math.Inf(1), value)),
					set(at(-1e15, "%s", value), at(0, "%d", begin)), set(atScore(-5, "+"), at(-1e15, "%s", value), at(10, "s1:5")),
					set(at(-1e15, "%s", value), at(0, "%d:2", begin), atScore(-(begin+1<<50), fmt.Sprint(begin, "*1"))),
				} {
					w := newWorld(t, client, 1, v)
					w.plant, w.loose = value[:30], true
					check.Need(t, put(w).Err())
					before := cpu(t, client)
					for op := algorithm.OpEvaluate; op <= algorithm.OpRelease; op++ {
						w.hold(w.members, algorithm.Operation{Op: op, N: 1, HoldID: 1, Actual: 1, Handles: make([]algorithm.Handle, len(w.members))})
					}
					if !v.Kind.Slots {
						w.decide(w.members, algorithm.OpCharge, 1, 2)
					}
					if took := cpu(t, client) - before; took > 100*time.Millisecond {
						t.Fatalf("10 operations on %s took %v of the server's processor time, want at most 100ms", w.plant, took)
					}
				}
			})
		}
	}
}

// TestWrongConstants runs the script with constants that no limit has: every call fails, and the script ends.
func TestWrongConstants(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	members := []algorithm.Limit{{Kind: algorithm.TokenBucket, Evaluator: algorithm.TokenBucket.New(algorithm.Numbers{Count: 1, Period: 1e6, Burst: 1})}}
	args := []any{"no form", 1, 1, 1, 1}
	for range 2 {
		args = algorithm.Operation{Op: algorithm.OpReserve, N: 1}.Append(args, holds(members))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reply, err := redis.NewScript(algorithm.Script(members, algorithm.Form{})).Run(ctx, client, []string{"k", "l"}, args...).Int64Slice()
	if err != nil || len(reply) != 2*5 || !algorithm.Undone(reply) || !algorithm.Undone(reply[5:]) {
		t.Errorf("got the reply %v, %v; want one for two calls that were not carried out", reply, err)
	}
}
