package planted

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// ahead is how far ahead of the clock a stored instant may be, in microseconds: 400 days.
const ahead = 34_560_000_000_000

// number returns a number that a damaged value may contain, at or beyond the bounds of valid numbers.
func (w *world) number() string {
	if w.IntN(3) == 0 {
		return pick(w, "", "0", "nan", "inf", "-inf", "-5", "1e99", "1.5", "0x10", " 7", strings.Repeat("9", 400), strings.Repeat("9", 30))
	}
	base := pick[int64](w, 0, w.now, w.now+ahead, w.now+2*ahead, w.now+3_600_000_000,
		1<<53, 7<<50, 1<<40, 1<<31, 1<<30, 1_000_000_000, w.capacity(), ahead)
	base += pick[int64](w, 0, 0, 1, -1, 2, -2, 1000, 1_000_000)
	return fmt.Sprintf(pick(w, "%.0f", "%.0f", "%.0f", "%.0f", "%.0f", "%.0f", "00%.0f", "%g", "%.1f", "+%.0f"), float64(base))
}

// record returns a record of holds, valid or nearly so.
func (w *world) record() string {
	var b strings.Builder
	expiry, further := w.now+pick[int64](w, -100, 1, 1_000_000), pick(w, 0, 0, 1, 4, 62, 63, 64, 200)
	fmt.Fprintf(&b, "|H1 %s %s %s %d", pick(w, "1", "5", w.number()), pick(w, "0", "0", w.number()), pick(w, strconv.Itoa(1+further), w.number()), expiry)
	for range further {
		expiry += 1 + w.Int64N(1000)
		fmt.Fprintf(&b, " %d:%s", expiry, pick(w, "1", "1", "1", w.number()))
	}
	return b.String() + pick(w, "", "", "@7/10000000", "@"+w.number()+"/"+w.number(), "@"+w.number())
}

// versions has the letters and versions with which the strings of this library begin.
var versions = strings.Fields(algorithm.Versions)

// forms has the forms of the values with a version, in which each n stands for a number. A version that is not listed has
// the forms of usualForms, so that a new algorithm needs no line here unless its values contain other characters.
var forms = map[string][]string{
	"B1": {"n n", "n n+n", "n/n n+n"},
	"F1": {"n n", "n n n"},     //nolint:dupword // each n is a number
	"C1": {"n n n", "n n n n"}, //nolint:dupword // each n is a number
	"Z9": {"n"},                // no value of this library: ofNow makes it one of no version
}

// usualForms are the forms of most values.
var usualForms = []string{"n n", "n n n", "n n n n"} //nolint:dupword // each n is a number

// likely returns a text that some algorithm may have written, or nearly so. It may also be a ban or a record of holds.
func (w *world) likely() string {
	what := w.IntN(len(versions) + 7)
	switch what - len(versions) {
	case 0:
		return w.inForm("Z9")
	case 1:
		return w.likelyNumber()
	case 2:
		return pick(w, "", "hello", "|")
	case 3:
		return w.record()
	case 4, 5, 6: // buckets have the most forms
		return w.inForm("B1")
	}
	return w.inForm(versions[what])
}

