// Package health decides whether requests should be sent to a server, and finds out in the background
// when a failed server can be used again. It is a circuit breaker whose trial calls are probes instead
// of requests.
//
//	health.go     the vocabulary: State, Outcome, Prober, Config
//	machine.go    the rules, without a clock, a network or a goroutine; a test searches them exhaustively
//	monitor.go    Monitor: puts the rules behind a lock, and runs the goroutine that probes and announces
//	listeners.go  Listeners: who is notified of outages
//
// What it is given: the outcome of each request, a [Prober] that makes one trial call, and Listeners.
// What it gives: [Monitor.Up] says whether to send a request, [Monitor.Await] waits for the server while
// an answer can be expected soon, and each listener is notified when an outage begins and ends.
//
// The package does not know what kind of server it watches. It imports no other package of this module
// and no client.
package health
