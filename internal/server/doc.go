// Package server decides in Redis. It knows the client, the keys and the scripts,
// and nothing of limiters, results and outage policies.
//
//	store.go      Store: what decides for one limiter, and the probe of a server
//	decision.go   Decision: one call, from its caller to the reply
//	arguments.go  what scripts are given: Redis keys, numbers and costs
//	send.go       the one way to Redis: who waits for a call, and for how long, and how its end is recorded
//	call.go       a script and its deadline; whose fault an error is
//	leftovers.go  frees what is held for callers that have left
//	part.go       decisions that share a round trip: one script on a server, and on each node of a Cluster
//	sharding.go   finds out whether one script may have the keys of several decisions
//	background.go calls that nobody waits for, many in one script: renewals, leases that are settled
//	servers.go    Servers: what all limiters over one client know of its servers; the batches of each
//	health.go     Server: whether one of them is asked, and the probes while it is not
//	support.go    tells servers that cannot run the scripts apart from those that do not answer
//
// Scripts and replies are those of package algorithm; who waits for whom is
// package batch's.
package server
