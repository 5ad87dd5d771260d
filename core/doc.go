// Package core decides whether a request may pass. A [Limiter] enforces one or more limits for
// every key, across all processes that share a Redis. Redis decides in one atomic Lua script, by
// the clock of the Redis server.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
//	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(100)))
//	res, err := lim.Allow(ctx, "user:alice")
//
// A [Result] is a plain value. For work that has an end there are two more types: [Limiter.Acquire]
// returns a [Permit], which keeps slots of [InFlight] until it is ended, and can give back what was
// charged. [Limiter.Reserve] returns a [Reservation], which holds units until their true cost is
// known.
//
//	r, err := lim.Reserve(ctx, "user:alice", 500)
//	// ... if r.Allowed: do it, and then
//	err = r.Settle(ctx, 7312)
//
// [AllowAll] decides on keys of several Limiters at once: if one of them denies, none is charged.
//
//	res, err := core.AllowAll(ctx, 1, perUser.On("user:alice"), perOrg.On("org:acme"))
//
// [NewMemory] makes a Limiter of the same algorithms that lives in one process. The package knows
// nothing of HTTP; the adapters in nethttp and its siblings do.
//
// # Permits and reservations
//
// A call that admits n units charges them at once, or holds them. Held units count for all other
// decisions as if they were charged. They are held until the work ends and its true cost is known.
// The table says what happens to units of the limits with a rate, such as [TokenBucket] and
// [FixedWindow]:
//
//	call         when admitted  Release   Settle(m)  Cancel        not ended: the process
//	                                                               died or was too slow
//	AllowN       n charged      -         -          -             n stay charged
//	AllowAll     n charged      -         -          -             n stay charged
//	Acquire      n charged      n kept    -          given back    n stay charged
//	                                                 as far as
//	                                                 possible
//	AcquireAll   n held         n         -          given back,   n are charged when
//	                            charged              exactly       the Hold is over
//	Reserve,     n held         -         m          given back,   n are charged when
//	ReserveAll                            charged    exactly       the Hold is over
//
// When the [Hold] is over, the held units are charged, even if the process is still alive. After that,
// Settle(m) charges only the difference if m is more than n, and Release and Cancel change nothing.
// [Reservation.Keep] renews the Hold while the process lives and Redis answers. A context that ends does
// not end a Permit or a Reservation: it only bounds how long a call waits.
//
// Acquire, Reserve and similar methods take slots of [InFlight] as soon as they admit a request, and
// every way to end the Permit or Reservation frees its slots. The Limiter renews slots in the
// background. If the process dies or cannot renew its slots, other processes can take them when their
// [SlotTTL] is over. In a process that lives on, the context of [Permit.Context] or
// [Reservation.Context] is then canceled. A place in the queue of a [LeakyBucket] is always charged at
// once: Reserve is like Acquire there, Settle(0) is like Cancel, and any other Settle like Release.
//
// # Words
//
//	key        a string such as "user:alice"; requests with the same key are counted together
//	unit       limits count units; a request costs 1 unit by default
//	cost       how many units a request asks for
//	rate       units per period, such as 100 per minute
//	capacity   the most units that can be used at once: a bucket's burst, a window's count
//	limit      an algorithm with its rate; a Limiter has one or more, and all must admit
//	charge     to count the units of an admitted request; a denied one is not charged
//	hold       units that are admitted but not charged yet, because the cost is known only
//	           later: Reserve holds them, and [Reservation.Settle] charges the true cost
//	slot       a unit of InFlight: a request takes it when it is admitted, and frees it when its
//	           work ends
//	ban        a time in which every request with the key is denied. A denial can begin it,
//	           or a call of [Limiter.Block]; see [Ban]
//	lease      units that a process holds for a frequently used key, and spends without asking
//	           Redis; see [Lease]
//	decision   admitted or denied, and what remains: a Result
//	batch      decisions that share a round trip to Redis
//	circuit breaker   decides whether Redis is asked. While it is closed, decisions go to Redis. It
//	           opens when Redis fails, and closes when Redis answers a probe in the background
//	outage policy     decides while Redis does not answer: [FailLocal], [FailOpen], [FailClosed]
//	fallback   the limits in the memory of this process; FailLocal decides by them
//	deny cache denials that this process remembers, and repeats without asking Redis
package core
