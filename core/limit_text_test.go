package core

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// limitTexts contains Limits by the texts that they print.
var limitTexts = map[string]Limit{
	"token_bucket 100/1m":                          TokenBucket(PerMinute(100)),
	"token_bucket 100/1m burst=200 name=api":       TokenBucket(PerMinute(100), LimitName("api"), Burst(200)),
	"token_bucket 100/1m burst=100":                TokenBucket(PerMinute(100), Burst(100)),
	"gcra 5/1500us burst=1000000000":               GCRA(Per(5, 1500*time.Microsecond), Burst(1e9)),
	"leaky_bucket 50/1s burst=10 name=a.b_C-9":     LeakyBucket(PerSecond(50), Burst(10), LimitName("a.b_C-9")),
	"fixed_window 5000/1d aligned":                 FixedWindow(PerDay(5000), Aligned()),
	"fixed_window 10000/month":                     FixedWindow(PerMonth(10_000), In("UTC"), Aligned()),
	"fixed_window 10000/month in=Europe/Berlin":    FixedWindow(PerMonth(10_000), In("Europe/Berlin")),
	"fixed_window 5000/week in=Asia/Kathmandu":     FixedWindow(PerWeek(5000), Aligned(), In("Asia/Kathmandu")),
	"fixed_window 5000/1d in=Etc/GMT+5 name=day":   FixedWindow(PerDay(5000), LimitName("day"), In("Etc/GMT+5")),
	"fixed_window 5000/1d in=UTC":                  FixedWindow(PerDay(5000), In("UTC")),
	"fixed_window 5000/90s aligned name=aligned":   FixedWindow(Per(5000, 90*time.Second), LimitName("aligned"), Aligned()),
	"sliding_window_log 5/1h":                      SlidingWindowLog(PerHour(5)),
	"sliding_window_counter 1000/1ms name=counter": SlidingWindowCounter(Per(1000, time.Millisecond), LimitName("counter")),
	"in_flight 10":                                 InFlight(10),
	"in_flight 10 slot_ttl=30s":                    InFlight(10, SlotTTL(30*time.Second)),
	"in_flight 1 slot_ttl=10000001ns name=one":     InFlight(1, LimitName("one"), SlotTTL(10*time.Millisecond+1)),
	"in_flight 1000000000 slot_ttl=1h":             InFlight(1e9, SlotTTL(time.Hour)),
	"unlimited":                                    Unlimited(),
	"token_bucket 0/1m":                            TokenBucket(PerMinute(0), Burst(0)),
	"gcra 0/1d burst=40000 name=api":               GCRA(PerDay(0), Burst(40_000), LimitName("api")),
	"fixed_window 0/month in=Europe/Berlin":        FixedWindow(PerMonth(0), In("Europe/Berlin")),
	"sliding_window_log 0/1h":                      SlidingWindowLog(PerHour(0)),
	"in_flight 0 slot_ttl=30s":                     InFlight(0, SlotTTL(30*time.Second)),
}

// TestParseLimit checks that each text is parsed to its Limit, and printed by it. Some texts that are parsed are printed in
// another form.
func TestParseLimit(t *testing.T) {
	t.Parallel()
	for text, want := range limitTexts {
		if text != want.String() {
			t.Errorf("got the text %q, want %q", want, text)
		}
		readAs(t, text, want)
	}
	for text, want := range map[string]Limit{
		"  fixed_window\t5000/day   name=x  aligned\n":   FixedWindow(PerDay(5000), Aligned(), LimitName("x")),
		"fixed_window 5000/day in=Europe/Berlin aligned": FixedWindow(PerDay(5000), In("Europe/Berlin")),
		"fixed_window 5000/week in=UTC":                  FixedWindow(PerWeek(5000)),
		"in_flight 10 slot_ttl=0.5m":                     InFlight(10, SlotTTL(30*time.Second)),
		" unlimited ":                                    Unlimited(),
		"leaky_bucket 0/s burst=0":                       LeakyBucket(PerSecond(0)),
	} {
		readAs(t, text, want)
	}
}

func readAs(t *testing.T, text string, want Limit) {
	t.Helper()
	if got, err := ParseLimit(text); err != nil || got != want {
		t.Errorf("ParseLimit(%q) = %v, %v; want %v", text, got, err, want)
	}
}

