// Package health decides whether requests should be sent to a server, and finds out in the background
// when a failed server can be used again. It is a circuit breaker that makes trial calls of its own,
// which are called probes: no request has to be risked to find out whether the server answers.
//
// A [Monitor] watches one server. Its user supplies three things:
//
//   - a [Prober], which makes one trial call;
//   - the outcome of each request, by [Monitor.Answered] or [Monitor.Failed];
//   - [Listeners], which are notified when an outage begins and ends. Without an open [Subscription] the
//     server is not watched: requests are sent whatever fails.
//
// In return, [Monitor.Await] says before each request whether to send it. If the server may soon be up
// again, Await waits first. The example shows the sequence of calls.
//
// The package does not know what kind of server it watches. It imports no other package of this module
// and no client.
//
//	health.go     the vocabulary: State, Outcome, Prober, Config
//	machine.go    the rules, without a clock, a network or a goroutine; a test searches them exhaustively
//	monitor.go    Monitor: puts the rules behind a lock, and runs the goroutine that probes and announces
//	listeners.go  Listeners: who is notified of outages
package health
