package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/lease"
)

// A slowRedis admits all decisions, when a test allows it, and records all other calls. Its Limiter has one limit.
type slowRedis struct {
	gate   chan struct{} // decisions wait until it is closed
	panics bool          // whether a decision that holds units or slots panics when the gate is open
	frees  time.Duration // how long other calls take

	mu   sync.Mutex
	m    int64    // the id that the last decision requested for its hold
	sent []string // the other calls: operation, m and handle; "id" stands for the handle that was requested
}

// slowA and slowB are the handle that slowRedis returns.
const slowA, slowB = 77, 1_800_000_100_000_000

func (c *slowRedis) Process(_ context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	if cmd.Name() == "del" { // from a probe
		return nil
	}
	if key, _ := args[3].(string); strings.Contains(key, "~probe") {
		return set(cmd, 7, 1_800_000_000_000_000, 0, 0, 0, 0, 0, 0)
	}
	last := len(args) - 5
	op, _ := args[last].(string)
	m, _ := args[last+2].(int64)
	if len(op) != 1 { // a plain decision
		<-c.gate
		return set(cmd, 1, 1_800_000_000_000_000, 0, 0, 0)
	}
	if op == "1" || op == "2" {
		c.mu.Lock()
		c.m = m
		c.mu.Unlock()
		<-c.gate
		if c.panics {
			panic("a hook")
		}
		return set(cmd, 7, 1_800_000_000_000_000, 0, 0, 0, 0, slowA, slowB)
	}
	time.Sleep(c.frees)
	c.mu.Lock()
	defer c.mu.Unlock()
	handle := fmt.Sprint(args[last+3])
	if args[last+3] == c.m {
		handle = "id"
	}
	c.sent = append(c.sent, fmt.Sprint(op, " ", m, " ", handle))
	return set(cmd, 7, 1_800_000_000_000_000, 0, 0, 0, 0, 0, 0)
}

// others returns the calls that were not decisions, sorted.
func (c *slowRedis) others() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.sent))
}

// errHook stands for the error of a hook that panicked.
var errHook = errors.New("a hook panicked")

// TestLeft checks replies of Redis that arrive after the caller has stopped waiting, because its context ended or because the
// Timeout is over. What the call holds must be given back once. If the reply is lost, slots are given back by the id that
// the call requested.
func TestLeft(t *testing.T) {
	t.Parallel()
	slots, bucket := InFlight(1, SlotTTL(time.Minute)), TokenBucket(PerMinute(10))
	acquire := func(l *Limiter, ctx context.Context) (*admission, error) {
		p, err := l.Acquire(ctx, "k", 1)
		return (*admission)(p), err
	}
	reserve := func(l *Limiter, ctx context.Context) (*admission, error) {
		r, err := l.Reserve(ctx, "k", 1)
		return (*admission)(r), err
	}
	const soon, late = 100 * time.Millisecond, 700 * time.Millisecond // before and after the Timeout
	for name, c := range map[string]struct {
		limit    Limit
		take     func(*Limiter, context.Context) (*admission, error)
		leaves   time.Duration // when the caller's context ends; 0: never
		cancels  bool          // whether the context is canceled, instead of having a deadline
		answered time.Duration // when Redis replies
		want     []string      // the calls that give something back
		err      error
	}{
		"canceled":          {slots, acquire, soon, true, 2 * soon, []string{"7 0 77"}, context.Canceled},
		"deadline":          {slots, acquire, soon, false, 2 * soon, []string{"7 0 77"}, context.DeadlineExceeded},
		"held units":        {bucket, reserve, soon, true, 2 * soon, []string{"3 0 77"}, context.Canceled},
		"charged":           {bucket, acquire, soon, true, 2 * soon, nil, context.Canceled},
		"caller waits":      {slots, acquire, 0, true, 2 * soon, nil, nil},
		"late":              {slots, acquire, 0, true, late, []string{"7 0 id", "7 0 77"}, nil},
		"late, held units":  {bucket, reserve, 0, true, late, []string{"3 0 77"}, nil},
		"left and late":     {slots, acquire, soon, true, late, []string{"7 0 id", "7 0 77"}, context.Canceled},
		"ended before":      {slots, acquire, time.Nanosecond, true, soon, nil, context.Canceled},
		"a panic of a hook": {slots, acquire, 0, true, soon, []string{"7 0 id"}, errHook},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &slowRedis{gate: make(chan struct{}), panics: strings.Contains(name, "panic")}
				lim := MustNew(client, "x", c.limit, Logger(slog.New(slog.DiscardHandler)))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch {
				case c.leaves == time.Nanosecond:
					cancel()
				case c.leaves > 0 && c.cancels:
					time.AfterFunc(c.leaves, cancel)
				case c.leaves > 0:
					ctx, cancel = context.WithTimeout(ctx, c.leaves)
					defer cancel()
				}
				time.AfterFunc(c.answered, func() { close(client.gate) })
				begun := time.Now()
				r, err := c.take(lim, ctx)
				if errors.As(err, new(*batch.HookError)) {
					err = errHook
				}
				if !errors.Is(err, c.err) || (r != nil) != (c.err == nil) || errors.Is(err, ErrUnavailable) {
					t.Errorf("got %v, %v; want the error %v", r, err, c.err)
				}
				if r != nil && (r.Source == SourceFallback) != (c.answered == late) {
					t.Errorf("decided by %v, want the fallback only if Redis is late", r.Source)
				}
				if c.leaves > 0 && time.Since(begun) > c.leaves {
					t.Errorf("the caller returned after %v, want at most %v", time.Since(begun), c.leaves)
				}
				time.Sleep(5 * time.Second)
				slices.Sort(c.want)
				if sent := client.others(); !slices.Equal(sent, c.want) {
					t.Errorf("sent %q, want %q", sent, c.want)
				}
				_ = lim.Close()
				time.Sleep(time.Second)
			})
		})
	}
}

