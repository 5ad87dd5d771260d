package limittest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/permits"
	"github.com/redislimit/redislimit/keyfunc"
	"github.com/redislimit/redislimit/limittest"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

// y2k is the time of all decisions.
var y2k = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestAllow makes more calls than the limit allows, and checks that all are admitted with the same Result.
func TestAllow(t *testing.T) {
	t.Parallel()
	lim := limittest.Allow(core.FixedWindow(core.PerMinute(100)))
	for range 300 {
		res, err := lim.AllowN(t.Context(), "a", 3)
		want := core.Result{
			Allowed: true, Limit: 100, Remaining: 97, ResetAfter: time.Minute, Window: time.Minute, At: res.At,
			LimiterName: "limittest", LimitName: "fixed-1m", Source: core.SourceMemory,
		}
		if err != nil || res != want || !res.At.Equal(y2k) {
			t.Fatalf("got %+v, %v; want %+v at %v", res, err, want, y2k)
		}
	}
	if res, err := lim.Peek(t.Context(), "a"); err != nil || !res.Allowed || res.Remaining != 100 {
		t.Errorf("Peek: got %+v, %v; want 100 left", res, err)
	}
	if res, err := lim.AllowN(t.Context(), "a", 101); err != nil || res.Allowed || res.RetryAfter != core.Never {
		t.Errorf("a cost above the capacity: got %+v, %v; want a denial forever", res, err)
	}
	if res, err := limittest.Allow().AllowN(t.Context(), "a", 1e9); err != nil || !res.Allowed || res.Limit != 1e9 {
		t.Errorf("without a limit: got %+v, %v; want it admitted by a limit of 1e9", res, err)
	}
}

// TestDeny checks denials by every algorithm, alone and beside another limit.
func TestDeny(t *testing.T) {
	t.Parallel()
	for _, v := range limits.All() {
		for _, opts := range [][]core.Option{
			{v.Limit(core.PerMinute(10))},
			{v.Limit(core.PerMinute(10)), core.TokenBucket(core.PerDay(5), core.LimitName("other"))},
		} {
			lim := limittest.Deny(30*time.Second+time.Nanosecond, opts...)
			const rounded time.Duration = 30*time.Second + time.Microsecond
			var r *permits.Any
			for _, decide := range []func() (core.Result, error){
				func() (core.Result, error) { return lim.Peek(t.Context(), "a") },
				func() (res core.Result, err error) {
					r, err = permits.Acquire(lim, t.Context(), "a", 1)
					return r.Result, err
				},
				func() (res core.Result, err error) {
					r, err = permits.Reserve(lim, t.Context(), "a", 2)
					return r.Result, err
				},
			} {
				res, err := decide()
				if err != nil || len(slices.Collect(res.All())) != len(opts) {
					t.Fatalf("%s: got %+v, %v; want a Result with %d limits", v.Name, res, err, len(opts))
				}
				for res := range res.All() {
					resetAfter := rounded
					if res.Window == 0 {
						resetAfter = 0 // not known for slots
					}
					if res.Allowed || res.Remaining != 0 || res.RetryAfter != rounded || res.ResetAfter != resetAfter || res.Delay != 0 || !res.At.Equal(y2k) {
						t.Errorf("%s: got %+v, want a denial with RetryAfter %v and ResetAfter %v", v.Name, res, rounded, resetAfter)
					}
				}
				if res.Allowed || res.RetryAfter != rounded || r.Settle(t.Context(), 0) != nil || r.Cancel(t.Context()) != nil {
					t.Errorf("%s: got %+v, want a denial with RetryAfter %v, whose Settle and Cancel return no error", v.Name, res, rounded)
				}
			}
			if r, err := lim.Acquire(t.Context(), "a", 0); err != nil || !r.Allowed || r.Remaining != 0 {
				t.Errorf("%s: a cost of 0: got %+v, %v; want it admitted with 0 left", v.Name, r, err)
			}
			if r, err := lim.Acquire(t.Context(), "a", 1e9); err != nil || r.Allowed || r.RetryAfter != core.Never {
				t.Errorf("%s: a cost above the capacity: got %+v, %v; want a denial forever", v.Name, r, err)
			}
			if n := len(limittest.Calls(lim)); n != 5 {
				t.Errorf("%s: %d calls are recorded, want 5: the end of a denied Reservation is no call", v.Name, n)
			}
			if err := lim.Reset(t.Context(), "a"); err != nil {
				t.Errorf("%s: Reset: got error %v, want none", v.Name, err)
			}
		}
	}
}

