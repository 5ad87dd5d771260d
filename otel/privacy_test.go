package otellimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestNoKeyIsReported checks that no metric or span contains a key or a part of one, whatever the source of the decision, and even if an
// error contains the key.
func TestNoKeyIsReported(t *testing.T) {
	t.Parallel()
	const key = "user:alice@example.com"
	m := newMeter(t)
	server := redistest.Server(t)
	rdb := server.Client(t)
	observe := m.observe()
	local := core.MustNew(rdb, "local", core.TokenBucket(core.PerHour(2)), core.Timeout(time.Minute), observe)
	closed := core.MustNew(rdb, "closed", core.GCRA(core.PerHour(2)), core.FailClosed(), core.Timeout(time.Minute), observe)
	memory := core.MustNewMemory("memory", core.FixedWindow(core.PerHour(2)), observe)
	span := spanned(t, sdktrace.AlwaysSample(), func(ctx context.Context) {
		for range 2 {
			for range 5 {
				for _, lim := range []*core.Limiter{local, closed, memory} {
					_, _ = lim.Allow(ctx, key)
				}
			}
			server.Stop()
		}
		for kind := range core.EventKind(20) {
			inside.Core.Emit(ctx, memory, core.Event{Kind: kind, Err: errors.New(key), Detail: key})
		}
	})
	values := m.values()
	if len(values) < 15 || len(span) != 6 {
		t.Fatalf("got the values %v and the attributes %v, want more to check", values, span)
	}
	everything := fmt.Sprintf("%v %v %v", values, span, m.collected())
	for _, part := range []string{"alice", "example.com", "user:"} {
		if strings.Contains(everything, part) {
			t.Errorf("%q is in the metrics or the span, want no part of the key: %s", part, everything)
		}
	}
}
