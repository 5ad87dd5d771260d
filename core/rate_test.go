package core

import (
	"strings"
	"testing"
	"time"
)

// TestParseRate checks the rates that are accepted, and that the error for any other text is short.
func TestParseRate(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]Rate{
		"100/m":           PerMinute(100),
		"100/1m":          PerMinute(100),
		"5/10s":           Per(5, 10*time.Second),
		"1000/24h":        PerDay(1000),
		"1000/d":          PerDay(1000),
		"7/7d":            Per(7, 7*24*time.Hour),
		"3/1h30m":         Per(3, 90*time.Minute),
		"1/ms":            Per(1, time.Millisecond),
		"5/week":          PerWeek(5),
		"10000/month":     PerMonth(10_000),
		"1/1500us":        Per(1, 1500*time.Microsecond),
		"1000000000/400d": Per(1e9, 400*24*time.Hour),
		"0/m":             PerMinute(0),
		"0/month":         PerMonth(0),
	} {
		got, err := ParseRate(s)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "/", "100", "100/", "/m", "m/100", "100 / m", "100/fortnight", "100/1month", "-1/m", "1.5/m", "1e3/m", "1000000001/m",
		"9223372036854775808/m", "1/0s", "1/-1s", "1/999us", "1/1ns", "1/401d", "1/99999999d", "1/-1d", "1/m/m", "1/1.0000001s",
		"0x10/m", "1/d7", "１/m", strings.Repeat("9", 1<<16) + "/m",
	} {
		if got, err := ParseRate(s); err == nil || got != (Rate{}) {
			t.Errorf("ParseRate(%.40q) = %v, %v; want an error", s, got, err)
		} else if len(err.Error()) > 300 {
			t.Errorf("ParseRate(%.40q): the error has %d bytes, want at most 300", s, len(err.Error()))
		}
	}
}

// FuzzParseRate checks that every accepted rate is valid, and prints a text that is parsed to an equal Rate.
func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/m", "5/10s", "1000/24h", "7/d", "1/1500us", "/", "1/1h30m", "5/week", "5/month"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			return
		}
		if err := r.check(); err != nil {
			t.Fatalf("ParseRate(%q) = %v, which is not valid: %v", s, r, err)
		}
		if again, err := ParseRate(r.String()); err != nil || again != r {
			t.Fatalf("ParseRate(%q) = %v, whose text is parsed as %v, %v; want the same rate", s, r, again, err)
		}
	})
}
