// Package server decides in Redis. It knows the client, the keys and the scripts,
// and nothing of limiters, results and outage policies.
//
//	store.go     Store: a decision, refund or reset, from the caller to the reply
//	script.go    sends a script, and its text only to a server that does not have it
//	group.go     decisions that share a round trip: one script on a server, a pipeline on a Cluster
//	breaker.go   how long Redis is waited for, and the circuit breaker
//	deadline.go  a timer that many calls share
//	support.go   tells servers that cannot run the scripts apart from those that do not answer
//
// Scripts and replies are those of package algorithm; who waits for whom is
// package batch's.
package server