// TestParseLimitRefuses checks texts that cannot be parsed, and some that With refuses. The error must name the wrong word, and
// say what is allowed.
func TestParseLimitRefuses(t *testing.T) {
	t.Parallel()
	const names = `1 to 64 letters, digits and "_.-"`
	var kinds []string
	for _, k := range algorithm.Kinds {
		kinds = append(kinds, k.Name)
	}
	all := strings.Join(kinds, ", ")
	for text, want := range map[string]string{
		"":                                     `want an algorithm and a rate, as in "token_bucket 100/1m"`,
		"token_bucket":                         `token_bucket: want a rate, as in "token_bucket 100/1m"`,
		"in_flight":                            `in_flight: want how many at a time, as in "in_flight 10"`,
		"in_flight 10/1m":                      "in_flight 10/1m: allowed is 0 to 1000000000",
		"in_flight ":                           "in_flight: want how many",
		"in_flight -1":                         "in_flight -1: allowed is 0 to 1000000000",
		"unlimited 100/1m":                     "100/1m: unlimited has no rate and no options",
		"unlimited name=api":                   "name=api: unlimited has no rate and no options",
		"Unlimited":                            "Unlimited: allowed are " + all + ", unlimited",
		"in_flight 1 slot_ttl=30":              "slot_ttl=30: allowed is 10ms to 1h0m0s",
		"in_flight 1 burst=2":                  "burst=2: in_flight takes slot_ttl=, name=",
		"Token_Bucket 100/1m":                  "Token_Bucket: allowed are fixed_window, ",
		"calendar 1/d":                         "calendar: allowed are fixed_window, ",
		"\x1b[2J 100/1m":                       `\x1b[2J: allowed are fixed_window, `,
		strings.Repeat("x", 1<<16):             "allowed are fixed_window, ",
		"gcra burst=5 100/1m":                  `rate "burst=5": want COUNT/PERIOD`,
		"gcra -1/1m":                           `rate "-1/1m": the count is -1, allowed is 0 to 1000000000`,
		"gcra /1m":                             `rate "/1m": the count must be a whole number from 0 to 1000000000`,
		"gcra 0/0s":                            `rate "0/0s": the period is 0s, allowed is 1ms to 400 days`,
		"gcra 0/m burst=-1":                    "burst=-1: allowed is 1 to 1000000000",
		"gcra 0/m burst=x":                     "burst=x: allowed is 1 to 1000000000",
		"gcra 1/m burst=0":                     "burst=0: allowed is 1 to 1000000000",
		"gcra 1/month":                         "only FixedWindow takes PerWeek and PerMonth: a month of the calendar is not of a fixed length",
		"gcra 1/m burst=99999999999999999999":  "burst=99999999999999999999: allowed is 1 to 1000000000",
		"gcra 1/m burst=":                      "burst=: allowed is 1 to 1000000000",
		"gcra 1/m burst=1.5":                   "burst=1.5: allowed is 1 to 1000000000",
		"gcra 1/m burst=7 burst=8":             "burst=8: give it once",
		"gcra 1/m burst":                       "burst: gcra takes burst=, name=",
		"gcra 1/m aligned":                     "aligned: gcra takes burst=, name=",
		"gcra 1/m Burst=5":                     "Burst=5: gcra takes burst=, name=",
		"gcra 1/m " + strings.Repeat("é", 1e5): "gcra takes burst=, name=",
		"fixed_window 1/m aligned=true":        "aligned=true: fixed_window takes aligned, in=, name=",
		"fixed_window 1/month in=":             `in=: want the IANA name of a time zone that this machine knows`,
		"fixed_window 1/d in=Europe/Berlinn":   `in=Europe/Berlinn: want the IANA name of a time zone that this machine knows`,
		"fixed_window 1/d in=../UTC":           `in=../UTC: want the IANA name`,
		"fixed_window 1/7d in=UTC":             `in=UTC: allowed with PerDay, PerWeek and PerMonth`,
		"fixed_window 1/m name=":               "name=: allowed are " + names,
		"fixed_window 1/m name=a=b":            "name=a=b: allowed are " + names,
	} {
		got, err := ParseLimit(text)
		switch {
		case err == nil || got != (Limit{}):
			t.Errorf("ParseLimit(%.80q) = %v, %v; want an error", text, got, err)
		case !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "redislimit: limit "):
			t.Errorf("ParseLimit(%.80q): got error %v, want one that contains %q", text, err, want)
		case len(err.Error()) > 600:
			t.Errorf("ParseLimit(%.80q): the error has %d bytes, want at most 600", text, len(err.Error()))
		}
	}
}