// TestUnavailable calls every method that would call Redis, with a context that is still valid and one that has ended.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	lim := limittest.Unavailable()
	defer func() { _ = lim.Close() }()
	for name, call := range map[string]func(context.Context) error{
		"Allow":   func(ctx context.Context) error { _, err := lim.Allow(ctx, "a"); return err },
		"AllowN":  func(ctx context.Context) error { _, err := lim.AllowN(ctx, "a", 0); return err },
		"Peek":    func(ctx context.Context) error { _, err := lim.Peek(ctx, "a"); return err },
		"Acquire": func(ctx context.Context) error { _, err := lim.Acquire(ctx, "a", 1); return err },
		"Reserve": func(ctx context.Context) error { _, err := lim.Reserve(ctx, "a", 1); return err },
		"Wait":    func(ctx context.Context) error { _, err := lim.Wait(ctx, "a"); return err },
		"Reset":   func(ctx context.Context) error { return lim.Reset(ctx, "a") },
	} {
		if err := call(t.Context()); !errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "limittest") {
			t.Errorf("%s: got error %v, want ErrUnavailable that names limittest", name, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(ended); !errors.Is(err, context.Canceled) || errors.Is(err, core.ErrUnavailable) {
			t.Errorf("%s with a canceled context: got error %v, want Canceled", name, err)
		}
	}
}

// TestCalls makes every kind of call that is recorded, and calls that have no effect and are not recorded.
func TestCalls(t *testing.T) {
	t.Parallel()
	lim, ctx := limittest.Allow(), t.Context()
	allowed := must(t)(permits.Acquire(lim, ctx, "acquire", 1))
	kept := must(t)(permits.OfPermit(2)(lim.AcquireWait(ctx, "wait", 2)))
	uncharged := must(t)(permits.Acquire(lim, ctx, "uncharged", 0))
	reserved := must(t)(permits.Reserve(lim, ctx, "reserve", 5))
	free := must(t)(permits.OfReservation(0)(lim.ReserveWait(ctx, "free", 0)))
	reserved.Keep()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for range 2 {
		for _, err := range []error{
			allowed.Cancel(ended), kept.Release(ctx), reserved.Settle(ctx, 9), free.Cancel(ctx), uncharged.Cancel(ctx), (*core.Permit)(nil).Cancel(ctx), (*core.Reservation)(nil).Cancel(ctx),
		} {
			if err != nil {
				t.Errorf("an end of a Reservation or a Permit: got error %v, want none", err)
			}
		}
	}
	for _, err := range []error{
		errOf(lim.Allow(ctx, "allow")), errOf(lim.AllowN(ctx, "allow", 0)), errOf(lim.Peek(ctx, "peek")), errOf(lim.WaitN(ctx, "wait", 2)),
		lim.Reset(ctx, "reset"), lim.Close(),
	} {
		if err != nil {
			t.Errorf("a decision, Reset or Close: got error %v, want none", err)
		}
	}
	last := must(t)(permits.Reserve(lim, ctx, "last", 3))
	for _, mistake := range []error{ // none is recorded
		errOf(lim.Allow(ctx, "")), errOf(lim.AllowN(ctx, "a", -1)), last.Settle(ctx, -1), last.Settle(ctx, 1e9+1),
	} {
		if mistake == nil {
			t.Error("a mistake returned no error")
		}
	}
	want := []limittest.Call{
		{"Acquire", "acquire", 1}, {"Acquire", "wait", 2}, {"Acquire", "uncharged", 0}, {"Reserve", "reserve", 5}, {"Reserve", "free", 0},
		{"Settle", "acquire", 0}, {"Settle", "reserve", 9},
		{"AllowN", "allow", 1}, {"AllowN", "allow", 0}, {"Peek", "peek", 1}, {"AllowN", "wait", 2}, {"Reset", "reset", 0}, {"Reserve", "last", 3},
	}
	if got := limittest.Calls(lim); !slices.Equal(got, want) {
		t.Errorf("got the calls\n%v\nwant\n%v", got, want)
	}
}