// inForm returns a value with a version, in one of its forms.
func (w *world) inForm(version string) string {
	known, ok := forms[version]
	if !ok {
		known = usualForms
	}
	var b strings.Builder
	for _, c := range version + " " + pick(w, known...) {
		if c == 'n' {
			b.WriteString(w.likelyNumber())
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// likelyNumber returns a number as it may be part of a value: often a small number or an instant near the clock.
func (w *world) likelyNumber() string {
	return pick(w, "3", strconv.FormatInt(w.now+w.Int64N(2_000_000), 10), w.number())
}

// TestVersionsArePlanted checks that the random values include some with each version of the registry, and that ofNow
// leaves these versions as they are. Otherwise the code that reads such a value would not be tested.
func TestVersionsArePlanted(t *testing.T) {
	t.Parallel()
	w := &world{Rand: rand.New(rand.NewPCG(1, 24)), t: t, now: begin}
	w.members = []algorithm.Limit{w.member(variants()[0], 0)}
	planted := map[string]int{}
	for range 5000 {
		if version, rest, found := strings.Cut(strings.TrimPrefix(ofNow(w.likely()), "|"), " "); found && rest != "" {
			planted[version]++
		}
	}
	for _, version := range versions {
		if planted[version] < 100 {
			t.Errorf("of 5000 likely values, %d begin with %s, which internal/algorithm/registry.go lists; want at least 100: add its forms to forms",
				planted[version], version)
		}
	}
	if planted["Z9"] > 0 || planted["z9"] == 0 {
		t.Errorf("%d values begin with Z9 and %d with z9; want none and some, because no version of this library is Z9", planted["Z9"], planted["z9"])
	}
}

var digits = regexp.MustCompile(`\d+`)

// mutate changes a text that a limiter wrote.
func (w *world) mutate(text string) string {
	for range 1 + w.IntN(2) {
		at, end := w.IntN(len(text)+1), w.IntN(len(text)+1)
		at, end = min(at, end), max(at, end)
		switch all := digits.FindAllStringIndex(text, -1); w.IntN(8) {
		case 0, 1, 2:
			if len(all) > 0 {
				its := pick(w, all...)
				text = text[:its[0]] + w.number() + text[its[1]:]
			}
		case 3:
			text = text[:at] + text[end:]
		case 4:
			text = text[:at] + string(rune(w.IntN(128))) + text[at:]
		case 5:
			text = text[:end] + strings.Repeat(text[at:end], w.IntN(60)) + text[end:]
		case 6:
			record, _, _ := strings.Cut(text, "|")
			text = record + w.record()
		case 7:
			text = w.likely()
		}
	}
	return text
}

// score returns the score of an entry of a damaged sorted set.
func (w *world) score() float64 {
	n, err := strconv.ParseFloat(w.number(), 64)
	if err != nil || math.IsNaN(n) {
		return float64(w.now + pick[int64](w, 0, -1000, 500_000))
	}
	return pick(w, 1, 1, -1, 1e9) * n
}

// entry returns an entry of a damaged sorted set.
func (w *world) entry() redis.Z {
	member := pick(w, w.number()+":"+w.number(), w.number()+"*"+pick(w, "1", "4", w.number()),
		"s"+w.number(), "s5:"+w.number(), "+", w.record(), w.likely())
	return redis.Z{Score: w.score(), Member: member}
}

// damage changes a sorted set that a limiter wrote.
func (w *world) damage(set []redis.Z) []redis.Z {
	for range 1 + w.IntN(3) {
		if len(set) == 0 {
			set = append(set, w.entry())
		}
		switch i := w.IntN(len(set)); w.IntN(6) {
		case 0:
			set[i].Score = w.score()
		case 1:
			set[i].Member = w.mutate(fmt.Sprint(set[i].Member))
		case 2:
			set[i].Member = w.number()
		case 3:
			set = slices.Delete(set, i, i+1)
		default:
			set = append(set, w.entry())
		}
	}
	return set
}

// ofLater matches the version at the beginning of a value that a later version of this library may write. Operations on
// such a value fail, as TestRedis/Stored of package conformance tests.
var ofLater = regexp.MustCompile(`(^|\|)[A-Z]\d\d? `)

// ofNow returns text without versions of later values: it writes them in lower case, so that they are no versions.
func ofNow(text string) string {
	return ofLater.ReplaceAllStringFunc(text, func(version string) string {
		if slices.Contains(versions, strings.Trim(version, "| ")) {
			return version
		}
		return strings.ToLower(version)
	})
}

// planted replaces the stored value by a mutation of it, or by something else.
func (w *world) planted(raw string) {
	ctx, c := w.t.Context(), w.client
	text, set := c.Get(ctx, key).Val(), c.ZRangeWithScores(ctx, key, 0, -1).Val()
	c.Del(ctx, key)
	w.plant = fmt.Sprintf("instead of %q %v at %d: ", text, set, w.now)
	what := w.IntN(12)
	switch {
	case raw != "":
		raw = ofNow(raw)
		w.plant = fmt.Sprintf("%q at %d", raw, w.now)
		c.Set(ctx, key, raw, 0)
	case what == 0:
		w.plant += "list"
		c.RPush(ctx, key, w.likely(), "1")
	case what == 1:
		w.plant += pick(w, "set", "hash", "stream")
		switch {
		case strings.HasSuffix(w.plant, "set"):
			c.SAdd(ctx, key, w.likely())
		case strings.HasSuffix(w.plant, "hash"):
			c.HSet(ctx, key, "a", "1")
		default:
			c.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []string{"a", "1"}})
		}
	case what < 4 || text == "" && len(set) == 0 && what < 8:
		text = ofNow(w.likely())
		w.plant += fmt.Sprintf("%q", text)
		c.Set(ctx, key, text, 0)
	case what < 5 || text == "":
		set = w.damage(set)
		for i := range set {
			set[i].Member = ofNow(fmt.Sprint(set[i].Member))
		}
		w.plant += fmt.Sprint(set)
		if len(set) > 0 {
			c.ZAdd(ctx, key, set...)
		}
	default:
		text = ofNow(w.mutate(text))
		w.plant += fmt.Sprintf("%q", text)
		c.Set(ctx, key, text, 0)
	}
	// The scripts trust a stored sum of the units of one call: see package algorithm.
	w.loose = w.IntN(8) == 0 || w.members[0].Slots && slices.ContainsFunc(set, func(z redis.Z) bool {
		return strings.ContainsAny(fmt.Sprint(z.Member), "+:")
	})
}
