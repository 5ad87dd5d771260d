package core_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/permits"
)

var tenADay = core.FixedWindow(core.PerDay(10))

// TestAll decides with two Limiters at once: if one of them denies, nothing is charged in either.
func TestAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	perUser, perOrg := core.MustNewMemory("user", tenADay), core.MustNewMemory("org", core.FixedWindow(core.PerDay(12)))
	for i, c := range []struct {
		n           int64
		keys        []core.Keyed
		by          string // the name of the Limiter that the Result describes
		allowed     bool
		limits      int // how many limits the Result has
		remaining   int64
		users, orgs int64 // what remains for the key "k" in each Limiter
	}{
		{1, []core.Keyed{perUser.On("k"), perOrg.On("k")}, "user", true, 2, 9, 9, 11},
		{4, []core.Keyed{perOrg.On("k"), perUser.On("k")}, "user", true, 2, 5, 5, 7},
		{6, []core.Keyed{perOrg.On("k"), perUser.On("k")}, "user", false, 1, 5, 5, 7},
		{1, []core.Keyed{perUser.On("k"), perOrg.On("k").Cost(7)}, "org", true, 2, 0, 4, 0},
		{1, []core.Keyed{perUser.On("k"), perOrg.On("k")}, "org", false, 1, 0, 4, 0},
		{0, []core.Keyed{perUser.On("k"), perOrg.On("k")}, "org", true, 2, 0, 4, 0},
		{1, []core.Keyed{perUser.On("k"), perUser.On("k")}, "user", true, 1, 2, 2, 0},
		{1, []core.Keyed{perUser.On("k").Cost(2), perUser.On("k")}, "user", false, 1, 2, 2, 0},
		{1, []core.Keyed{perUser.On("k").Cost(1), perUser.On("other"), perUser.On("k").Cost(1)}, "user", true, 2, 0, 0, 0},
		{math.MaxInt64, []core.Keyed{perUser.On("new"), perUser.On("new"), perUser.On("new").Cost(math.MaxInt64)}, "user", false, 1, 10, 0, 0},
	} {
		res, err := core.AllowAll(ctx, c.n, c.keys...)
		if err != nil || res.Allowed != c.allowed || res.LimiterName != c.by || res.Remaining != c.remaining {
			t.Errorf("case %d: got %+v, %v; want allowed %t by %q with %d left", i, res, err, c.allowed, c.by, c.remaining)
		}
		if got := len(slices.Collect(res.All())); got != c.limits {
			t.Errorf("case %d: the Result has %d limits, want %d", i, got, c.limits)
		}
		if users, orgs := left(t, perUser)[0], left(t, perOrg)[0]; users != c.users || orgs != c.orgs {
			t.Errorf("case %d: %d and %d units remain of user and org, want %d and %d", i, users, orgs, c.users, c.orgs)
		}
	}
	res, err := core.AllowAll(ctx, math.MaxInt64, perUser.On("own").Cost(10), perOrg.On("own").Cost(1)) // every key has its own cost, so n is not used
	if next, _ := perUser.Allow(ctx, "own"); err != nil || !res.Allowed || next.RetryAfter <= time.Second {
		t.Errorf("AllowAll: got %+v, %v; the next request: %+v; want it charged, not only held", res, err, next)
	}
}

