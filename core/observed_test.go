package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

// appendEvents returns an option that appends the events of one kind to events.
func appendEvents(kind core.EventKind, events *[]core.Event) core.Option {
	return core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == kind {
			*events = append(*events, e)
		}
	})
}

// TestCancelIsObserved ends a Reservation and a Permit in each way: an observer must receive one EventCancel if all of the units
// are given back, and otherwise none.
func TestCancelIsObserved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, c := range map[string]struct {
		n    int64
		end  func(r *permits.Any)
		want []int64
	}{
		"Cancel":               {3, func(r *permits.Any) { _ = r.Cancel(ctx) }, []int64{3}},
		"Settle at 0":          {3, func(r *permits.Any) { _ = r.Settle(ctx, 0) }, []int64{3}},
		"Cancel twice":         {3, func(r *permits.Any) { _, _ = r.Cancel(ctx), r.Cancel(ctx) }, []int64{3}},
		"Release":              {3, func(r *permits.Any) { _ = r.Release(ctx) }, nil},
		"Settle of a part":     {3, func(r *permits.Any) { _ = r.Settle(ctx, 1) }, nil},
		"Cancel after Release": {3, func(r *permits.Any) { _, _ = r.Release(ctx), r.Cancel(ctx) }, nil},
		"Release of nothing":   {0, func(r *permits.Any) { _ = r.Release(ctx) }, nil},
		"Cancel of a denial":   {9, func(r *permits.Any) { _ = r.Cancel(ctx) }, nil},
	} {
		for _, take := range []func(*core.Limiter, context.Context, string, int64) (*permits.Any, error){permits.Acquire, permits.Reserve} {
			var events []core.Event
			lim := core.MustNewMemory("test", core.FixedWindow(core.PerDay(5)), core.InFlight(5), appendEvents(core.EventCancel, &events))
			r, err := take(lim, ctx, "k", c.n)
			if err != nil {
				t.Fatal(err)
			}
			if r.Permit != nil && name == "Settle of a part" {
				continue // a Permit is charged entirely, or not at all
			}
			c.end(r)
			var costs []int64
			for _, e := range events {
				costs = append(costs, e.Cost)
			}
			if !slices.Equal(costs, c.want) {
				t.Errorf("%s, of a Permit %v: the canceled units in events are %d, want %d", name, r.Permit != nil, costs, c.want)
			}
		}
	}
}

// TestWaitIsObserved waits for up to 5 s by Wait and AcquireWait. The EventWait must say how long the caller waited, and whether
// it was admitted. Callers that cannot be admitted in time do not wait.
func TestWaitIsObserved(t *testing.T) {
	t.Parallel()
	bucket, slow := core.TokenBucket(core.PerSecond(1), core.Burst(2)), core.TokenBucket(core.PerMinute(1), core.Burst(2))
	for name, c := range map[string]struct {
		limit  core.Limit
		n      int64
		after  int             // how many calls with the same cost were made before
		leaves time.Duration   // when the caller's context is canceled: -1 before the call, and 0 never
		waits  []time.Duration // the waits in events
		err    error
	}{
		"admitted at once":           {bucket, 1, 1, 0, []time.Duration{0}, nil},
		"after a denial":             {bucket, 2, 1, 0, []time.Duration{2 * time.Second}, nil},
		"for a Delay":                {core.LeakyBucket(core.PerSecond(1), core.Burst(9)), 1, 3, 0, []time.Duration{3 * time.Second}, nil},
		"for a slot that stays held": {core.InFlight(1), 1, 1, 0, []time.Duration{5 * time.Second}, context.DeadlineExceeded},
		"past the deadline":          {core.TokenBucket(core.Per(1, 5001*time.Millisecond)), 1, 1, 0, []time.Duration{0}, context.DeadlineExceeded},
		"until the caller leaves":    {bucket, 2, 1, time.Second / 2, []time.Duration{time.Second / 2}, context.Canceled},
		"after the caller has left":  {bucket, 1, 0, -1, nil, context.Canceled},
		"never":                      {slow, 3, 0, 0, nil, core.ErrNeverAdmitted},
		"never in a queue":           {core.LeakyBucket(core.PerMinute(1)), 2, 0, 0, nil, core.ErrNeverAdmitted},
		"not a cost":                 {core.LeakyBucket(core.PerMinute(1)), -1, 0, 0, nil, core.ErrInvalidCost},
	} {
		for method, wait := range map[string]func(*core.Limiter, context.Context) error{
			"WaitN": func(l *core.Limiter, ctx context.Context) error { return second(l.WaitN(ctx, "k", c.n)) },
			"AcquireWait": func(l *core.Limiter, ctx context.Context) error {
				p, err := l.AcquireWait(ctx, "k", c.n)
				return errors.Join(err, p.Release(context.Background()))
			},
		} {
			if method == "WaitN" && c.limit.Algorithm() == "in_flight" {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				var events []core.Event
				lim := core.MustNewMemory("test", c.limit, appendEvents(core.EventWait, &events))
				defer func() { _ = lim.Close() }()
				for range c.after {
					if _, err := lim.Acquire(t.Context(), "k", c.n); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				switch {
				case c.leaves < 0:
					cancel()
				case c.leaves > 0:
					time.AfterFunc(c.leaves, cancel)
				}
				begun := time.Now()
				err := wait(lim, ctx)
				if took, want := time.Since(begun), slices.Max(append(c.waits, 0)); !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || took != want {
					t.Fatalf("%s, %s: got error %v after %v, want %v after %v", name, method, err, took, c.err, want)
				}
				var waits []time.Duration
				for _, e := range events {
					waits = append(waits, e.Took)
					if e.Cost != c.n || e.Limiter != "test" || e.Result.Allowed != (err == nil) || !errors.Is(e.Err, c.err) {
						t.Errorf("%s, %s: observed %+v, want the cost %d and the error %v", name, method, e, c.n, c.err)
					}
				}
				if !slices.Equal(waits, c.waits) {
					t.Errorf("%s, %s: observed waits of %v, want %v", name, method, waits, c.waits)
				}
			})
		}
	}
	if _, err := core.MustNewMemory("test", bucket).WaitN(t.Context(), "", 1); !errors.Is(err, core.ErrInvalidKey) {
		t.Errorf("WaitN without a key: got error %v, want ErrInvalidKey", err)
	}
}

