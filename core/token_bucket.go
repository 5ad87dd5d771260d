package core

import _ "embed"

//go:embed token_bucket.lua
var tokenBucketScript string

var tokenBucket = &algorithm{
	name:    "token_bucket",
	tag:     "token",
	library: []string{bucketLibrary},
	script:  tokenBucketScript,
	bucket:  true,
	compile: func(l Limit) decider { return newBucket(l, "T1") },
}

// TokenBucket returns a [Limit] that admits bursts and holds a rate behind them:
// a bucket of [Burst] tokens (default: the rate's count) starts full and refills
// continuously at the rate; a request takes as many tokens as it costs and is
// denied while there are fewer. It is the usual choice for an API, whose clients
// come in bursts.
//
// It keeps one string of about 35 bytes per key, and a decision takes constant
// time. What is stored is not a hash with the number of tokens, but the time that
// the missing ones take to refill, with the instant at which that was so. A
// number of tokens is a fraction with a denominator of up to 45 bits (after
// 1 µs at 7 per minute it is 7/60,000,000), which a double, Lua's only number,
// rounds at each refill; the time is exact with additions alone.
//
// The algorithm is the token bucket of traffic policing, as in Tanenbaum's
// "Computer Networks" or RFC 2697.
func TokenBucket(r Rate, o ...LimitOption) Limit { return newLimit(tokenBucket, r, o) }
