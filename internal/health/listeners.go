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
	// WentDown means that from now on requests fail at once, or after 100 ms if none came for a second. A
	// listener that was notified of it is also notified of a CameBack or TakenOver, unless the listener is
	// garbage-collected before.
	WentDown Event = iota
	// StillDown is an Event for the log alone, and one listener is notified of it, at most once a
	// minute: the server has been down since the last line, or its WentDown was not logged.
	StillDown
	// CameBack means that the server answers again. A listener that unsubscribes in an outage is also
	// notified of a CameBack.
	CameBack
	// TakenOver means that another server took its place.
	TakenOver
)

// A Change is what a listener is notified of.
type Change struct {
	Event   Event
	Address string        // of the server; empty while it is not known
	Cause   error         // why it is down
	Lasted  time.Duration // the outage, so far
	// Log says whether this listener should log the Change. It is true for one listener, or for none if
	// this outage, or its beginning, is not to be logged.
	Log bool
}

// A Listener is called with each Change by the supervisor of a Monitor, which is a goroutine of its own.
// Requests after an outage wait until all listeners have returned, and no probe begins meanwhile. So a
// Listener must bound its own time, because ctx has no deadline, and must not call [Monitor.Await] on the
// Monitor that calls it. A Monitor calls its listeners one at a time; several Monitors may call the same
// one concurrently.
type Listener func(ctx context.Context, c Change)

// Listeners are notified of the outages of a group of servers. They are held weakly: a Subscription that
// nobody closes ends when it is garbage-collected. The zero value has no listeners.
type Listeners struct {
	mu      sync.Mutex
	all     []weak.Pointer[Subscription]
	version atomic.Uint64 // changes with each Subscribe and Close
}

// A Subscription makes a group of servers notify a Listener until it is closed. Several Subscriptions of
// the same Listener count as one.
type Subscription struct {
	listener *Listener
	of       *Listeners
	closed   atomic.Bool
}

// Subscribe adds a listener. The caller keeps the Subscription alive. listener must not be nil, but may
// point to a nil Listener: then nobody is notified, but the servers are watched.
//
// The Monitor of a server that is down now notifies the new listener at its next probe or when a
// request needs the server, whichever is sooner. [Monitor.Refresh] makes it do so at once.
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
// [Monitor.Refresh] of each server afterwards: a listener that was notified of an outage is then notified
// that it is over, as far as this listener is concerned.
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

// AnyOpen reports whether there is a subscription that is neither closed nor garbage-collected. It
// usually looks at one only.
func (l *Listeners) AnyOpen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, isOpen)
}

// current returns each listener once. A nil Listener is left out, because there is nothing to call.
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

// An audience is the listeners that were notified that a server is down, and must be notified of the end.
type audience struct {
	notified []weak.Pointer[Listener]
	version  uint64 // of the Listeners when they were notified
}

// notifyAll notifies all. The first that has not been garbage-collected logs.
func (a *audience) notifyAll(ctx context.Context, c Change) {
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			(*listener)(ctx, c)
			c.Log = false
		}
	}
}

// notifyLogger notifies the one that logs.
func (a *audience) notifyLogger(ctx context.Context, c Change) {
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			(*listener)(ctx, c)
			return
		}
	}
}

// replace makes the listeners the audience. Those that do not know yet that the server is down are notified
// of it. Those that knew and have unsubscribed since are notified that it is over.
func (a *audience) replace(ctx context.Context, listeners []*Listener, down, over Change) {
	knew := make(map[*Listener]bool, len(a.notified))
	for _, w := range a.notified {
		if listener := w.Value(); listener != nil {
			knew[listener] = true
		}
	}
	down.Log = down.Log && len(a.notified) == 0 // otherwise a listener that knows has logged it
	a.notified = a.notified[:0]
	for _, listener := range listeners {
		if !knew[listener] {
			(*listener)(ctx, down)
			down.Log = false
		}
		delete(knew, listener)
		a.notified = append(a.notified, weak.Make(listener))
	}
	for listener := range knew {
		(*listener)(ctx, over)
	}
}
