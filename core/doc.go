// Package core decides whether a request may pass. A [Limiter] holds one or more limits for every
// key, across all processes that share a Redis: each decision is one atomic Lua script, timed by
// the Redis server's clock.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	res, err := lim.Allow(ctx, "user:alice")
//
// A [Result] is a plain value. What may be given back, or is known only at the end, has a handle:
// [Limiter.Acquire] takes slots of [InFlight], or charges what may be taken back, and
// [Limiter.Reserve] holds units until their true cost is known.
//
//	r, err := lim.Reserve(ctx, "user:alice", 500)
//	// ... if r.Allowed: do it, and then
//	err = r.Settle(ctx, 7312)
//
// [AllowAll] decides by keys of several Limiters at once: all admit, or none is charged.
//
//	res, err := core.AllowAll(ctx, 1, perUser.On("user:alice"), perOrg.On("org:acme"))
//
// [NewMemory] makes a Limiter of the same algorithms that lives in one process. The package knows
// nothing of HTTP; the adapters in nethttp and its siblings do.
//
// # Words
//
//	key        whose requests are counted together, such as "user:alice"
//	unit       what is counted; a request costs 1 unit by default
//	cost       how many units a request asks for
//	rate       units per period, such as 100 per minute
//	capacity   the most units that can be used at once: a bucket's burst, a window's count
//	limit      an algorithm with its rate; a Limiter has one or more, and all must admit
//	charge     to count the units of an admitted request; a denied one is not charged
//	hold       units that are admitted and not charged yet, because their cost is known
//	           later: Reserve holds them, [Reservation.Settle] charges the true cost
//	slot       a unit of InFlight: it is held from the decision until the work ends
//	ban        everything is denied to a key for a while, because it was denied; see [Ban]
//	lease      units held for a process, which decides on a hot key by itself while they last;
//	           see [Lease]
//	decision   admitted or denied, and what remains: a Result
//	batch      decisions that share a round trip to Redis
//	circuit breaker   closed: Redis is asked; open: it is not, from when it fails until a
//	           probe in the background is answered
//	outage policy     what decides while Redis does not: [FailLocal], [FailOpen], [FailClosed]
//	fallback   the limits in this process's memory that FailLocal decides with
//	deny cache denials that this process remembers, and repeats without asking Redis
package core
