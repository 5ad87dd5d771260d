package health

import (
	"context"
	"errors"
	"time"
)

// A State says what requests do about a server.
type State uint8

const (
	// Up means that requests are sent to the server.
	Up State = iota
	// Doubted means that a request failed in a way that may be the fault of the connection or of this
	// process. Requests wait, for three seconds at most, until a probe finds out.
	Doubted
	// Down means that requests fail at once. Probes continue until the server answers one.
	Down
	// Recovered means that the server has answered a probe. Requests wait until the listeners have been
	// notified.
	Recovered
)

// String returns the name of the state for people. A server that has just recovered counts as down
// until its recovery has been announced.
func (s State) String() string { return [...]string{"up", "doubted", "down", "down"}[s] }

// An Outcome is what the end of a call says about the server.
type Outcome uint8

const (
	// Answered means that the call succeeded in time.
	Answered Outcome = iota
	// AnsweredLate means that the call succeeded after the caller's timeout.
	AnsweredLate
	// Rejected means that the server replied with an error that concerns this call alone. The server is
	// reachable and may accept other calls.
	Rejected
	// Inconclusive means that the call says nothing about the server.
	Inconclusive
	// ConnectionLost means that an existing connection broke. It may have been idle for too long.
	ConnectionLost
	// TimedOut means that the server did not answer in time.
	TimedOut
	// Unavailable means that no connection could be made, or that the server replied that it cannot
	// serve anyone.
	Unavailable

	// Replaced is the outcome of a probe that found another server in the place of this one.
	Replaced
	// NotProbed is the outcome of a probe that could not be made, for example because the client is
	// closed. Probing stops until a request needs the server again.
	NotProbed

	// maybeTimedOut is a TimedOut that may not be the server's fault: see Monitor.weigh.
	maybeTimedOut
)

// A Prober makes trial calls to one server.
type Prober interface {
	// Probe makes one call. ctx ends when the probe's time is up. lastError is the reason why the server
	// is not up, or nil if the previous call was answered, so that a connection exists.
	Probe(ctx context.Context, lastError error) (Outcome, error)
	// Address returns the name of the server in announcements. lastError is nil once the server answers
	// again.
	Address(ctx context.Context, lastError error) string
}

// A Config says how to watch one server.
type Config struct {
	// Timeout is how long a request waits for an answer.
	Timeout time.Duration
	// PoolSize is how many broken connections the client's pool may hand out one after the other
	// although the server is well.
	PoolSize  int
	Prober    Prober
	Listeners *Listeners
}

// ErrDown is the error of a request that is not sent because its server is down.
var ErrDown = errors.New("circuit breaker open")