// TestReserveAllEnds ends Reservations and Permits over several Limiters, and checks what each Limiter charges.
func TestReserveAllEnds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	acquire := func(n int64, keys ...core.Keyed) (*permits.Any, error) {
		return permits.OfPermit(n)(core.AcquireAll(ctx, n, keys...))
	}
	reserve := func(n int64, keys ...core.Keyed) (*permits.Any, error) {
		return permits.OfReservation(n)(core.ReserveAll(ctx, n, keys...))
	}
	settle := func(n int64) func(*permits.Any) error {
		return func(r *permits.Any) error { return r.Settle(ctx, n) }
	}
	cancel := func(r *permits.Any) error { return r.Cancel(ctx) }
	release := func(r *permits.Any) error { return r.Release(ctx) }
	for name, c := range map[string]struct {
		take          func(int64, ...core.Keyed) (*permits.Any, error)
		end           func(*permits.Any) error
		tokens, calls int64 // the units that each Limiter charges
		err           error // what end returns; if not nil, nothing has ended
	}{
		"Reserve, Settle of all":     {reserve, settle(3), 3, 1, nil},
		"Reserve, Cancel":            {reserve, cancel, 0, 0, nil},
		"Reserve, Settle of less":    {reserve, settle(2), 2, 1, nil},
		"Reserve, Settle of more":    {reserve, settle(7), 7, 1, nil},
		"Reserve, Settle of nothing": {reserve, settle(0), 0, 1, nil},
		"Reserve, Settle below 0":    {reserve, settle(-1), 3, 1, core.ErrInvalidCost},
		"Reserve, Settle of much":    {reserve, settle(1e9 + 1), 3, 1, core.ErrInvalidCost},
		"Acquire, Release":           {acquire, release, 3, 1, nil},
		"Acquire, Cancel":            {acquire, cancel, 0, 0, nil},
	} {
		tokens, calls, slots := core.MustNewMemory("tokens", tenADay), core.MustNewMemory("calls", tenADay), core.MustNewMemory("slots", core.InFlight(5))
		r, err := c.take(3, slots.On("k").Cost(1), tokens.On("k"), calls.On("k").Cost(1))
		if err != nil || !r.Allowed || left(t, tokens)[0] != 7 || left(t, calls)[0] != 9 || left(t, slots)[0] != 4 {
			t.Fatalf("%s: got %+v, %v; want 3 tokens, 1 call and 1 slot taken", name, r, err)
		}
		free := int64(5)
		if err := c.end(r); !errors.Is(err, c.err) {
			t.Errorf("%s: got error %v, want %v", name, err, c.err)
		} else if c.err != nil {
			free = 4
		}
		for range 2 {
			if a, b, s := left(t, tokens)[0], left(t, calls)[0], left(t, slots)[0]; a != 10-c.tokens || b != 10-c.calls || s != free {
				t.Errorf("%s: %d tokens, %d calls and %d slots remain, want %d, %d and %d", name, a, b, s, 10-c.tokens, 10-c.calls, free)
			}
			if c.err == nil {
				_ = errors.Join(cancel(r), release(r), r.Settle(ctx, 3)) // only the first end counts
			}
		}
	}
}

// TestAllRefuses checks that calls that cannot be decided together return an error, and charge nothing.
func TestAllRefuses(t *testing.T) {
	t.Parallel()
	lim := core.MustNewMemory("a", tenADay)
	queue, slots := core.MustNewMemory("q", core.LeakyBucket(core.PerMinute(10))), core.MustNewMemory("s", core.InFlight(5))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, decide := range map[string]func(context.Context) (core.Result, error){
		"there is no key": func(ctx context.Context) (core.Result, error) { return core.AllowAll(ctx, 1) },
		"has no Limiter": func(ctx context.Context) (core.Result, error) {
			return core.AllowAll(ctx, 1, lim.On("k"), core.Keyed{})
		},
		"key must not be empty": func(ctx context.Context) (core.Result, error) { return core.AllowAll(ctx, 1, lim.On("k"), lim.On("")) },
		"it is -1": func(ctx context.Context) (core.Result, error) {
			return core.AllowAll(ctx, -1, lim.On("k"), lim.On("k2"))
		},
		"it is -2": func(ctx context.Context) (core.Result, error) {
			return core.AllowAll(ctx, 1, lim.On("k"), lim.On("j").Cost(-2))
		},
		"cannot be given back": func(ctx context.Context) (core.Result, error) {
			return core.AllowAll(ctx, 1, lim.On("k"), queue.On("k"))
		},
		"use AcquireAll": func(ctx context.Context) (core.Result, error) {
			return core.AllowAll(ctx, 1, lim.On("k"), slots.On("k"))
		},
		context.Canceled.Error(): func(context.Context) (core.Result, error) { return core.AllowAll(ended, 1, lim.On("k"), lim.On("j")) },
	} {
		if res, err := decide(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want an error that contains %q", res, err, want)
		}
		if n := left(t, lim)[0]; n != 10 {
			t.Errorf("%s: %d units remain, want 10", want, n)
		}
	}
}

