package core_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestNewRefusesZero checks that New and NewMemory refuse limits of 0, which only With may set, for each constructor. They must
// accept Unlimited, even beside options that only matter for limits that With sets.
func TestNewRefusesZero(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	for want, limit := range map[string]core.Limit{
		"token_bucket 0/1m: the count is 0, allowed is 1 to 1000000000: a limit of 0": core.TokenBucket(core.PerMinute(0), core.Burst(0)),
		"gcra 0/1m burst=5: the count is 0":                                           core.GCRA(core.PerMinute(0), core.Burst(5)),
		"leaky_bucket 0/1m: the count is 0":                                           core.LeakyBucket(core.PerMinute(0)),
		"fixed_window 0/month: the count is 0":                                        core.FixedWindow(core.PerMonth(0)),
		"sliding_window_log 0/1m: the count is 0":                                     core.SlidingWindowLog(core.PerMinute(0)),
		"sliding_window_counter 0/1m: the count is 0":                                 core.SlidingWindowCounter(core.PerMinute(0)),
		"in_flight 0: InFlight(0): allowed is 1 to 1000000000: a limit of 0":          core.InFlight(0),
	} {
		for _, err := range []error{
			second(core.New(client, "api", core.InFlight(1, core.LimitName("x")), limit)), second(core.NewMemory("api", core.Unlimited(), limit)),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: got error %v, want one that contains %q", limit, err, want)
			}
		}
	}
	lim, err := core.New(client, "api", core.Unlimited(), core.Unlimited(), core.Hold(time.Second), core.Ban(time.Hour), core.Processes(5),
		core.Lease(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lim.Close() }()
	unlimited := core.Unlimited()
	if limits := lim.Limits(); !slices.Equal(limits, []core.Limit{unlimited, unlimited}) || unlimited.Name() != "unlimited" ||
		unlimited.Algorithm() != "unlimited" || unlimited.Capacity() != math.MaxInt64 || unlimited.Rate() != (core.Rate{}) {
		t.Errorf("got the limits %v, want two that are Unlimited, with its name, algorithm, capacity and no rate", limits)
	}
	if got := core.TokenBucket(core.PerMinute(0), core.Burst(7)).Capacity(); got != 0 {
		t.Errorf("the capacity of a limit of 0 is %d, want 0", got)
	}
}

// second returns the error of a call.
func second[T any](_ T, err error) error { return err }

// TestUnlimitedOutage checks Unlimited and limits of 0 while Redis is down. Without bans, neither Redis nor the outage policy is
// needed. With bans, the outage policy decides, except that a limit of 0 always denies.
func TestUnlimitedOutage(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer func() { _ = client.Close() }()
	for name, c := range map[string]struct {
		policy          core.Option
		unlimited, zero core.Source // the sources of the decisions with bans
		fails           bool        // whether Unlimited with bans returns an error
	}{
		"FailLocal":  {core.FailLocal(), core.SourceFallback, core.SourceFallback, false},
		"FailOpen":   {core.FailOpen(), core.SourceNone, core.SourceUncounted, false},
		"FailClosed": {core.FailClosed(), core.SourceNone, core.SourceUncounted, true},
	} {
		for _, bans := range []bool{false, true} {
			opts := []core.Option{core.FixedWindow(core.PerHour(5)), c.policy, core.Timeout(50 * time.Millisecond)}
			free, none := core.SourceUncounted, core.SourceUncounted
			if bans {
				opts, free, none = append(opts, core.Ban(time.Hour)), c.unlimited, c.zero
			}
			lim := core.MustNew(client, "api", opts...)
			defer func() { _ = lim.Close() }()
			unlimited, zero := derive(t, lim, core.Unlimited()), derive(t, lim, core.FixedWindow(core.PerHour(0)))
			res, err := unlimited.Allow(t.Context(), "k")
			if fails := bans && c.fails; errors.Is(err, core.ErrUnavailable) != fails || res.Allowed == fails || res.Source != free {
				t.Errorf("%s, bans %v: Unlimited: got %+v, %v; want the source %v, and an error: %t", name, bans, res, err, free, fails)
			}
			r, err := zero.Reserve(t.Context(), "k", 1)
			if res := r.Decided(); err != nil || res.Allowed || res.Source != none || res.RetryAfter != core.Never || res.LimitName != "fixed-1h" {
				t.Errorf("%s, bans %v: a limit of 0: got %+v, %v; want a denial by fixed-1h forever, and the source %v", name, bans, res, err, none)
			}
			if name == "FailLocal" && bans {
				_ = unlimited.Block(t.Context(), "k", time.Hour) // blocks the key in this process only
				for _, l := range []*core.Limiter{unlimited, zero} {
					if res, err := l.Allow(t.Context(), "k"); err != nil || !res.Banned || res.Source != core.SourceFallback {
						t.Errorf("after Block: got %+v, %v; want a ban by the fallback", res, err)
					}
				}
			}
		}
	}
}

// TestUnlimitedIsRemembered checks that the deny cache answers for a banned key, and for a key with a limit of 0. Without bans, no
// command may be sent at all.
func TestUnlimitedIsRemembered(t *testing.T) {
	t.Parallel()
	client := redistest.Server(t).Client(t)
	sent := gate.Count(client)
	lim := core.MustNew(client, "plain", core.FixedWindow(core.PerHour(5)))
	defer func() { _ = lim.Close() }()
	for range 3 {
		_, err := derive(t, lim, core.Unlimited()).Allow(t.Context(), "k")
		_, err2 := derive(t, lim, core.FixedWindow(core.PerHour(0))).Allow(t.Context(), "k")
		if err != nil || err2 != nil || sent() != 0 {
			t.Errorf("without bans: got %d commands and the errors %v and %v, want none", sent(), err, err2)
		}
	}
	lim = core.MustNew(client, "bans", core.FixedWindow(core.PerHour(5)), core.Ban(time.Hour), core.Timeout(time.Minute))
	defer func() { _ = lim.Close() }()
	if err := lim.Block(t.Context(), "blocked", time.Hour); err != nil {
		t.Fatal(err)
	}
	for key, limit := range map[string]core.Limit{"blocked": core.Unlimited(), "suspended": core.FixedWindow(core.PerHour(0))} {
		l, cached := derive(t, lim, limit), 0
		for range 20 { // the machine may be so slow that a second passes between two calls
			res, err := l.AllowN(t.Context(), key, 3)
			if err != nil || res.Allowed || res.Banned != (key == "blocked") || (res.RetryAfter == core.Never) == res.Banned {
				t.Errorf("%s: got %+v, %v; want a denial, banned only if the key is blocked", key, res, err)
			}
			if res.Source == core.SourceDenyCache {
				cached++
			}
		}
		if cached < 10 {
			t.Errorf("%s: %d of 20 denials are from the deny cache, want at least 10", key, cached)
		}
	}
}

// derive returns lim with other limits.
func derive(t *testing.T, lim *core.Limiter, limits ...core.Limit) *core.Limiter {
	t.Helper()
	l, err := lim.With(limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
