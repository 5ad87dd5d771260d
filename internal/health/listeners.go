package health

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// An Event is what happened to a server.
type Event uint8

const (
	// WentDown means that the server is down: see [Down]. A listener that was notified of a WentDown is
	// also notified of the CameBack or TakenOver that follows, unless the listener is garbage-collected
	// before that.
	WentDown Event = iota
	// StillDown means that another line about the outage should be logged: the last line was logged a
	// minute ago, or the WentDown was not logged. StillDown is for the log alone, so only the listener that
	// logs is notified of it, at most once a minute.
	StillDown
	// CameBack means that the server answers again. A listener that unsubscribes during an outage is also
	// notified of a CameBack, because the outage is over for that listener.
	CameBack
	// TakenOver means that another server took the place of this one.
	TakenOver
)

// A Change is what a listener is notified of.
type Change struct {
	Event   Event
	Address string        // of the server; empty while it is not known
	Cause   error         // why the server is down; nil for CameBack and TakenOver
	Lasted  time.Duration // how long the outage has lasted so far
	// Log says whether this listener should log the Change. It is true for one listener, or for none if this
	// outage, or its beginning, is not to be logged. It is false in the WentDown for a listener that
	// subscribes when others already know of the outage, and in the CameBack for a listener that
	// unsubscribes during the outage.
	Log bool
}

// A Listener is called with each Change, in a goroutine of its own, for which the supervisor of a Monitor waits.
// Until all listeners have returned, no probe begins and, if the server has recovered, requests wait. A
// Listener must therefore bound its own time, because ctx has no deadline. It must not panic, because nothing
// recovers in that goroutine. It must not call [Monitor.Await] of the Monitor that calls it. A Monitor calls
// its listeners one at a time, but several Monitors may call the same listener concurrently.
type Listener func(ctx context.Context, c Change)

// notify calls the listener with c. The call has a goroutine of its own, because a listener runs code of the
// user, which may end the goroutine by [runtime.Goexit]: the supervisor must go on.
func (l *Listener) notify(ctx context.Context, c Change) {
	var called sync.WaitGroup
	called.Go(func() { (*l)(ctx, c) })
	called.Wait()
}

// Listeners holds the Subscriptions to the outages of a group of servers. It holds them weakly: a
// Subscription that nobody closes ends when it is garbage-collected. The zero value has no listeners.
type Listeners struct {
	mu      sync.Mutex
	all     []weak.Pointer[Subscription]
	version atomic.Uint64 // changes with each Subscribe and Close
}

// A Subscription makes a group of servers notify a Listener until the Subscription is closed. If several
// Subscriptions have the same pointer to a Listener, each Change is passed to it once.
type Subscription struct {
	listener *Listener
	of       *Listeners
	closed   atomic.Bool
}

// Subscribe adds a listener. The caller must keep the Subscription reachable for as long as the listener
// should be notified. listener must not be nil, but may point to a nil Listener: the servers are then
// watched, but this Subscription notifies nobody.
//
// If a server is down now, its Monitor notifies the new listener at the next probe, or when a request
// next needs the server, whichever comes first. [Monitor.Refresh] makes the Monitor notify the listener
// at once.
func (l *Listeners) Subscribe(listener *Listener) *Subscription {
	s := &Subscription{listener: listener, of: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == cap(l.all) {
		l.all = slices.DeleteFunc(l.all, func(w weak.Pointer[Subscription]) bool { return !isOpen(w) })
	}
	l.all = append(l.all, weak.Make(s))
	l.version.Add(1)
	return s
}

// Close ends the subscription. It reports false if the subscription was closed already. Call
// [Monitor.Refresh] for each server afterwards: if the listener has been notified of an outage that goes
// on, it is then notified of a CameBack, because the outage is over for this listener.
func (s *Subscription) Close() bool {
	if s.closed.Swap(true) {
		return false
	}
	s.of.version.Add(1)
	return true
}

// Closed reports whether the subscription was closed.
func (s *Subscription) Closed() bool { return s.closed.Load() }

// isOpen reports whether a Subscription is neither closed nor garbage-collected.
func isOpen(w weak.Pointer[Subscription]) bool {
	s := w.Value()
	return s != nil && !s.Closed()
}

// AnyOpen reports whether there is a subscription that is neither closed nor garbage-collected. It is cheap,
// because usually the first subscription is open.
func (l *Listeners) AnyOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, isOpen)
}

// current returns the listeners of all open subscriptions, each once. A nil Listener is left out,
// because there is nothing to call.
func (l *Listeners) current() []*Listener {
	var listeners []*Listener
	known := make(map[*Listener]bool)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.all {
		if s := w.Value(); s != nil && !s.Closed() && *s.listener != nil && !known[s.listener] {
			listeners, known[s.listener] = append(listeners, s.listener), true
		}
	}
	return listeners
}

// An audience contains the listeners that were notified that a server is down. They must also be
// notified when the outage is over.
type audience struct {
	notified []weak.Pointer[Listener]
	version  uint64 // the version of the Listeners when the audience was notified
}

// notifyAll passes c to the whole audience. If c.Log is set, it stays set for the first listener that has
// not been garbage-collected, and is false for all others.
func (a *audience) notifyAll(ctx context.Context, c Change) {
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			listener.notify(ctx, c)
			c.Log = false
		}
	}
}

// notifyLogger notifies only the listener that logs: the first that has not been garbage-collected.
func (a *audience) notifyLogger(ctx context.Context, c Change) {
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			listener.notify(ctx, c)
			return
		}
	}
}

// replace makes listeners the audience. It passes the Change down to the listeners that were not in the
// audience before, and the Change over to those that were in the audience and are not among listeners.
func (a *audience) replace(ctx context.Context, listeners []*Listener, down, over Change) {
	knew := make(map[*Listener]bool, len(a.notified))
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			knew[listener] = true
		}
	}
	down.Log = down.Log && len(a.notified) == 0 // otherwise the previous audience has logged it
	a.notified = a.notified[:0]
	for _, listener := range listeners {
		if !knew[listener] {
			listener.notify(ctx, down)
			down.Log = false
		}
		delete(knew, listener)
		a.notified = append(a.notified, weak.Make(listener))
	}
	for listener := range knew {
		listener.notify(ctx, over)
	}
}
