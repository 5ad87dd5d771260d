package outage

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
)

const (
	worldsAtOnce = 6                       // they mostly wait
	faultLasts   = 1500 * time.Millisecond // longer than the cooldown, so that a probe falls into it
	healthyCalls = 3                       // before the fault, and after it
)

// Every fault in every mode, with the client as go-redis makes it and with one that heeds contexts.
func TestFaults(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Run("all", func(t *testing.T) {
		turn := make(chan struct{}, worldsAtOnce)
		var running sync.WaitGroup
		for _, f := range append(faults(), killed()) {
			for _, heeds := range []bool{false, true} {
				running.Go(func() { // not t.Parallel, which knows no more at once than there are cores
					turn <- struct{}{}
					defer func() { <-turn }()
					name := f.name
					if heeds {
						name += ", ContextTimeoutEnabled"
					}
					t.Run(name, func(t *testing.T) { outage(t, f, heeds) })
				})
			}
		}
		running.Wait()
	})
	settled(t, base)
}

// trial is one mode in the world of a fault.
type trial struct {
	mode

	limiter *core.Limiter
	watch   *watcher
	name    string
	began   time.Time
}

// outage sends the four modes through one fault of one server.
func outage(t *testing.T, f fault, heeds bool) {
	s := f.setup
	s.options = func(o *redis.Options) {
		o.ContextTimeoutEnabled = heeds
		if f.setup.options != nil {
			f.setup.options(o)
		}
	}
	w := newWorld(t, s)
	var trials []*trial
	for i, m := range modes() {
		tr := &trial{mode: m, name: fmt.Sprint("mode", i)}
		tr.limiter, tr.watch = limiter(w.rdb, tr.name, append(m.options, core.Timeout(timeout))...)
		trials = append(trials, tr)
	}
	each := func(part func(*testing.T, *trial)) {
		var running sync.WaitGroup
		for _, tr := range trials {
			running.Go(func() { t.Run(tr.mode.name, func(t *testing.T) { part(t, tr) }) })
		}
		running.Wait()
	}
	each(healthy)
	scripts := w.proxy.Count("EVALSHA") + w.proxy.Count("EVAL")
	f.on(t, w)
	each(during)
	each(func(t *testing.T, tr *trial) { cancelled(t, tr.limiter) })
	f.off(t, w)
	each(func(t *testing.T, tr *trial) { back(t, tr.limiter, "k") })
	each(func(t *testing.T, tr *trial) { after(t, tr, f, w) })
	if lost, outages := w.proxy.Count("EVALSHA")+w.proxy.Count("EVAL")-scripts, len(trials)*healthyCalls; f.name == "reply dropped" {
		for _, tr := range trials {
			outages += tr.watch.count(core.EventOutage) + 1 // and the peek that found Redis back
		}
		if lost > int64(outages) {
			t.Errorf("%d scripts sent, want at most one for each of %d calls", lost, outages)
		}
	}
	if expiring(t, w.admin) == 0 {
		t.Error("no keys")
	}
}

// healthy uses the limit a little, and loads the script.
func healthy(t *testing.T, tr *trial) {
	for range healthyCalls {
		if res, err := tr.limiter.Allow(t.Context(), "k"); err != nil || !res.Allowed || res.Source != core.SourceRedis {
			t.Errorf("before the fault: %+v, %v", res, err)
		}
	}
}

// during calls one after the other, for longer than a cooldown.
func during(t *testing.T, tr *trial) {
	tr.began = time.Now()
	var admitted int64
	for calls := 0; time.Since(tr.began) < faultLasts || calls <= limit; calls++ {
		timed(t, timeout, func() {
			res, err := tr.limiter.Allow(t.Context(), "k")
			if tr.during(t, res, err) {
				admitted++
			}
		})
		time.Sleep(10 * time.Millisecond)
	}
	if tr.share > 0 && admitted != limit/tr.share {
		t.Errorf("admitted %d by itself, want %d", admitted, limit/tr.share)
	}
}

func after(t *testing.T, tr *trial, f fault, w *world) {
	// An open breaker lets one call through in each cooldown. Until it opens it takes one timeout, or three failures.
	calls := 1
	if !f.silent {
		calls = 3
	}
	if tr.watch.before < 1 || tr.watch.before > calls {
		t.Errorf("%d calls failed before Redis was left alone, want 1 to %d: %v", tr.watch.before, calls, tr.watch.causes)
	}
	calls += int(time.Since(tr.began) / time.Second)
	outages := tr.watch.count(core.EventOutage)
	if outages > calls {
		t.Errorf("%d calls failed in %v, want 1 to %d: %v", outages, time.Since(tr.began), calls, tr.watch.causes)
	}
	healthy(t, tr)
	tr.watch.told(t, 1)
	charged, least := tr.usedOf(t, w), int64(2*healthyCalls)
	if f.name == "killed" {
		least = healthyCalls // it has forgotten the others
	}
	most := least
	if f.mayRun {
		most += int64(outages)
	}
	if charged < least || charged > most {
		t.Errorf("%d charged, want %d to %d", charged, least, most)
	}
	for _, cause := range tr.watch.causes {
		if cause == nil || strings.Contains(cause.Error(), "left alone") {
			t.Errorf("an outage was told with the cause %v", cause)
		}
	}
}

func (tr *trial) usedOf(t *testing.T, w *world) int64 { return w.used(t, tr.name, "k") }
