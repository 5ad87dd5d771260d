package adapter

import (
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// TestShownComparesAsResults compares random Results by Tighter, and by the fields of them that shown keeps. The outcomes differ if
// Tighter compares a field that shown lacks.
func TestShownComparesAsResults(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		before, after := randomResult(random), randomResult(random)
		var s shown
		if first := s.replace(&before); !first && before.Source != core.SourceNone {
			t.Fatalf("replace(%+v) on an empty shown returned false, want true", before)
		}
		want := before.Source == core.SourceNone || after.Tighter(before)
		if got := s.replace(&after); got != want {
			t.Fatalf("replace(%+v) after %+v returned %t, want %t", after, before, got, want)
		}
	}
}

// randomResult returns a Result with small random values in all fields, so that fields of two Results are often equal.
func randomResult(random *rand.Rand) core.Result {
	var res core.Result
	fields := reflect.ValueOf(&res).Elem()
	for i := range fields.NumField() {
		switch field := fields.Field(i); {
		case !field.CanSet():
		case field.CanInt():
			field.SetInt(random.Int64N(3))
		case field.CanUint():
			field.SetUint(random.Uint64N(3))
		case field.Kind() == reflect.Bool:
			field.SetBool(random.IntN(2) == 0)
		case field.Kind() == reflect.String:
			field.SetString([]string{"a", "b"}[random.IntN(2)])
		}
	}
	return res
}

// TestRetryAfterIsNeverZero checks a denial that has ended when the headers are written: Retry-After must not be 0, which clients take
// as an invitation to retry at once.
func TestRetryAfterIsNeverZero(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	denied := core.Result{Source: core.SourceDenyCache, LimiterName: "api", Limit: 1}
	headers{Sets: xRateLimit | ietf, Names: usualNames}.set(h, &denied, 0, &RequestState{})
	if got := h.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After: got %q, want 1", got)
	}
	if got, want := h.Get("RateLimit"), `"api";r=0;t=1`; got != want {
		t.Errorf("RateLimit: got %q, want %q", got, want)
	}
}

// TestRetryIn checks random waits against the documented bounds of RetryJitter and MaxRetryAfter, in seconds and in milliseconds.
func TestRetryIn(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(random.Int64N(1 << (10 + random.IntN(50)))).Truncate(time.Microsecond) // up to 36 years
		o := headers{Jitter: []float64{0, 0.2, 1}[random.IntN(3)], MaxRetry: []time.Duration{0, time.Second, time.Minute, time.Hour}[random.IntN(4)]}
		draw := random.Float64()
		for _, unit := range []time.Duration{time.Second, time.Millisecond} {
			got := time.Duration(o.retryIn(d, unit, draw)) * unit
			least, most := d, max((d+unit-1).Truncate(unit), unit, d+time.Duration(float64(d)*o.Jitter))
			if o.MaxRetry > 0 && d > o.MaxRetry {
				least = time.Duration(float64(o.MaxRetry) / (1 + o.Jitter))
			}
			if o.MaxRetry > 0 {
				most = min(most, o.MaxRetry)
			}
			if got < max(least, unit) || got > most {
				t.Fatalf("%+v: the wait %v is sent as %v, want %v to %v", o, d, got, least, most)
			}
			if sooner := o.retryIn(d-unit, unit, draw); d <= o.MaxRetry && time.Duration(sooner)*unit > got {
				t.Fatalf("%+v: the wait %v is sent as %v, and the shorter wait %v as more", o, d, got, d-unit)
			}
		}
	}
}

// TestHeadersOfACalendar checks the headers on a calendar day of 23 hours: X-RateLimit-Reset must be the end of the day, and w its
// length.
func TestHeadersOfACalendar(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2026, 3, 29, 1, 0, 0, 0, zone) }
	lim := core.MustNewMemory("api", core.FixedWindow(core.PerDay(10), core.In("Europe/Berlin")), core.Clock(now))
	res, err := lim.AllowN(t.Context(), "k", 10)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	headers{Sets: xRateLimit | ietf, Names: usualNames}.set(h, &res, 0, &RequestState{})
	for name, want := range map[string]string{
		"X-RateLimit-Reset": strconv.FormatInt(time.Date(2026, 3, 30, 0, 0, 0, 0, zone).Unix(), 10),
		"RateLimit-Policy":  `"api";q=10;w=` + strconv.Itoa(int((23 * time.Hour).Seconds())),
		"RateLimit":         `"api";r=0;t=` + strconv.Itoa(int((22 * time.Hour).Seconds())),
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
