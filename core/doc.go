// Package core decides whether a request may pass. A [Limiter] holds one or more
// limits for every key, across all processes that share a Redis: each decision is
// one atomic Lua script, timed by the Redis server's clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	res, err := lim.Allow(ctx, "user:alice")
//
// [NewMemory] makes a Limiter of the same algorithms that lives in one process.
// The package knows nothing of HTTP; the adapters in nethttp and its siblings do.
//
// # Words
//
//	key        whose requests are counted together, such as "user:alice"
//	unit       what is counted; a request costs 1 unit by default
//	cost       how many units a request asks for
//	rate       units per period, such as 100 per minute
//	capacity   the most units that can be used at once: a bucket's burst, a window's count
//	limit      an algorithm with its rate; a Limiter has one or more, and all must admit
//	slot       a unit of [InFlight]: it is held from the decision until Release
//	charge     to count the units of an admitted request; a denied one is not charged
//	refund     to take back what was charged
//	hold       units that are admitted and not charged yet, because their cost is known
//	           later: [Limiter.Reserve] holds them, [Limiter.Settle] charges the true cost
//	lease      units held for a process, which decides on a hot key by itself while they last;
//	           see [Lease]
//	decision   admitted or denied, and what remains: a [Result]
//	batch      decisions that share a round trip to Redis
//	circuit breaker   closed: Redis is asked; open: it is not, for a while after it
//	           failed; half-open: one call tries whether it answers again
//	outage policy     what decides while Redis does not: [FailLocal], [FailOpen], [FailClosed]
//	fallback   the limits in this process's memory that FailLocal decides with
//	deny cache denials that this process remembers, and repeats without asking Redis
//
// # Map
//
// One call of Allow goes through these files, in this order:
//
//	core/limiter.go             Allow: deny cache, Redis or memory, outage policy
//	core/lease.go, hot_key.go   with Lease: a hot key is decided from units reserved before
//	core/deny_cache.go          repeats a denial that this process remembers
//	internal/server/store.go    Decide: is the server up; alone or in a batch
//	internal/batch/batch.go     which calls go alone, which wait, which go together
//	internal/server/share.go    a batch becomes one script
//	internal/server/call.go     for how long Redis is waited for, and whose fault an error is
//	internal/server/script.go   EVALSHA
//	internal/algorithm/lua/     the script: evaluate, and charge if all limits admit
//	internal/algorithm/*.go     the reply is checked, and becomes the numbers of a Result
//	core/result.go              the numbers become the Result
//
// The other files are beside that path. In this package:
//
//	limit.go, algorithms.go, rate.go   what a limit is, and the constructors
//	option.go, outage.go, event.go     settings, outage policies, observers and logging
//	memory.go                          NewMemory
//	with.go                            other numbers for some keys
//	reserve.go, slots.go, renew.go     what is held: until it is settled or released, or the hold expires
//	wait.go, wait_queue.go, refund.go, errors.go
//	stub.go                            answers of limittest
//
// and in internal/, each with a doc comment that says more:
//
//	algorithm   the algorithms: arithmetic, decisions in memory, Lua. Knows no client and no Limiter
//	memory      the state of limits in this process, bounded
//	server      decisions in Redis: keys, scripts, batches, circuit breaker
//	batch       calls that share round trips
//	claim       lets one of the copies of a Result refund its charge
//	key         names, and the form in which a user's key is stored
package core