// TestLeftClose closes a Limiter while the decision of a caller that has left is in flight, or the cleanup after it. Close must
// wait for the decision, which takes a slot, and for the cleanup that frees the slot, but no longer than the Timeout.
func TestLeftClose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		decides, frees, want time.Duration // decides is 0 if the decision is over before Close
	}{
		{300 * time.Millisecond, 0, 300 * time.Millisecond},
		{time.Minute, 0, defaultTimeout},
		{0, 300 * time.Millisecond, 300 * time.Millisecond},
		{0, time.Second, defaultTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := &slowRedis{gate: make(chan struct{}), frees: c.frees}
			lim := MustNew(client, "x", InFlight(1))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			if _, err := lim.Acquire(ctx, "k", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire: got error %v, want context.Canceled", err)
			}
			if c.decides > 0 {
				time.AfterFunc(c.decides, func() { close(client.gate) })
			} else {
				close(client.gate)
				synctest.Wait() // until the cleanup is in flight
			}
			begun := time.Now()
			_ = lim.Close()
			if took := time.Since(begun); took < c.want-time.Millisecond || took > c.want+10*time.Millisecond {
				t.Errorf("%+v: Close took %v, want %v", c, took, c.want)
			}
			if sent := client.others(); c.want < defaultTimeout && !slices.Equal(sent, []string{"7 0 77"}) {
				t.Errorf("%+v: when Close has returned, %q was sent, want the release of the slot", c, sent)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestLeftCloseEnding closes a Limiter while a settlement waits for a renewal, and its caller has left. Close must wait for
// the settlement, but no longer than the Timeout.
func TestLeftCloseEnding(t *testing.T) {
	t.Parallel()
	for renews, want := range map[time.Duration]time.Duration{300 * time.Millisecond: 300 * time.Millisecond, time.Minute: defaultTimeout} {
		synctest.Test(t, func(t *testing.T) {
			const now, minute = 1_800_000_000_000_000, 60_000_000
			var settled atomic.Int64
			client := fakeClient(func(cmd redis.Cmder) error {
				switch {
				case slices.Contains(cmd.Args(), any(string(algorithm.OpRenew))):
					time.Sleep(renews)
				case slices.Contains(cmd.Args(), any(string(algorithm.OpSettle))):
					settled.Add(1)
				}
				return set(cmd, 7, now, 0, now, minute, 0, slowA, slowB)
			})
			lim := MustNew(client, "x", FixedWindow(PerMinute(10)))
			r, err := lim.Reserve(t.Context(), "k", 5)
			if err != nil {
				t.Fatal(err)
			}
			r.Keep()
			go inside{}.Driver(lim).Renew()
			synctest.Wait() // until the renewal is in flight
			ctx, leave := context.WithCancel(t.Context())
			leave()
			if err := r.Settle(ctx, 1); !errors.Is(err, context.Canceled) {
				t.Errorf("Settle: got error %v, want context.Canceled", err)
			}
			begun := time.Now()
			_ = lim.Close()
			if took := time.Since(begun); took < want || took > want+10*time.Millisecond {
				t.Errorf("Close took %v, want %v", took, want)
			}
			if n := settled.Load(); renews < defaultTimeout && n != 1 {
				t.Errorf("when Close has returned, %d settlements were sent, want 1", n)
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestLeftCloseInOutage closes a Limiter during an outage, while cleanups for limits with several lists of algorithms wait for
// Redis: Close waits for all of them together, for one Timeout.
func TestLeftCloseInOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		hangs := fakeClient(func(redis.Cmder) error {
			<-over
			return context.DeadlineExceeded
		})
		lim := MustNew(hangs, "x", InFlight(1), FailClosed(), Logger(slog.New(slog.DiscardHandler)))
		for _, limits := range [][]Limit{{InFlight(1)}, {InFlight(1), TokenBucket(PerMinute(1))}, {InFlight(1), FixedWindow(PerMinute(1))}} {
			l, err := lim.With(limits...)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = l.Acquire(t.Context(), "k", 1) }() // its reply is lost, and Redis may have taken a slot
		}
		time.Sleep(30 * time.Second)
		begun := time.Now()
		_ = lim.Close()
		if took := time.Since(begun); took < defaultTimeout || took > defaultTimeout+10*time.Millisecond {
			t.Errorf("Close took %v, want %v", took, defaultTimeout)
		}
		close(over)
		time.Sleep(time.Second)
	})
}

// TestEndIsSent ends Permits with contexts that have ended, or end soon: Release and Cancel must reach Redis all the same,
// once, and the caller returns when its context ends.
func TestEndIsSent(t *testing.T) {
	t.Parallel()
	// The names are what slowRedis records: the operation, and the handle of the Permit.
	for name, end := range map[string]func(*Permit, context.Context) error{
		"7 0 77": (*Permit).Release, "4 0 77": (*Permit).Cancel,
	} {
		for _, lasts := range []time.Duration{0, 50 * time.Millisecond, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				client := &slowRedis{gate: make(chan struct{}), frees: 100 * time.Millisecond}
				close(client.gate)
				lim := MustNew(client, "x", InFlight(1))
				r, err := lim.Acquire(t.Context(), "k", 1)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				begun := time.Now()
				err = end(r, ctx)
				if took := time.Since(begun); took != min(lasts, client.frees) || !errors.Is(err, ctx.Err()) || ctx.Err() == nil && err != nil {
					t.Errorf("got error %v after %v, want %v after %v", err, took, ctx.Err(), min(lasts, client.frees))
				}
				if err := end(r, t.Context()); err != nil { // only the first end counts
					t.Errorf("the second end: got error %v, want none", err)
				}
				time.Sleep(time.Second)
				if sent := client.others(); !slices.Equal(sent, []string{name}) {
					t.Errorf("sent %q, want %q", sent, name)
				}
				_ = lim.Close()
			})
		}
	}
}

// TestLeftExchange checks a caller of Reserve that leaves while its lease is being taken: nothing is reserved, and the lease
// is available to other callers.
func TestLeftExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := &exchanging{gate: make(chan struct{})}
		lim := MustNew(client, "x", TokenBucket(PerSecond(1000)), FailClosed(), Lease(hotFor))
		for range lease.HotDecisions {
			if _, err := lim.Allow(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if r, err := lim.Reserve(ctx, "k", 1); r != nil || !errors.Is(err, context.Canceled) || client.exchanges.Load() != 1 {
			t.Errorf("Reserve: got %v, %v after %d exchanges; want context.Canceled after 1", r, err, client.exchanges.Load())
		}
		synctest.Wait() // the lease is taken although its caller has left
		close(client.gate)
		synctest.Wait()
		if n := client.plain.Load(); n != lease.HotDecisions {
			t.Errorf("%d calls to Redis after the caller left, want none", n-lease.HotDecisions)
		}
		if res, err := lim.Allow(t.Context(), "k"); err != nil || res.Source != SourceLease {
			t.Errorf("the next request: got %+v, %v; want a decision from the lease", res, err)
		}
		_ = lim.Close()
		time.Sleep(time.Second)
	})
}

// A oneSlot is a Redis with one slot. Freeing the slot takes the time frees. If away is not 0, the server goes down that long
// after the first call.
type oneSlot struct {
	frees, away time.Duration

	mu   sync.Mutex
	held int64
	gone time.Time // when the server goes down
}

func (c *oneSlot) Process(_ context.Context, cmd redis.Cmder) error {
	args := cmd.Args()
	op := args[max(0, len(args)-5)]
	if op == "7" {
		time.Sleep(c.frees)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone.IsZero() {
		c.gone = time.Now().Add(c.away)
	}
	if c.away > 0 && time.Now().After(c.gone) && op != "7" {
		return errNoScript
	}
	held := c.held
	switch op {
	case "1":
		c.held = 1
	case "7":
		c.held = 0
	}
	return set(cmd, 7-held, 1_800_000_000_000_000, 0, 0, 0, held, slowA, slowB)
}

// TestWokenWhenFree gives back a slot by a caller that does not wait for the reply. A caller that waits for the slot must be
// woken by the reply. If it was woken before Redis has freed the slot, it would be denied and sleep for a second.
func TestWokenWhenFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lim := MustNew(&oneSlot{frees: 100 * time.Millisecond}, "x", InFlight(1))
		first, err := lim.Acquire(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		begun, left := time.Now(), make(chan struct{})
		go func() {
			r, err := lim.AcquireWait(context.Background(), "k", 1)
			if took := time.Since(begun); err != nil || took != 100*time.Millisecond {
				t.Errorf("AcquireWait: got error %v after %v, want none after 100ms", err, took)
			}
			_ = r.Release(context.Background())
			close(left)
		}()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		_ = first.Release(ctx)
		<-left
		_ = lim.Close()
	})
}