// leaving is a client that calls a function instead of Redis.
type leaving func(ctx context.Context, cmd redis.Cmder) error

func (l leaving) Process(ctx context.Context, cmd redis.Cmder) error { return l(ctx, cmd) }

// TestAllThatLeave checks decisions that end in the middle, because the caller's context is canceled, or because a hook
// panics or ends its goroutine: nothing stays charged or held.
func TestAllThatLeave(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(cancel context.CancelFunc){
		"left":     func(cancel context.CancelFunc) { cancel() },
		"panicked": func(context.CancelFunc) { panic("a hook") },
		"exited":   func(context.CancelFunc) { runtime.Goexit() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.Once
		a := core.MustNewMemory("a", tenADay)
		z := core.MustNew(leaving(func(_ context.Context, cmd redis.Cmder) error {
			first.Do(func() { // later calls come from background goroutines
				if a := left(t, a)[0]; a != 7 {
					t.Errorf("%s: %d units remain during the decision, want 7", name, a)
				}
				then(cancel)
			})
			cmd.SetErr(errors.New("away"))
			return cmd.Err()
		}), "z", core.FixedWindow(core.PerDay(50)), core.FailOpen())
		want := map[string]string{"left": context.Canceled.Error(), "panicked": "a hook of the client panicked", "exited": "ended its goroutine"}[name]
		if res, err := core.AllowAll(ctx, 3, z.On("k"), a.On("k")); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s: got %+v, %v; want an error that contains %q", name, res, err, want)
		}
		if a := left(t, a)[0]; a != 10 {
			t.Errorf("%s: %d units remain afterwards, want 10", name, a)
		}
		cancel()
	}
}

// TestAllInOrder checks that Limiters decide in one order, the smallest capacity first, whatever the order of the
// arguments: two calls with the same keys then never wait for each other. The Results come in the order of the arguments.
// A caller that leaves after the last Limiter has admitted is charged nowhere.
func TestAllInOrder(t *testing.T) {
	t.Parallel()
	var decided []string
	ctx, leave := context.WithCancel(t.Context())
	observe := core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision {
			decided = append(decided, e.Limiter)
		}
		if len(decided) == 12 {
			leave()
		}
	})
	observed := func(name string, capacity int64) *core.Limiter {
		return core.MustNewMemory(name, core.FixedWindow(core.PerDay(100)), core.FixedWindow(core.PerHour(capacity)), observe)
	}
	a, b, z := observed("a", 10), observed("b", 10), observed("z", 9)
	for _, c := range []struct {
		keys []core.Keyed
		want string // the Limiters of the Results, two of each key; "" without Results
	}{
		{[]core.Keyed{a.On("1"), b.On("k"), b.On("1"), z.On("1")}, "aabbbbzz"},
		{[]core.Keyed{z.On("1"), b.On("k"), a.On("1"), b.On("1")}, "zzbbaabb"},
		{[]core.Keyed{b.On("1"), b.On("k"), z.On("1"), a.On("1")}, ""},
	} {
		res, err := core.AllowAll(ctx, 1, c.keys...)
		if errors.Is(err, context.Canceled) != (len(decided) == 12) {
			t.Errorf("after %d decisions: got error %v, want context.Canceled only after 12", len(decided), err)
		}
		var names []string
		for each := range res.All() {
			names = append(names, each.LimiterName)
		}
		if got := strings.Join(names, ""); got != c.want {
			t.Errorf("the Results are of the Limiters %q, want %q as in the arguments", got, c.want)
		}
	}
	if got := strings.Join(decided, ""); got != "zabbzabbzabb" {
		t.Errorf("the Limiters decided in the order %s, want zabbzabbzabb", got)
	}
	for _, key := range []string{"1", "k"} {
		if res, err := b.Peek(t.Context(), key); err != nil || res.Remaining != 8 {
			t.Errorf("key %s: got %+v, %v; want 8 left", key, res, err)
		}
	}
}