// must returns a function that returns the Reservation or Permit of a call, and fails the test if the call failed.
func must(t *testing.T) func(*permits.Any, error) *permits.Any {
	return func(r *permits.Any, err error) *permits.Any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func errOf(_ core.Result, err error) error { return err }

// TestMiddleware checks the recorded calls of middlewares with options that act at the end of the response.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	const key = "ip:192.0.2.1"
	for name, c := range map[string]struct {
		lim    *core.Limiter
		option guard.Option
		want   []limittest.Call
	}{
		"counts":    {limittest.Allow(), guard.CountIf(func(status int) bool { return status == 401 }), []limittest.Call{{"Reserve", key, 1}, {"Settle", key, 1}}},
		"does not":  {limittest.Allow(), guard.CountIf(func(status int) bool { return status == 200 }), []limittest.Call{{"Reserve", key, 1}, {"Settle", key, 0}}},
		"CostAfter": {limittest.Allow(), guard.CostAfter(), []limittest.Call{{"Reserve", key, 1}, {"Settle", key, 7312}}},
		"InFlight":  {limittest.Allow(core.InFlight(2)), guard.ResetInSeconds(), []limittest.Call{{"Acquire", key, 1}, {"Settle", key, 1}}},
	} {
		h := httplimit.Middleware(c.lim, keyfunc.IP(), c.option)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			httplimit.SetCost(r.Context(), 7312)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if got := limittest.Calls(c.lim); !slices.Equal(got, c.want) {
			t.Errorf("%s: got the calls %v, want %v", name, got, c.want)
		}
	}
}

// TestSlots takes slots and gives them back. The context of a Permit must not end.
func TestSlots(t *testing.T) {
	t.Parallel()
	var held []int64
	observe := core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventSlots {
			held = append(held, e.Cost)
		}
	})
	lim := limittest.Allow(core.InFlight(5), core.FixedWindow(core.PerMinute(10)), observe)
	var taken []*permits.Any
	for range 4 { // more slots than there are: for each call, all slots are free
		taken = append(taken, must(t)(permits.Acquire(lim, t.Context(), "a", 2)))
	}
	taken = append(taken, must(t)(permits.Reserve(lim, t.Context(), "b", 1)))
	ctx, cancel := taken[0].Context(t.Context())
	defer cancel()
	for range 2 {
		for _, r := range taken {
			if err := r.Release(t.Context()); err != nil || !r.Allowed {
				t.Errorf("Release of %+v: got error %v, want none, of an admitted Permit", r.Result, err)
			}
		}
	}
	if want := []int64{2, 2, 2, 2, 1, -2, -2, -2, -2, -1}; !slices.Equal(held, want) || ctx.Err() != nil {
		t.Errorf("the slots in events are %v, want %v; the context's error is %v, want none", held, want, ctx.Err())
	}
}

// TestWith checks derived limiters: they must decide like the limiter from which they are derived, with the limits that were given to
// With.
func TestWith(t *testing.T) {
	t.Parallel()
	for _, lim := range []*core.Limiter{limittest.Allow(), limittest.Deny(time.Second), limittest.Unavailable()} {
		derived, err := lim.With(core.TokenBucket(core.PerMinute(250)), core.InFlight(3))
		if err != nil {
			t.Fatal(err)
		}
		want, wantErr := lim.Allow(t.Context(), "a")
		res, err := derived.Peek(t.Context(), "a")
		if res.Allowed != want.Allowed || res.RetryAfter != want.RetryAfter || errors.Is(err, core.ErrUnavailable) != errors.Is(wantErr, core.ErrUnavailable) {
			t.Errorf("got %+v, %v; want the same decision as %+v, %v", res, err, want, wantErr)
		}
		if err == nil && slices.Collect(res.All())[0].Limit != 250 {
			t.Errorf("got %+v, want the limit 250", res)
		}
		calls := limittest.Calls(lim)
		if len(calls) < 2 || !slices.Equal(limittest.Calls(derived), calls) {
			t.Errorf("the derived limiter has the calls %v, want %v as the original one", limittest.Calls(derived), calls)
		}
		if _, err := lim.With(core.TokenBucket(core.PerMinute(-1))); err == nil {
			t.Error("With accepted a limit of -1")
		}
	}
}