// TestWrongLimitText checks invalid Limits: they print without their options, and are never marshaled.
func TestWrongLimitText(t *testing.T) {
	t.Parallel()
	for text, l := range map[string]Limit{
		"Limit{}":               {},
		"token_bucket 1/1m":     TokenBucket(PerMinute(1), LimitName(strings.Repeat("x", 1<<16)), Burst(5)),
		"token_bucket -1/1m":    TokenBucket(PerMinute(-1)),
		"in_flight -1":          InFlight(-1),
		"fixed_window 0/0d":     FixedWindow(Rate{}),
		"gcra 1/1d burst=40000": GCRA(PerDay(1), Burst(40_000)),
	} {
		if l.String() != text {
			t.Errorf("got the text %q, want %q", l, text)
		}
		if text, err := l.MarshalText(); err == nil || !strings.Contains(err.Error(), l.String()) {
			t.Errorf("MarshalText of %v: got %q, %v; want an error that contains the limit", l, text, err)
		}
	}
}

// TestLimitFields unmarshals and marshals Limits that are fields of a struct, by encoding/json.
func TestLimitFields(t *testing.T) {
	t.Parallel()
	type config struct {
		Limits map[string][]Limit `json:"limits"`
	}
	const text = `{"limits":{"api":["token_bucket 100/1m burst=200","in_flight 10"]}}`
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Limits["api"]) != 2 || c.Limits["api"][1] != InFlight(10) {
		t.Errorf("Unmarshal: got %v, %v; want two limits, the second of them in_flight 10", c, err)
	}
	if again, err := json.Marshal(c); err != nil || string(again) != text {
		t.Errorf("Marshal: got %s, %v; want %s", again, err, text)
	}
	for _, wrong := range []string{`{"limits":{"api":[""]}}`, `{"limits":{"api":["gcra 1/m burst=0"]}}`} {
		if err := json.Unmarshal([]byte(wrong), &c); err == nil || !strings.Contains(err.Error(), "redislimit: limit ") {
			t.Errorf("Unmarshal of %s: got error %v, want one about the limit", wrong, err)
		}
	}
	if _, err := json.Marshal(config{map[string][]Limit{"api": {TokenBucket(PerMinute(1), Burst(0))}}}); err == nil {
		t.Error("Marshal accepted a Limit with a burst of 0")
	}
}

// FuzzParseLimit parses texts, and passes the same numbers to constructors: every Limit that is accepted must print a text that
// is parsed to an equal Limit.
func FuzzParseLimit(f *testing.F) {
	for text := range limitTexts {
		f.Add(text, int64(100), int64(time.Minute), int64(5), "api")
	}
	for _, text := range []string{"", "gcra 1/m burst=0", "gcra 1/m  name=a  burst=2 ", "in_flight 10/1m", "gcra 1/m =", "\xff"} {
		f.Add(text, int64(1), int64(24*time.Hour), int64(0), "")
	}
	f.Fuzz(func(t *testing.T, text string, count, period, n int64, name string) {
		if l, err := ParseLimit(text); err == nil {
			checkText(t, l)
			if err := l.check(); err != nil {
				t.Fatalf("ParseLimit(%q) = %v, which is not valid: %v", text, l, err)
			}
		}
		r := Per(count, time.Duration(period))
		for _, l := range []Limit{
			TokenBucket(r, Burst(n)), GCRA(r, LimitName(name)), LeakyBucket(r, LimitName(name), Burst(n)), FixedWindow(r, Aligned(), LimitName(name)),
			SlidingWindowCounter(r), InFlight(count, SlotTTL(time.Duration(period)), LimitName(name)),
		} {
			checkText(t, l)
		}
	})
}

// checkText checks that l is marshaled if and only if With accepts l, and that its text is parsed to an equal Limit.
func checkText(t *testing.T, l Limit) {
	t.Helper()
	text, err := l.MarshalText()
	if wrong := l.check(); wrong != nil {
		if err == nil || !strings.HasSuffix(err.Error(), wrong.Error()) {
			t.Fatalf("MarshalText of the wrong limit %v: got %q, %v; want the error %v", l, text, err, wrong)
		}
		return
	}
	if again, err2 := ParseLimit(string(text)); err != nil || err2 != nil || again != l || string(text) != l.String() {
		t.Fatalf("%v is marshaled as %q, %v, which is parsed as %v, %v; want the same limit", l, text, err, again, err2)
	}
}