// TestAllIsObserved checks which events observers receive for one decision on several keys, one of which has no limit: an
// event for each key if all admit, and otherwise only one for the key that was denied. A key without a limit is decided
// first, so that its ban charges nothing to the others.
func TestAllIsObserved(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, decide := range map[string]func(keys ...core.Keyed) (core.Result, error){
		"AllowAll": func(keys ...core.Keyed) (core.Result, error) { return core.AllowAll(ctx, 2, keys...) },
		"AcquireAll": func(keys ...core.Keyed) (core.Result, error) {
			p, err := core.AcquireAll(ctx, 2, keys...)
			return p.Decided(), errors.Join(err, p.Release(ctx))
		},
		"ReserveAll": func(keys ...core.Keyed) (core.Result, error) {
			r, err := core.ReserveAll(ctx, 2, keys...)
			return r.Decided(), errors.Join(err, r.Settle(ctx, 2))
		},
	} {
		var observed []string
		observe := core.Observe(func(_ context.Context, e core.Event) {
			observed = append(observed, fmt.Sprint(e.Kind, " ", e.Result.LimiterName, " ", e.Result.Allowed, " ", e.Cost))
		})
		lim := core.MustNewMemory("user", core.FixedWindow(core.PerDay(9)), core.Ban(), observe)
		free, org := derive(t, lim, core.Unlimited()), core.MustNewMemory("org", core.FixedWindow(core.PerDay(3)), observe)
		if err := lim.Block(ctx, "banned", time.Hour); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			keys []core.Keyed
			want []string
		}{
			{[]core.Keyed{org.On("banned"), free.On("banned")}, []string{"decision user false 2"}},
			{[]core.Keyed{free.On("k"), org.On("o")}, []string{"decision org true 2", "decision user true 2"}},
			{[]core.Keyed{free.On("k"), org.On("o")}, []string{"decision org false 2"}},
			{[]core.Keyed{free.On("k").Cost(0), org.On("o")}, []string{"decision org false 2"}},
			{[]core.Keyed{lim.On("k").Cost(0), org.On("o")}, []string{"decision org false 2"}},
			{[]core.Keyed{free.On("k"), free.On("l")}, []string{"decision user true 2", "decision user true 2"}},
		} {
			observed = nil
			res, err := decide(c.keys...)
			if slices.Sort(observed); err != nil || !slices.Equal(observed, c.want) {
				t.Errorf("%s, case %d: observed %q, want %q; the Result is %+v, %v", name, i, observed, c.want, res, err)
			}
		}
	}
}

// TestAllObservesDenialOnce is about a denial after which a call about several keys pauses and decides once more: observers get one event.
func TestAllObservesDenialOnce(t *testing.T) {
	t.Parallel()
	var denied []core.Result
	lim := core.MustNewMemory("user", core.FixedWindow(core.PerSecond(1), core.Aligned()), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventDecision && !e.Result.Allowed {
			denied = append(denied, e.Result)
		}
	}))
	org := core.MustNewMemory("org", core.FixedWindow(core.PerDay(100)))
	for range 50 { // at the end of a second, a call is admitted
		denied = nil
		res, err := core.AllowAll(t.Context(), 1, lim.On("k"), org.On("o"))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(denied); n > 1 || (n == 1) == res.Allowed {
			t.Errorf("Allowed is %t, and %d denials were observed, want %t to be one", res.Allowed, n, !res.Allowed)
		}
	}
}
