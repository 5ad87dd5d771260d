package outage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	environmentsAtOnce = 8 // more than there are processors, as they mostly wait
	healthyCalls       = 3 // calls before the fault, and as many after it
	whileProbed        = 3 // calls that may wait for Redis while the first probe does
)

// faultLasts returns how long a fault lasts: for one timeout and two probes, with a pause between the probes.
func faultLasts(timeout time.Duration) time.Duration { return timeout + 1250*time.Millisecond }

// TestFaults runs every fault in every mode, with go-redis's defaults and with ContextTimeoutEnabled.
func TestFaults(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		turn := make(chan struct{}, environmentsAtOnce)
		var running sync.WaitGroup
		for _, f := range append(faults(), killed()) {
			for _, contextTimeout := range []bool{false, true} {
				running.Go(func() { // t.Parallel would run only as many at a time as there are processors
					turn <- struct{}{}
					defer func() { <-turn }()
					name := f.name
					if contextTimeout {
						name += ", ContextTimeoutEnabled"
					}
					t.Run(name, func(t *testing.T) {
						if f.name == loading().name && redistest.MajorVersion(t) < 7 {
							t.Skip("before Redis 7 no setting makes the server load slowly")
						}
						check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) { outage(t, f, contextTimeout, timeout) })
					})
				})
			}
		}
		running.Wait()
	})
	check.NoGoroutineLeft(t, base)
}

// faultRun is one mode under a fault.
type faultRun struct {
	mode

	limiter *core.Limiter
	watch   *watcher
	name    string
	timeout time.Duration
	began   time.Time
}

// outage sends the four modes, each over a client of its own, through one fault of one server.
func outage(t *check.Round, f fault, contextTimeout bool, timeout time.Duration) {
	s := f.setup
	s.options = func(o *redis.Options) {
		o.ContextTimeoutEnabled = contextTimeout
		if f.setup.options != nil {
			f.setup.options(o)
		}
	}
	e := newEnv(t, s)
	e.timeout = timeout
	var runs []*faultRun
	for i, m := range modes() {
		run := &faultRun{mode: m, name: fmt.Sprint("mode", i), timeout: timeout}
		run.limiter, run.watch = limiter(e.client(t), run.name, append(m.options, core.Timeout(timeout))...)
		runs = append(runs, run)
	}
	each := func(part func(*check.Round, *faultRun)) {
		var running sync.WaitGroup
		for _, run := range runs {
			running.Go(func() { part(t.Part(run.mode.name), run) })
		}
		running.Wait()
	}
	each(healthy)
	if t.Failed() {
		return
	}
	f.on(t, e)
	each(during)
	each(wantCanceled)
	f.off(t, e)
	each(func(t *check.Round, run *faultRun) { awaitRedis(t, run.limiter, "k") })
	each(func(t *check.Round, run *faultRun) { after(t, run, f, e) })
	if expiring(t, e.admin) == 0 {
		t.Error("Redis has no keys after the fault, want some")
	}
}

// healthy uses a few units of the limit, and loads the script.
func healthy(t *check.Round, run *faultRun) {
	for range healthyCalls {
		if res, err := run.limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != core.SourceRedis {
			t.Errorf("while Redis is healthy: got %+v, %v; want it admitted by Redis", res, err)
		}
	}
}

// during makes calls one after the other until a probe has failed. No call is a probe, so none waits once the limiter knows
// that Redis is away.
func during(t *check.Round, run *faultRun) {
	run.began = time.Now()
	var admitted, slow int64
	for calls := 0; time.Since(run.began) < faultLasts(run.timeout) || calls <= limit; calls++ {
		timed(t, run.timeout, func() {
			opened, start := run.watch.count(core.EventFallbackOn) > 0, time.Now()
			res, err := run.limiter.Allow(t.Context(), "k")
			if run.during(t, res, err) {
				admitted++
			}
			if opened && time.Since(start) > run.timeout/2 {
				slow++
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	if slow > 0 {
		t.Errorf("%d calls waited for Redis after the limiter knew that it was away, want 0", slow)
	}
	if run.share > 0 && admitted != limit/run.share {
		t.Errorf("the fallback admitted %d calls, want %d", admitted, limit/run.share)
	}
}

// wantCanceled checks that a call whose context is canceled returns the context's error, whatever state Redis is in.
func wantCanceled(t *check.Round, run *faultRun) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := run.limiter.Allow(ctx, "left"); !errors.Is(err, context.Canceled) || res.Allowed {
		t.Errorf("a canceled call: got %+v, %v; want context.Canceled", res, err)
	}
}

// after checks, once Redis decides again, the reports of the fault and the units that were charged during it.
func after(t *check.Round, run *faultRun, f fault, e *env) {
	// The first call that fails opens the breaker, or makes the others wait until the state of the server
	// is known. After that, no request calls Redis.
	outages := run.watch.count(core.EventOutage)
	if outages < 1 || outages > 1+whileProbed || outages > run.watch.before+1 {
		t.Errorf("%d calls failed in %v, %d of them before the breaker opened; want 1, or a few in a busy process: %v",
			outages, time.Since(run.began), run.watch.before, run.watch.firstCauses())
	}
	healthy(t, run)
	run.watch.wantOutages(t, 1)
	charged, least := e.used(t, run.name, "k"), int64(2*healthyCalls)
	if f.name == "killed" {
		least = healthyCalls // the server has lost the earlier charges
	}
	most := least
	if f.mayRun {
		most += int64(outages)
	}
	if charged < least || charged > most {
		t.Errorf("%d units are charged, want %d to %d", charged, least, most)
	}
	for _, cause := range run.watch.firstCauses() {
		if cause == nil || strings.Contains(cause.Error(), "circuit breaker open") {
			t.Errorf("an outage was reported with the cause %v, want the error of a call to Redis", cause)
		}
	}
}
