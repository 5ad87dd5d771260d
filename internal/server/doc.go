// Package server decides in Redis. It knows the client, the keys and the scripts,
// and nothing of limiters, results and outage policies.
//
//	store.go      Store: a decision, settlement, refund or reset, from the caller to the reply
//	share.go      decisions that share a round trip: one script on a server, and on each node of a Cluster
//	limits.go     Limits: the numbers, in the form in which scripts are given them
//	held.go       which keys have had holds lately, and so take the other script
//	renew.go      holds that are renewed, and leases that are settled, many in one script
//	lease.go      a decision that settles one lease and takes another
//	sharding.go   finds out whether one script may have the keys of several decisions
//	script.go     sends a script, and its text only to a server that does not have it
//	deadline.go   a timer that many calls share
//	call.go       how long a call may take, and which errors are whose fault
//	servers.go    Servers: what all limiters over one client know of its servers
//	health.go     Server: whether one of them is asked, and the probes while it is not
//	support.go    tells servers that cannot run the scripts apart from those that do not answer
//
// Scripts and replies are those of package algorithm; who waits for whom is
// package batch's.
package server
