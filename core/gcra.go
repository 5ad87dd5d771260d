package core

import _ "embed"

//go:embed gcra.lua
var gcraScript string

var gcra = &algorithm{
	name:    "gcra",
	tag:     "gcra",
	library: []string{bucketLibrary},
	script:  gcraScript,
	bucket:  true,
	compile: func(l Limit) decider { return newBucket(l, "G1") },
}

// GCRA returns a [Limit] that admits as [TokenBucket] does, from less state: the
// generic cell rate algorithm keeps one instant, the theoretical arrival time
// (TAT) at which all that was used is paid for. A request is admitted if that
// instant, moved on by the request's cost, is no more than the time of [Burst]
// units (default: the rate's count) ahead. It is the choice where there are very
// many keys.
//
// It keeps one string of about 30 bytes per key, and a decision takes constant
// time. When the server's clock steps back, what is ahead is clipped to the
// capacity; a token bucket instead waits for the clock to come back.
//
// The algorithm is that of ITU-T Recommendation I.371 and the ATM Forum's Traffic
// Management Specification 4.0.
func GCRA(r Rate, o ...LimitOption) Limit { return newLimit(gcra, r, o) }
