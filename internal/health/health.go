package health

import (
	"context"
	"errors"
	"time"
)

// A State says whether requests are sent to a server.
type State uint8

const (
	// Up means that requests are sent to the server.
	Up State = iota
	// Doubted means that a request failed in a way that may be the fault of the connection or of this
	// process. Requests wait until a probe has found out whether the server answers, but for at most three
	// seconds: after that, the server counts as down. A caller with less time can end its wait earlier: see
	// [Monitor.Await].
	Doubted
	// Down means that requests fail at once. There is one exception: if no request has needed the server
	// for a second, the next request makes a probe begin, and fails only if the server is not up 100 ms
	// later. Requests that come within these 100 ms wait for the rest of them. Probes continue until the
	// server answers, unless a probe cannot be made: see [NotProbed].
	Down
	// Recovered means that the outage is over, but not all listeners have been notified yet. Requests wait
	// until all listeners have been notified. This package does not bound that time.
	Recovered
)

// String returns the name of the state for people. A server that has just recovered counts as down
// until its recovery has been announced.
func (s State) String() string {
	return [...]string{Up: "up", Doubted: "doubted", Down: "down", Recovered: "down"}[s]
}

// An Outcome is what the end of a call says about the server. The comments say which outcomes begin or end
// a doubt or an outage.
type Outcome uint8

const (
	// Inconclusive means that the call says nothing about the server. It is the zero value, so that an
	// Outcome that a Prober forgot to set does not end an outage.
	Inconclusive Outcome = iota
	// Answered means that the call succeeded in time. It ends a doubt or an outage.
	Answered
	// AnsweredLate means that the call succeeded, but took longer than Config.Timeout. It turns a doubt into
	// an outage, because requests would time out. If no call was ever answered before, it ends the doubt
	// instead: the call may have been slow only because it had to connect. It does not end an outage.
	AnsweredLate
	// Rejected means that the server replied with an error that concerns this call alone. It ends a doubt,
	// because the server is reachable, but not an outage: the server may reject every call.
	Rejected
	// ConnectionLost means that an existing connection broke. The reason may only be that the connection
	// was idle for too long, so this outcome begins a doubt. The doubt becomes an outage if more than
	// Config.PoolSize other connections break during the doubt.
	ConnectionLost
	// TimedOut means that the server did not answer in time. It begins an outage, or only a doubt if the
	// timeout may be the fault of this process or of a new connection.
	TimedOut
	// Unavailable means that no connection could be made, or that the server replied that it cannot
	// serve anyone. It begins an outage.
	Unavailable

	// Replaced is the outcome of a probe that found another server in the place of this one. It ends
	// an outage, with the event TakenOver. It also ends a doubt, but without an event: a doubt is not
	// announced.
	Replaced
	// NotProbed is the outcome of a probe that could not be made, for example because the client is
	// closed. It turns a doubt into an outage. Probing stops until a request needs the server again.
	NotProbed

	// maybeTimedOut is a TimedOut that may not be the server's fault: see Monitor.weigh. It begins a doubt.
	maybeTimedOut
)

// A Prober makes trial calls to one server.
type Prober interface {
	// Probe makes one trial call. It must return when ctx ends, because at most 8 probes are in flight at a
	// time: if 8 of them hang, no other probe begins. lastError is the reason why the server is not up. If
	// the server answers slowly, Probe is called a second time at once, to find out how fast the server is
	// over the connection that the first call has made. lastError is nil in that second call.
	Probe(ctx context.Context, lastError error) (Outcome, error)
	// Address returns the name of the server for announcements, or "" if the name is not known. lastError
	// is the reason why the server is not up, or nil once the server answers again. ctx has no deadline, so
	// Address must bound its own time: announcements wait for it, and so do requests at the end of an
	// outage.
	Address(ctx context.Context, lastError error) string
}

// A Config says how to watch one server.
type Config struct {
	// Timeout is how long a request waits for an answer.
	Timeout time.Duration
	// PoolSize is how many broken connections the client's pool may hand out one after the other although
	// the server is well. The broken connection that begins a doubt is not one of them.
	PoolSize int
	Prober   Prober
	// Listeners are notified of outages, and must not be nil. While they have no open Subscription, the
	// server is not watched: it is not probed, and after each failure it counts as up again at once.
	Listeners *Listeners
}

// ErrDown is the error for callers to return if [Monitor.Await] reports false because the server is down.
var ErrDown = errors.New("circuit breaker open")
