package outage

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// slack is what a decision may take beyond its timeout. It tells a hang from a busy machine, nothing finer: how long a
// decision takes is the benchmark's to say.
const slack = 5 * time.Second

// watcher counts what a Limiter tells the world: its log lines and its events.
type watcher struct {
	slog.Handler // never called: a nil one satisfies the interface

	mu     sync.Mutex
	lines  map[slog.Level]int
	events map[core.EventKind]int
	states []string
	causes []error
	before int // how many calls had failed when the breaker opened for the first time
}

func newWatcher() *watcher {
	return &watcher{lines: map[slog.Level]int{}, events: map[core.EventKind]int{}}
}

func (w *watcher) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (w *watcher) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines[r.Level]++
	return nil
}

func (w *watcher) observe(_ context.Context, e core.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.Kind]++
	switch e.Kind { //nolint:exhaustive // the others are only counted
	case core.EventBreaker:
		w.states = append(w.states, e.Detail)
		if len(w.states) == 1 {
			w.before = w.events[core.EventOutage]
		}
	case core.EventOutage:
		w.causes = append(w.causes, e.Err)
	}
}

// options are what a Limiter needs to be watched.
func (w *watcher) options() []core.Option {
	return []core.Option{core.Observe(w.observe), core.Logger(slog.New(w))}
}

func (w *watcher) count(k core.EventKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[k]
}

// told checks that n outages were told: one line and one event when Redis went, one of each when it came back.
func (w *watcher) told(t *testing.T, n int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lines[slog.LevelWarn] != n || w.lines[slog.LevelInfo] != n || len(w.lines) > 2 {
		t.Errorf("log lines by level: %v, want %d of WARN and of INFO; outages: %v", w.lines, n, w.causes)
	}
	if on, off := w.events[core.EventFallbackOn], w.events[core.EventFallbackOff]; on != n || off != n {
		t.Errorf("the fallback went on %d times and off %d times, want %d; outages: %v", on, off, n, w.causes)
	}
	// Half-open between them: that is TestBreakerTellsEveryState's.
	states := slices.DeleteFunc(slices.Clone(w.states), func(s string) bool { return s == "half-open" })
	if n == 0 && len(states) > 0 || n > 0 && (len(states) < 2 || states[0] != "open" || states[len(states)-1] != "closed") {
		t.Errorf("states of the breaker: %v", w.states)
	}
}

// a mode is an outage policy, and what it may admit of a limit while Redis is away.
type mode struct {
	name    string
	options []core.Option
	share   int64 // the part of the limit, for FailLocal
}

func modes() []mode {
	return []mode{
		{"FailLocal", nil, 1}, // the default
		{"FailLocal of 2 replicas", []core.Option{core.FailLocal(), core.Processes(2)}, 2},
		{"FailOpen", []core.Option{core.FailOpen()}, 0},
		{"FailClosed", []core.Option{core.FailClosed()}, 0},
	}
}

// inEachMode runs all modes at once, each a subtest: not t.Parallel, which knows no more at once than there are cores,
// while these mostly wait.
func inEachMode(t *testing.T, f func(*testing.T, mode)) {
	t.Helper()
	var running sync.WaitGroup
	for _, m := range modes() {
		running.Go(func() { t.Run(m.name, func(t *testing.T) { f(t, m) }) })
	}
	running.Wait()
}

// during checks one decision of an outage, and reports whether it admits.
func (m mode) during(t *testing.T, res core.Result, err error) bool {
	t.Helper()
	switch {
	case m.name == "FailClosed":
		if !errors.Is(err, core.ErrUnavailable) || res.Allowed {
			t.Errorf("during the outage: %+v, %v; want ErrUnavailable", res, err)
		}
	case m.name == "FailOpen":
		if err != nil || !res.Allowed || res.Source != core.SourceNone {
			t.Errorf("during the outage: %+v, %v; want it admitted by nobody", res, err)
		}
	case err != nil || res.Source != core.SourceFallback:
		t.Errorf("during the outage: %+v, %v; want a decision of the fallback", res, err)
	}
	return res.Allowed && err == nil
}

// timed calls f and fails the test if that is stuck.
func timed(t *testing.T, timeout time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > timeout+slack {
		t.Errorf("a call took %v with a timeout of %v", took, timeout)
	}
}

// eventually waits for something that happens by itself.
func eventually(tb testing.TB, what string, limit time.Duration, f func() bool) bool {
	tb.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Errorf("not within %v: %s", limit, what)
			return false
		}
	}
	return true
}

// settled checks that all goroutines that came after base was counted have ended.
func settled(t *testing.T, base int) {
	t.Helper()
	if !eventually(t, "all goroutines ended", 10*time.Second, func() bool { return runtime.NumGoroutine() <= base+2 }) {
		stacks := make([]byte, 1<<20)
		t.Logf("%d goroutines, %d before:\n%.20000s", runtime.NumGoroutine(), base, stacks[:runtime.Stack(stacks, true)])
	}
}
