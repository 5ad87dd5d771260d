package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestObserveMoreThanOnce has an application's own observer and that of a package,
// such as otellimit: none replaces another.
func TestObserveMoreThanOnce(t *testing.T) {
	t.Parallel()
	var heard []string
	observer := func(name string) Option {
		return Observe(func(_ context.Context, e Event) { heard = append(heard, name+":"+e.Kind.String()+":"+e.Limiter) })
	}
	lim, err := NewMemory("api", observer("first"), TokenBucket(PerMinute(1)), observer("second"), observer("third"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lim.Allow(t.Context(), "user:alice"); err != nil {
		t.Fatal(err)
	}
	want := []string{"first:decision:api", "second:decision:api", "third:decision:api"}
	if !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v", heard, want)
	}
}

// TestFallbackShowsNoKey prints the Event of a decision by the fallback, and its Result.
// The conformance suite has those of Redis and of memory.
func TestFallbackShowsNoKey(t *testing.T) {
	t.Parallel()
	const secret = "alice@example.org"
	var events []Event
	lim := MustNew(fakeClient(func(redis.Cmder) error { return errors.New("away") }), "api", TokenBucket(PerMinute(9)),
		Observe(func(_ context.Context, e Event) { events = append(events, e) }))
	defer func() { _ = lim.Close() }()
	res, err := lim.Allow(t.Context(), secret)
	if err != nil || res.Source != SourceFallback {
		t.Fatal(res, err)
	}
	for _, e := range append(events, Event{Result: res}) {
		if text := fmt.Sprintf("%v %+v %#v %v %+v", e, e, e, e.Result, &e.Result); strings.Contains(text, secret) {
			t.Errorf("the key is in %s", text)
		}
	}
}