// TestUnlimited checks derived limiters without a limit, and with a limit of 0: Deny and Unavailable apply to them, too, and each call is
// recorded.
func TestUnlimited(t *testing.T) {
	t.Parallel()
	for name, lim := range map[string]*core.Limiter{
		"Allow": limittest.Allow(core.Unlimited()), "Deny": limittest.Deny(time.Minute), "Unavailable": limittest.Unavailable(),
	} {
		free, err := lim.With(core.Unlimited())
		if err != nil {
			t.Fatal(err)
		}
		zero, err := lim.With(core.FixedWindow(core.PerDay(0)))
		if err != nil {
			t.Fatal(err)
		}
		for what, c := range map[string]struct {
			lim     *core.Limiter
			n       int64
			allowed bool
			retry   time.Duration // the RetryAfter of a denial
		}{
			"unlimited":             {free, 1e12, name == "Allow", time.Minute},
			"a limit of 0":          {zero, 1, false, core.Never},
			"a limit of 0, no cost": {zero, 0, true, 0},
		} {
			r, err := c.lim.Reserve(t.Context(), "k", c.n)
			if name == "Unavailable" {
				if !errors.Is(err, core.ErrUnavailable) {
					t.Errorf("%s, %s: got %+v, %v; want ErrUnavailable", name, what, r, err)
				}
				continue
			}
			res := r.Decided()
			if err != nil || res.Allowed != c.allowed || res.Unlimited() != (c.lim == free) || !c.allowed && res.RetryAfter != c.retry {
				t.Errorf("%s, %s: got %+v, %v; want allowed %t, and the RetryAfter %v of a denial", name, what, res, err, c.allowed, c.retry)
			}
			if err := r.Settle(t.Context(), 5); err != nil {
				t.Errorf("%s, %s: Settle: got error %v, want none", name, what, err)
			}
		}
		if calls := limittest.Calls(lim); len(calls) != 3 || !slices.Contains(calls, limittest.Call{Method: "Reserve", Key: "k", Cost: 1e12}) {
			t.Errorf("%s: got the calls %v, want three, one of them with the cost 1e12", name, calls)
		}
	}
}

// TestObserved checks that observers receive decisions, and no event for Peek, as with any limiter.
func TestObserved(t *testing.T) {
	t.Parallel()
	var seen []core.Event
	observe := core.Observe(func(_ context.Context, e core.Event) { seen = append(seen, e) })
	for _, lim := range []*core.Limiter{limittest.Allow(observe), limittest.Deny(time.Second, observe), limittest.Unavailable(observe)} {
		_, _ = lim.AllowN(t.Context(), "a", 2)
		_, _ = lim.Peek(t.Context(), "a")
	}
	if len(seen) != 3 || !seen[0].Result.Allowed || seen[1].Result.Allowed || !errors.Is(seen[2].Err, core.ErrUnavailable) || seen[0].Cost != 2 {
		t.Errorf("observed %+v, want an admission of cost 2, a denial and an error", seen)
	}
}

// TestNothingRuns checks that a limiter starts no goroutine, even if units are kept, and that only Wait waits. synctest.Test fails if a
// goroutine is left.
func TestNothingRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		allow := limittest.Allow()
		must(t)(permits.Reserve(allow, t.Context(), "a", 1)).Keep()
		if _, err := limittest.Deny(time.Hour).Allow(t.Context(), "a"); err != nil || time.Since(began) != 0 {
			t.Errorf("Allow: got error %v after %v, want none at once", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(150*time.Minute, cancel)
		deny := limittest.Deny(time.Hour)
		if _, err := deny.Wait(ctx, "a"); !errors.Is(err, context.Canceled) || len(limittest.Calls(deny)) != 3 {
			t.Errorf("Wait: got error %v and the calls %v, want Canceled and 3 calls", err, limittest.Calls(deny))
		}
		brief, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		now := time.Now()
		if _, err := deny.Wait(brief, "a"); !errors.Is(err, context.DeadlineExceeded) || !time.Now().Equal(now) {
			t.Errorf("Wait with a near deadline: got error %v after %v, want DeadlineExceeded at once", err, time.Since(now))
		}
	})
}

// TestConcurrent calls a limiter in many goroutines, for the race detector, and checks that every call is recorded.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	lim := limittest.Allow()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				if res, err := lim.Allow(t.Context(), "a"); err != nil || !res.Allowed {
					t.Errorf("got %+v, %v; want it admitted", res, err)
				}
				_ = limittest.Calls(lim)
			}
		})
	}
	all.Wait()
	if n := len(limittest.Calls(lim)); n != 800 {
		t.Errorf("%d calls are recorded, want 800", n)
	}
}

// TestMistakes checks that mistakes panic at once, with a message that says what is allowed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	memory := core.MustNewMemory("mine", core.TokenBucket(core.PerMinute(1)))
	for want, mistake := range map[string]func(){
		"Deny(0s): allowed is 1µs to 400 days": func() { limittest.Deny(0) },
		"Deny(-1s)":                            func() { limittest.Deny(-time.Second) },
		"allowed is 1µs":                       func() { limittest.Deny(core.Never) },
		"the count is 0":                       func() { limittest.Allow(core.TokenBucket(core.PerMinute(0))) },
		"option 1 is nil":                      func() { limittest.Unavailable(nil) },
		`Calls: the limiter "mine" is not of`:  func() { limittest.Calls(memory) },
	} {
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) || !strings.HasPrefix(got, "limittest: ") {
					t.Errorf("got the panic %q, want one that contains %q", got, want)
				}
			}()
			mistake()
		}()
	}
}
