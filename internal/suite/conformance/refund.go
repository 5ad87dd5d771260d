package conformance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

// refundCases refund what was charged.
func refundCases() []testCase {
	return slices.Concat(
		each("Refund", refundOnce),
		each("Refund/Older", refundOlder),
		each("Refund/AfterReset", refundAfterReset),
		each("Refund/Late", refundLate),
		[]testCase{{"Refund/Several", refundSeveral}, {"Refund/LogOrder", refundLogOrder}},
	)
}

func refund(t *testing.T, lim *core.Limiter, res core.Result) {
	t.Helper()
	if err := lim.Refund(context.Background(), res); err != nil {
		t.Fatal(err)
	}
}

func refundOnce(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "refund", limit(tenPerTen))
	first := allowN(t, lim, "k", 5)
	second := allowN(t, lim, "k", 4)
	copied := second
	refund(t, lim, second)
	if res := peek(t, lim, "k"); res.Remaining != 5 {
		t.Errorf("4 of 9 refunded: %+v", res)
	}
	refund(t, lim, second)
	refund(t, lim, copied)
	if res := peek(t, lim, "k"); res.Remaining != 5 {
		t.Errorf("refunded more than once: %+v", res)
	}
	denied := allowN(t, lim, "k", 6)
	refund(t, lim, denied)
	refund(t, lim, allowN(t, lim, "k", 0))
	refund(t, lim, peek(t, lim, "k"))
	refund(t, lim, core.Result{Allowed: true, Limit: 10})
	if res := peek(t, lim, "k"); denied.Allowed || res.Remaining != 5 {
		t.Errorf("a refund of nothing: %+v", res)
	}
	other := s.limiter(t, "other", limit(tenPerTen))
	if err := other.Refund(context.Background(), first); !errors.Is(err, core.ErrInvalidResult) {
		t.Errorf("another limiter: %v", err)
	}
	refund(t, lim, first)
	want(t, peek(t, lim, "k"), true, 10, 0, 0)
	if s.Redis != nil && len(s.keys(t)) != 0 {
		t.Errorf("all is refunded, and stored is %v", s.keys(t))
	}
	if res := allowN(t, lim, "k", 10); !res.Allowed {
		t.Errorf("after all was refunded: %+v", res)
	}
}

// refundLate refunds a charge that no longer counts: a later window gains nothing.
func refundLate(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "late", limit(tenPerTen))
	old := allowN(t, lim, "k", 10)
	s.Advance(2 * 10 * time.Second)
	allowN(t, lim, "k", 10)
	refund(t, lim, old)
	if res := peek(t, lim, "k"); res.Remaining != 0 {
		t.Errorf("a later window gained: %+v", res)
	}
}

// refundOlder refunds a charge that others were made after. A window gives it back; of a
// bucket what drained since, and what others were charged, cannot be told apart.
func refundOlder(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "older", limit(tenPerTen))
	first := allowN(t, lim, "k", 4)
	allowN(t, lim, "k", 5)
	refund(t, lim, first)
	left := int64(5)
	if limits.Named(limit(tenPerTen).Algorithm()).Kind.Bucket {
		left = 1
	}
	if res := peek(t, lim, "k"); res.Remaining != left {
		t.Errorf("%d of 10 left, want %d", res.Remaining, left)
	}
}

// refundAfterReset refunds a charge that a Reset has forgotten: what others were charged
// since stays.
func refundAfterReset(t *testing.T, s Store, limit maker) {
	lim := s.limiter(t, "reset", limit(tenPerTen))
	forgotten := allowN(t, lim, "k", 4)
	if err := lim.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Microsecond)
	allowN(t, lim, "k", 10)
	refund(t, lim, forgotten)
	remains(t, lim, "k", 0)
}

// refundSeveral refunds a charge of several limits, of which one no longer counts it.
func refundSeveral(t *testing.T, s Store) {
	lim := s.limiter(t, "several", core.FixedWindow(core.PerSecond(5)), core.SlidingWindowLog(core.PerMinute(20)), core.GCRA(core.PerHour(30)))
	first := allowN(t, lim, "k", 2)
	s.Advance(2 * time.Second)
	allowN(t, lim, "k", 3)
	refund(t, lim, first)
	var remaining []int64
	for each := range peek(t, lim, "k").All() {
		remaining = append(remaining, each.Remaining)
	}
	if !slices.Equal(remaining, []int64{2, 17, 25}) {
		t.Errorf("remaining %v, want 2, 17 and 25: something was charged to the bucket since", remaining)
	}
}

// refundLogOrder refunds charges from the middle of a log: the others leave the window
// at their own times.
func refundLogOrder(t *testing.T, s Store) {
	lim := s.limiter(t, "middle", core.SlidingWindowLog(core.PerMinute(10)))
	var charged []core.Result
	for range 3 {
		charged = append(charged, allowN(t, lim, "k", 2), allowN(t, lim, "k", 1))
		s.Advance(10 * time.Second)
	}
	refund(t, lim, charged[2])
	refund(t, lim, charged[5])
	want(t, peek(t, lim, "k"), true, 4, 0, 40*time.Second+10*time.Second)
	want(t, allowN(t, lim, "k", 7), false, 4, 30*time.Second, 50*time.Second)
	want(t, allowN(t, lim, "k", 8), false, 4, 40*time.Second, 50*time.Second)
}
