package core

import (
	"math/bits"
	"time"
)

var leakyBucket = &algorithm{
	name:    "leaky_bucket",
	tag:     "leaky",
	library: []string{bucketLibrary},
	script:  gcraScript, // they keep the same instant, and differ in what it means
	bucket:  true,
	burst:   drainedInOneSecond,
	compile: func(l Limit) decider {
		b := newBucket(l, "L1")
		b.shapes = true
		return b
	},
}

// LeakyBucket returns a [Limit] that shapes traffic: a queue of [Burst] units from
// which one leaves every period/count, however they came in. An admitted request
// is told by [Result.Delay] how long to wait for its turn, and the middleware
// holds it that long; one that finds no room in the queue is denied. It is the
// choice in front of something that cannot take bursts.
//
// The default Burst is what drains in one second, at least 1, so that nobody is
// held for longer unless asked.
//
// It keeps one string of about 30 bytes per key, and a decision takes constant
// time. The queue is virtual: no process holds it, and no process drains it.
//
// The algorithm is the leaky bucket as a queue of J. Turner, "New Directions in
// Communications", 1986.
func LeakyBucket(r Rate, o ...LimitOption) Limit { return newLimit(leakyBucket, r, o) }

func drainedInOneSecond(r Rate) int64 {
	if r.validate() != nil {
		return 1 // New refuses the rate
	}
	hi, lo := bits.Mul64(uint64(r.count), uint64(time.Second))
	n, _ := bits.Div64(hi, lo, uint64(r.period))
	return min(max(1, int64(n)), maxCount)
}
