// Package redisstore decides in Redis. It knows the client, the keys and the scripts. Of a limiter it
// knows the name and the numbers, and nothing of results and outage policies.
//
//	store.go      Store: what decides for one limiter
//	together.go   Stores of several limiters that decide together
//	call.go       Call: what is asked about a key, from its caller to the reply
//	wire.go       what scripts are given (Redis keys, numbers, costs), and how their replies are read
//	send.go       the one way to Redis: who waits for a call, and for how long, and how its end is recorded
//	batches.go    calls that share a round trip: one script on a server, and on each node of a Cluster
//	script.go     a script as a command, and EVAL after NOSCRIPT
//	deadline.go   until when callers wait and calls may take, by timers that many share
//	sha1.go       the digest of a script, which programs in FIPS mode may not have; sha1_go125.go before Go 1.26
//	options.go    the client's options, by which a call may end sooner than its timeout
//	fault.go      how the failure of a call is recorded
//	cleanup.go    frees what is held for callers that have left
//	background.go calls that nobody waits for, many in one script: renewals, leases that are settled
//	servers.go    Servers: what all limiters over one client know of its servers; Server: one of them, or a node of a Cluster
//	sharding.go   finds out whether one script may have the keys of several calls
//	prober.go     how package health finds out whether a server can decide
//	check.go      what Limiter.Check says
//
// What it is given: a client of go-redis, the limits of a limiter, and Hooks. What it gives: a [Store],
// which decides, settles, resets and blocks, and which says by Check what is wrong with a server. Package
// health decides when a server is asked again; package diagnose says what an error means.
//
// Scripts and replies are those of package algorithm; who waits for whom is package batch's.
package redisstore
