package health_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/health"
)

// The Monitor of a fixture has these settings. A new connection may take 5 seconds.
const (
	timeout  = 500 * time.Millisecond
	poolSize = 2
	never    = time.Hour // longer than any test lasts
)

// A reply is how a scriptedServer answers one call.
type reply struct {
	outcome   health.Outcome
	after     time.Duration
	overstays bool // the call does not end when its context ends
}

// A scriptedServer gives the replies of its script to the calls of probes, one reply after the other.
// The last reply is repeated.
type scriptedServer struct {
	mu     sync.Mutex
	script []reply
	start  time.Time // the times in calls count from here
	calls  []string  // when each call began and how long it was allowed to take, as "100ms:5s"
	causes []error   // the lastError of each call
}

func (s *scriptedServer) follow(script ...reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Probe gives the next reply of the script.
func (s *scriptedServer) Probe(ctx context.Context, lastError error) (health.Outcome, error) {
	r := s.begin(ctx, lastError)
	if r.overstays {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-time.After(r.after):
		return r.outcome, errorOf(r.outcome)
	case <-ctx.Done():
		return health.TimedOut, ctx.Err()
	}
}

func (s *scriptedServer) begin(ctx context.Context, lastError error) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline, _ := ctx.Deadline()
	s.calls = append(s.calls, fmt.Sprintf("%v:%v", time.Since(s.start), time.Until(deadline)))
	s.causes = append(s.causes, lastError)
	r := s.script[0]
	if len(s.script) > 1 {
		s.script = s.script[1:]
	}
	return r
}

// Address returns a name.
func (*scriptedServer) Address(context.Context, error) string { return "server:1" }

var failures = map[health.Outcome]error{
	health.Rejected: errors.New("rejected"), health.Inconclusive: errors.New("inconclusive"),
	health.ConnectionLost: errors.New("connection lost"), health.TimedOut: errors.New("timed out"),
	health.Unavailable: errors.New("unavailable"),
}

// errorOf returns the error of a call with that Outcome, or nil.
func errorOf(o health.Outcome) error { return failures[o] }

// A recorder is a Listener that records the Changes of which it is notified.
type recorder struct {
	health.Listener

	changes []health.Change
}

func newRecorder() *recorder {
	r := &recorder{}
	r.Listener = func(_ context.Context, c health.Change) { r.changes = append(r.changes, c) }
	return r
}

var eventNames = map[health.Event]string{
	health.WentDown: "down", health.StillDown: "still down", health.CameBack: "back", health.TakenOver: "taken over",
}

// take returns the Changes since the previous take, such as "down logged, back".
func (r *recorder) take() string {
	var all []string
	for _, c := range r.changes {
		name := eventNames[c.Event]
		if c.Log {
			name += " logged"
		}
		all = append(all, name)
	}
	r.changes = nil
	return strings.Join(all, ", ")
}

// A fixture is a Monitor of a scripted server that has one listener. A test uses it inside a synctest
// bubble, so that time passes only while every goroutine waits.
type fixture struct {
	*testing.T

	*scriptedServer

	monitor       *health.Monitor
	listeners     *health.Listeners
	recorder      *recorder // the listener
	subscriptions []*health.Subscription
}

// run calls test with a fixture whose server has never been called and would not answer.
func run(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, scriptedServer: &scriptedServer{script: []reply{{after: never}}, start: time.Now()}}
		f.listeners, f.recorder = &health.Listeners{}, newRecorder()
		f.monitor = health.NewMonitor(health.Config{Timeout: timeout, PoolSize: poolSize, Prober: f, Listeners: f.listeners})
		f.subscribe(&f.recorder.Listener)
		defer func() {
			for _, s := range f.subscriptions {
				s.Close()
			}
			f.monitor.Refresh()   // the supervisor ends, because nobody is subscribed
			time.Sleep(2 * never) // all goroutines end
		}()
		test(f)
	})
}

// runNear is like run, but the server has answered a request fast, so that connecting takes no longer than
// the timeout.
func runNear(t *testing.T, test func(f *fixture)) {
	t.Helper()
	run(t, func(f *fixture) {
		f.monitor.Answered(time.Now(), true)
		test(f)
	})
}

// subscribe subscribes a listener until the test ends.
func (f *fixture) subscribe(listener *health.Listener) *health.Subscription {
	s := f.listeners.Subscribe(listener)
	f.subscriptions = append(f.subscriptions, s)
	return s
}

// fail records a request that fails at once, and waits until the supervisor has reacted.
func (f *fixture) fail(o health.Outcome) {
	f.monitor.Failed(o, time.Now(), timeout, errorOf(o))
	synctest.Wait()
}

// refresh refreshes the Monitor, and waits until the supervisor has reacted.
func (f *fixture) refresh() {
	f.monitor.Refresh()
	synctest.Wait()
}

// requests makes one request every 10 ms for the given time.
func (f *fixture) requests(lasts time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_ = f.await()
	}
	synctest.Wait()
}

// await makes a request that waits for the server. It returns how long the request waited and with which
// result, such as "100ms: false".
func (f *fixture) await() string {
	began := time.Now()
	up := f.monitor.Await(f.Context(), nil)
	return fmt.Sprintf("%v: %v", time.Since(began), up)
}

// restart counts time from now, and forgets the calls and Changes so far.
func (f *fixture) restart() {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.start, f.calls, f.causes, f.recorder.changes = time.Now(), nil, nil, nil
}

// wantState checks the present state.
func (f *fixture) wantState(want health.State) {
	f.Helper()
	synctest.Wait()
	if got := f.monitor.Snapshot().State; got != want {
		f.Errorf("the state is %d, want %d", got, want)
	}
	if up := f.monitor.Up(); up != (want == health.Up) {
		f.Errorf("Up is %v in state %d", up, want)
	}
}

// wantCalls checks the calls of probes since the last check, in the format of scriptedServer.calls.
func (f *fixture) wantCalls(want string) {
	f.Helper()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := strings.Join(f.calls, " "); got != want {
		f.Errorf("probes: %q, want %q", got, want)
	}
	f.calls, f.causes = nil, nil
}

// wantNotified checks which Changes a listener was notified of since the last check.
func (f *fixture) wantNotified(r *recorder, want string) {
	f.Helper()
	synctest.Wait()
	if got := r.take(); got != want {
		f.Errorf("notified: %q, want %q", got, want)
	}
}

// wantAwait checks how long a request waits for the server, and with which result.
func (f *fixture) wantAwait(want string) {
	f.Helper()
	if got := f.await(); got != want {
		f.Errorf("Await: %q, want %q", got, want)
	}
}
