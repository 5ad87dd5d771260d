// Package redisstore sends the decisions of limiters to Redis, and everything else that changes a
// key there: settling, releasing and renewing what is held, resetting and banning.
//
// A [Store] belongs to one limiter, or to several limiters that decide together. NewStore gets a client
// of go-redis, the limits and name of the limiter, and the [Hooks] that notify the limiter of failures.
// A Store knows keys, scripts and replies. Package core turns the replies into results, and decides by
// the outage policy when a call fails. Package core/guard, above core, is the middleware for requests.
//
// The files:
//
//	store.go      Store: decides for one limiter
//	together.go   Together: decides for several limiters by one script
//	call.go       Call: one call about one key; sends it again if that is safe
//	wire.go       the arguments of scripts (Redis keys, numbers, costs), and how replies are read
//	send.go       sends one round trip: which goroutine waits for it, how long, and how its end is recorded
//	batches.go    calls that share a round trip, in one script or in a pipeline of scripts
//	script.go     a script as a command, and EVAL after NOSCRIPT
//	deadline.go   deadlines of calls and callers, by timers that many of them share
//	sha1.go       the digest of a script, which FIPS mode may forbid; sha1_go125.go is for Go before 1.26
//	options.go    the options of the client, and whether the client ends a call at its deadline
//	fault.go      the errors of calls, and how the failure of a call is recorded
//	cleanup.go    frees what is held for callers that have left
//	background.go calls that a limiter makes by itself, many in one script: renewals, settlements of leases
//	servers.go    Servers: the knowledge that all limiters over one client share if they have the same
//	              timeout; node: one server
//	sharding.go   finds out whether one script may have the keys of several calls
//	prober.go     makes the trial calls by which package health watches a server
//	check.go      Check: what Limiter.Check finds out about the servers and the client
//
// The packages below this one: algorithm writes the scripts and reads their replies; batch lets
// calls share round trips; health decides when a server is down and when to try it again; diagnose
// says what an error means; key encodes a user's key for a Redis key; coreaccess has the type in
// which Store.Servers reports the state of each server to administrators.
package redisstore
