package outage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// slack is how much longer than its Timeout a decision may take. It is long enough to distinguish a hang from a busy
// machine, and nothing finer: the benchmark measures how long a decision takes.
const slack = 5 * time.Second

// watcher counts the log lines and the events of a Limiter.
type watcher struct {
	slog.Handler // nil: it only makes a watcher a slog.Handler, and its methods are never called

	limiter *core.Limiter // kept here because a limiter that was garbage-collected notifies nobody of the end of an outage

	mu     sync.Mutex
	lines  map[slog.Level]int
	texts  []string
	events map[core.EventKind]int
	states []string
	causes []error // the errors of the first failed calls
	before int     // how many calls had failed when the breaker opened for the first time
}

func newWatcher() *watcher {
	return &watcher{lines: map[slog.Level]int{}, events: map[core.EventKind]int{}}
}

func (w *watcher) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (w *watcher) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %v", a)
		return true
	})
	w.texts = append(w.texts, line)
	if !strings.Contains(line, " for=") && !strings.Contains(line, "this process is overloaded") { // these lines report another cause, and no outage
		w.lines[r.Level]++
	}
	return nil
}

func (w *watcher) observe(_ context.Context, e core.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.Kind]++
	switch e.Kind { //nolint:exhaustive // other kinds are only counted
	case core.EventBreaker:
		w.states = append(w.states, e.Detail)
		if len(w.states) == 1 {
			w.before = w.events[core.EventOutage]
		}
	case core.EventFallbackOn:
		w.texts = append(w.texts, fmt.Sprint("on: ", e.Err))
	case core.EventOutage:
		if len(w.causes) < 5 { // there may be thousands
			w.causes = append(w.causes, e.Err)
		}
	}
}

// outages matches the states that a breaker may have had once Redis is back.
var outages = regexp.MustCompile(`^((^| )open closed)*$`)

// options returns the options that a Limiter needs in order to be watched.
func (w *watcher) options() []core.Option {
	return []core.Option{core.Observe(w.observe), core.Logger(slog.New(w))}
}

func (w *watcher) count(k core.EventKind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[k]
}

// firstCauses returns the errors of the first failed calls. A call that outlived its caller can still fail meanwhile.
func (w *watcher) firstCauses() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.causes)
}

// wantOutages checks that n outages were reported: for each, one event when Redis failed and one when it was back. Only the
// first outage is logged, with one line at its start and one at its end, because at most one is logged per minute.
func (w *watcher) wantOutages(tb testing.TB, n int) {
	tb.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if logged := min(n, 1); w.lines[slog.LevelWarn] != logged || w.lines[slog.LevelInfo] != logged || len(w.lines) > 2 {
		tb.Errorf("the log lines by level are %v, want %d of WARN and of INFO: %q; the failed calls: %v", w.lines, logged, w.texts, w.causes)
	}
	if on, off := w.events[core.EventFallbackOn], w.events[core.EventFallbackOff]; on != n || off != n {
		tb.Errorf("the fallback went on %d times and off %d times, want %d: %q; the failed calls: %v", on, off, n, w.texts, w.causes)
	}
	if states := strings.Join(w.states, " "); !outages.MatchString(states) {
		tb.Errorf("the states of the breaker were %q, want open and closed in turn, and closed at the end", states)
	}
}

// A mode is an outage policy, and how much of a limit it may admit while Redis is away.
type mode struct {
	name    string
	options []core.Option
	share   int64 // the process enforces 1/share of the limit; 0 if the mode is not FailLocal
}

// modes returns the outage policies.
func modes() []mode {
	return []mode{
		{"FailLocal", nil, 1}, // the default
		{"FailLocal of 2 processes", []core.Option{core.FailLocal(), core.Processes(2)}, 2},
		{"FailOpen", []core.Option{core.FailOpen()}, 0},
		{"FailClosed", []core.Option{core.FailClosed()}, 0},
	}
}

// inEachMode runs f in all modes at the same time, each in a subtest that runs in rounds. It does not use t.Parallel, which
// would run only as many modes at a time as there are processors, while these tests mostly wait.
func inEachMode(t *testing.T, f func(t *check.Round, m mode, timeout time.Duration)) {
	t.Helper()
	var running sync.WaitGroup
	for _, m := range modes() {
		running.Go(func() {
			t.Run(m.name, func(t *testing.T) {
				check.Rounds(t, timeouts, func(t *check.Round, timeout time.Duration) { f(t, m, timeout) })
			})
		})
	}
	running.Wait()
}

// during checks one decision during an outage, and reports whether it admits.
func (m mode) during(tb testing.TB, res core.Result, err error) bool {
	tb.Helper()
	switch {
	case m.name == "FailClosed":
		if !errors.Is(err, core.ErrUnavailable) || res.Allowed {
			tb.Errorf("during the outage: got %+v, %v; want ErrUnavailable", res, err)
		}
	case m.name == "FailOpen":
		if err != nil || !res.Allowed || res.Source != core.SourceNone {
			tb.Errorf("during the outage: got %+v, %v; want it admitted without a decision", res, err)
		}
	case err != nil || res.Source != core.SourceFallback:
		tb.Errorf("during the outage: got %+v, %v; want a decision by the fallback", res, err)
	}
	return res.Allowed && err == nil
}

// timed calls f and fails the test if f takes much longer than the timeout.
func timed(tb testing.TB, timeout time.Duration, f func()) {
	tb.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > timeout+slack {
		tb.Errorf("a call took %v, want at most the timeout of %v and some slack", took, timeout)
	}
}

// logged returns how many lines were logged, by level.
func (w *watcher) logged() map[slog.Level]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.lines)
}
