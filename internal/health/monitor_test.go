package health_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redislimit/redislimit/internal/health"
)

// A database is a store that has nothing to do with Redis. It fails with cause, unless that is nil.
type database struct{ cause atomic.Pointer[error] }

var (
	errAway = errors.New("no route to host")
	errFull = errors.New("disk full")
)

func (d *database) fail(err error) { d.cause.Store(&err) }

func (d *database) query() error {
	if err := d.cause.Load(); err != nil {
		return *err
	}
	return nil
}

// Probe makes a query.
func (d *database) Probe(context.Context, error) (health.Outcome, error) {
	if err := d.query(); err != nil {
		return health.Unavailable, err
	}
	return health.Answered, nil
}

// Address returns the name of the database.
func (*database) Address(context.Context, error) string { return "db:5432" }

// A watched is a database with a Monitor and one listener.
type watched struct {
	database

	monitor      *health.Monitor
	subscription *health.Subscription
	events       []health.Change
}

func watch() *watched {
	w := &watched{}
	listener := health.Listener(func(_ context.Context, c health.Change) { w.events = append(w.events, c) })
	listeners := &health.Listeners{}
	w.subscription = listeners.Subscribe(&listener)
	w.monitor = health.NewMonitor(health.Config{Timeout: time.Second, PoolSize: 4, Prober: &w.database, Listeners: listeners})
	return w
}

// request makes a query, if the database is up.
func (w *watched) request(ctx context.Context) error {
	if !w.monitor.Await(ctx, nil) {
		return health.ErrDown
	}
	began := time.Now()
	err := w.query()
	if err != nil {
		w.monitor.Failed(health.Unavailable, began, time.Second, err)
	} else {
		w.monitor.Answered(began, true)
	}
	return err
}

// TestOtherStore runs the outage of a store that is not Redis: requests fail at once meanwhile, and the
// listener is notified when it begins and when it ends.
func TestOtherStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch()
		defer w.subscription.Close()
		check := func(want error) {
			t.Helper()
			if err := w.request(t.Context()); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		check(nil)
		w.fail(errAway)
		check(errAway)
		check(health.ErrDown)
		time.Sleep(3 * time.Second)
		w.cause.Store(nil)
		check(nil) // the first request after a while waits for a probe
		if len(w.events) != 2 || w.events[0].Event != health.WentDown || !errors.Is(w.events[0].Cause, errAway) ||
			w.events[1].Event != health.CameBack || w.events[1].Address != "db:5432" {
			t.Errorf("notified of %+v", w.events)
		}
	})
}

// TestLogLines checks that a long outage has a line in the log when it begins, one a minute that names
// the present cause, and one when it ends. A change of the cause alone adds none.
func TestLogLines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := watch()
		defer w.subscription.Close()
		for second := range 150 {
			w.fail([]error{errAway, errFull}[second/50%2])
			_ = w.request(t.Context())
			time.Sleep(time.Second)
		}
		w.cause.Store(nil)
		time.Sleep(10 * time.Second)
		_ = w.request(t.Context())
		type line struct {
			event health.Event
			after time.Duration
			cause error
		}
		var lines []line
		for _, c := range w.events {
			if c.Log {
				lines = append(lines, line{c.Event, c.Lasted.Round(10 * time.Second), c.Cause})
			}
		}
		want := []line{
			{health.WentDown, 0, errAway}, {health.StillDown, time.Minute, errFull},
			{health.StillDown, 2 * time.Minute, errAway}, {health.CameBack, 150 * time.Second, nil},
		}
		if !slices.Equal(lines, want) {
			t.Errorf("logged %v, want %v", lines, want)
		}
	})
}