// TestLongWait checks that one warning is logged if calls without a deadline wait for more than a day. Such a wait is probably a
// mistake: the limit is so small that the caller seems to hang.
func TestLongWait(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		limit    core.Limit
		deadline time.Duration // of the callers; 0 without one
		lines    int           // how many warnings are logged
	}{
		"a used-up window":  {core.FixedWindow(core.Per(1, 30*day)), 0, 1},
		"a turn in a queue": {core.LeakyBucket(core.Per(1, 30*day), core.Burst(9)), 0, 1},
		"with a deadline":   {core.FixedWindow(core.Per(1, 30*day)), 40 * day, 0},
		"a day":             {core.SlidingWindowLog(core.Per(1, day)), 0, 0},
		"for a slot":        {core.InFlight(1), 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			logger, logged := textLogger()
			lim := core.MustNewMemory("test", c.limit, core.Logger(logger))
			defer func() { _ = lim.Close() }()
			first, err := lim.AcquireWait(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.deadline)
			}
			defer cancel()
			for range 2 {
				go func() { _, _ = lim.AcquireWait(ctx, "k", 1) }()
				go func() { _, _ = lim.AcquireWait(ctx, "other", 1) }()
			}
			time.Sleep(time.Minute)
			if n := strings.Count(logged(), "waits for more than a day"); n != c.lines {
				t.Errorf("%s: %d warnings are logged, want %d: %s", name, n, c.lines, logged())
			}
			cancel()
			_ = first.Release(t.Context())
		})
	}
}

// deniedThenLost stands for a Redis that denies the first call, with a RetryAfter of one second, and fails for all others.
type deniedThenLost struct{ calls int }

func (d *deniedThenLost) Call(string, string, int64) (time.Duration, error) {
	if d.calls++; d.calls == 1 {
		return time.Second, nil
	}
	return 0, errors.New("lost")
}

// TestFailedWaitHasNoResult checks a wait that fails after a denial: neither the caller nor the observer may receive the Result of
// the denial beside the error.
func TestFailedWaitHasNoResult(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(ctx context.Context, lim *core.Limiter) (core.Result, error){
		"Wait": func(ctx context.Context, lim *core.Limiter) (core.Result, error) { return lim.Wait(ctx, "k") },
		"WaitUpTo": func(ctx context.Context, lim *core.Limiter) (res core.Result, err error) {
			_, err = inside.Core.AcquireUpTo(ctx, lim, coreaccess.Waiting{Key: "k", N: 1, UpTo: time.Millisecond, Most: 1}, &res)
			return res, err
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var events []core.Event
			opts := []core.Option{core.TokenBucket(core.PerSecond(1)), core.Ban(time.Minute), appendEvents(core.EventDecision, &events)}
			lim, err := inside.Core.NewStub("test", opts, new(deniedThenLost))
			if err != nil {
				t.Fatal(err)
			}
			res, err := wait(t.Context(), lim)
			if !errors.Is(err, core.ErrUnavailable) || !res.At.IsZero() {
				t.Errorf("%s: got %+v, %v; want no Result and ErrUnavailable", name, res, err)
			}
			if n := len(events); n == 0 || events[n-1].Err == nil || !events[n-1].Result.At.IsZero() {
				t.Errorf("%s: observed %+v, want the last event with an error and no Result", name, events)
			}
		})
	}
}
