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

// TestShownComparesAsResults compares random Results directly, and by the fields that shown keeps of
// them. The outcomes differ if Tighter compares a field that shown lacks.
func TestShownComparesAsResults(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		before, after := randomResult(random), randomResult(random)
		var s shown
		if first := s.replace(&before); !first && before.Source != core.SourceNone {
			t.Fatalf("the first Result is not shown: %+v", before)
		}
		want := before.Source == core.SourceNone || after.Tighter(before)
		if got := s.replace(&after); got != want {
			t.Fatalf("%+v replaces %+v: %t, want %t", after, before, got, want)
		}
	}
}

// randomResult returns a Result with small values in all fields, so that many values are equal.
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

// TestRetryAfterIsNeverZero checks a denial that ends while it is written: Retry-After must not be 0,
// which clients take as an invitation to retry at once.
func TestRetryAfterIsNeverZero(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	denied := core.Result{Source: core.SourceDenyCache, LimiterName: "api", Limit: 1}
	headers{Sets: xRateLimit | ietf, Names: usualNames}.set(h, &denied, 0, &RequestState{})
	if got := h.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After: %q, want 1", got)
	}
	if got, want := h.Get("RateLimit"), `"api";r=0;t=1`; got != want {
		t.Errorf("RateLimit: %q, want %q", got, want)
	}
}

// TestRetryIn checks random waits against the documented bounds of RetryJitter and MaxRetryAfter, in
// both units.
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
				t.Fatalf("%+v: %v is sent as %v, want %v to %v", o, d, got, least, most)
			}
			if sooner := o.retryIn(d-unit, unit, draw); d <= o.MaxRetry && time.Duration(sooner)*unit > got {
				t.Fatalf("%+v: %v is sent as %v, and %v as more", o, d, got, d-unit)
			}
		}
	}
}

// TestHeadersOfACalendar checks the headers on a day of 23 hours: X-RateLimit-Reset must be its end, and
// w its length.
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
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
