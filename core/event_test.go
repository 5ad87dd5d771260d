package core

import (
	"context"
	"slices"
	"testing"
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
