// Package redisstore sends the decisions of limiters to Redis, and everything else that changes a key
// there: settling, releasing and renewing what is held, resetting and banning.
//
// A [Store] belongs to one limiter. NewStore gets a client of go-redis, the limits and name of the limiter,
// and the [Hooks] that notify the limiter of failures. A Store knows keys, scripts and replies. The package
// that imports it, core, turns replies into results and decides by the outage policy when a call fails. Package
// core/guard, above core, is the middleware for requests.
//
// The files:
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
// The packages below this one: algorithm writes the scripts and reads their replies; batch lets calls
// share round trips; health decides when a server is down and when to try it again; diagnose says what an
// error means; key encodes a user's key for a Redis key; hook has the type in which Store.Servers
// reports the state of each server to administrators.
package redisstore
