package health_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/health"
)

// TestOutages checks that every listener is notified once of the beginning and once of the end of each
// outage, that one of them logs it, and that requests wait until all have been notified of the end.
func TestOutages(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		slow := newRecorder()
		record := slow.Listener
		slow.Listener = func(ctx context.Context, c health.Change) {
			if c.Event != health.WentDown && f.monitor.Up() {
				t.Error("requests are sent before the listeners know")
			}
			time.Sleep(10 * time.Second)
			record(ctx, c)
		}
		f.subscribe(new(health.Listener)) // is not notified
		f.subscribe(&slow.Listener)
		f.subscribe(&slow.Listener) // counts once
		for _, end := range []struct {
			outcome health.Outcome
			event   string
		}{{health.Answered, "back"}, {health.Replaced, "taken over"}, {health.Answered, "back"}} {
			f.follow(reply{after: never})
			f.fail(health.Unavailable)
			time.Sleep(15 * time.Second)
			f.wantNotified(f.recorder, "down logged")
			f.wantNotified(slow, "down")
			f.follow(reply{outcome: end.outcome})
			time.Sleep(6 * time.Second) // until the server has been probed
			if got := f.await(); !strings.HasSuffix(got, "true") {
				t.Errorf("Await: %s", got)
			}
			f.wantNotified(f.recorder, end.event+" logged")
			f.wantNotified(slow, end.event)
			time.Sleep(2 * time.Minute) // so that the next outage is logged again
		}
	})
}

// TestListenersComeAndLeave checks which Changes a listener is notified of that subscribes or
// unsubscribes during an outage, and that nothing is watched without a listener.
func TestListenersComeAndLeave(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.fail(health.Unavailable)
		f.wantNotified(f.recorder, "down logged")

		late := newRecorder()
		subscription := f.subscribe(&late.Listener)
		f.refresh()
		f.wantNotified(late, "down")
		f.wantNotified(f.recorder, "")

		if !subscription.Close() || subscription.Close() {
			t.Error("Close does not report whether it was the first")
		}
		f.refresh()
		f.wantNotified(late, "back")
		f.wantNotified(f.recorder, "")
		f.wantState(health.Down)

		f.subscriptions[0].Close()
		f.refresh()
		f.wantNotified(f.recorder, "back")
		f.wantState(health.Up)
		f.restart()
		f.fail(health.Unavailable)
		f.wantState(health.Up)
		time.Sleep(time.Minute)
		f.wantCalls("")

		f.subscribe(&f.recorder.Listener)
		f.fail(health.Unavailable)
		f.wantState(health.Down)
		f.wantNotified(f.recorder, "down logged")
		f.wantNotified(late, "")
	})
}

// TestListenerExits checks a listener that ends its goroutine: the other listeners are notified all the same, and the
// server is still watched.
func TestListenerExits(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.recorder.Listener = func(context.Context, health.Change) { runtime.Goexit() }
		other := newRecorder()
		f.subscribe(&other.Listener)
		f.follow(reply{outcome: health.Rejected})
		f.fail(health.Unavailable)
		f.requests(time.Minute + time.Second)
		f.wantState(health.Down)
		f.follow(reply{outcome: health.Answered})
		f.requests(2 * time.Second)
		f.wantState(health.Up)
		f.wantNotified(other, "down, back")
	})
}

// TestForgottenSubscription checks that a Subscription that is garbage-collected during an outage ends
// like one that is closed: nothing is watched without a Subscription.
func TestForgottenSubscription(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		f.fail(health.Unavailable)
		f.wantNotified(f.recorder, "down logged")
		f.subscriptions = nil
		runtime.GC()
		if f.listeners.AnyOpen() {
			t.Error("a subscription is open")
		}
		f.refresh()
		f.wantState(health.Up)
		f.wantNotified(f.recorder, "back")
	})
}

// TestLog checks which lines the outages of a server have in the log. In each step, the server is up for
// some seconds and then down for some seconds.
func TestLog(t *testing.T) {
	t.Parallel()
	type outage struct{ up, down float64 }
	for name, c := range map[string]struct {
		outages []outage
		want    string // each line, and the second in which it is logged
	}{
		"a line each minute":               {[]outage{{0, 150}}, "0 down, 60 still down, 120 still down, 150 back"},
		"a blip":                           {[]outage{{0, 0.5}}, "0 down, 0.5 back"},
		"a blip after a blip":              {[]outage{{0, 0.5}, {10, 0.5}}, "0 down, 0.5 back"},
		"an outage after a blip":           {[]outage{{0, 0.5}, {9.5, 80}}, "0 down, 0.5 back, 11 still down, 71 still down, 90 back"},
		"an outage after an outage":        {[]outage{{0, 5}, {5, 80}}, "0 down, 5 back, 60 still down, 90 back"},
		"a short outage after an outage":   {[]outage{{0, 5}, {5, 5}}, "0 down, 5 back"},
		"an outage a minute later":         {[]outage{{0, 5}, {55, 5}}, "0 down, 5 back, 60 down, 65 back"},
		"a blip between":                   {[]outage{{0, 5}, {5, 0.5}, {4.5, 60}}, "0 down, 5 back, 60 still down, 75 back"},
		"a blip between, a minute later":   {[]outage{{0, 5}, {55, 0.5}, {4.5, 10}}, "0 down, 5 back, 60 down, 60.5 back, 66 still down, 75 back"},
		"an outage that got its line late": {[]outage{{0, 0.5}, {9.5, 10}, {10, 45}}, "0 down, 0.5 back, 11 still down, 20 back, 71 still down, 75 back"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runNear(t, func(f *fixture) {
				var log []string
				f.recorder.Listener = func(_ context.Context, c health.Change) {
					if c.Log {
						log = append(log, fmt.Sprint(time.Since(f.start).Round(100*time.Millisecond).Seconds(), " ", eventNames[c.Event]))
					}
				}
				for _, o := range c.outages {
					time.Sleep(time.Duration(o.up * float64(time.Second)))
					f.fail(health.Unavailable)
					f.requests(time.Duration(o.down * float64(time.Second)))
					f.monitor.Answered(time.Now(), true)
					synctest.Wait()
				}
				if got := strings.Join(log, ", "); got != c.want {
					t.Errorf("logged: %q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestStillDown checks that the line of a long outage names the present cause, and that only one
// listener writes it.
func TestStillDown(t *testing.T) {
	t.Parallel()
	runNear(t, func(f *fixture) {
		other := newRecorder()
		f.subscribe(&other.Listener)
		f.follow(reply{outcome: health.Rejected})
		f.fail(health.Unavailable)
		f.requests(time.Minute + time.Second)
		if c := f.recorder.changes[1]; !errors.Is(c.Cause, errorOf(health.Rejected)) || c.Lasted.Round(time.Second) != time.Minute || c.Address != "server:1" {
			t.Errorf("after a minute: %+v", c)
		}
		f.wantNotified(f.recorder, "down logged, still down logged")
		f.wantNotified(other, "down")
	})
}
