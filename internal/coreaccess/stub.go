package coreaccess

import "time"

// A Stub answers for a core.Limiter in place of Redis.
type Stub interface {
	// Call answers a call of the limiter. method is "AllowN", "Acquire", "Reserve", "Peek" or "Reset", or
	// "Settle" if the end of a Permit or a Reservation is a call to Redis. (The Release of a Permit without
	// slots is none.) cost is a number of units. If the method decides, a positive retryAfter denies every
	// cost above 0. If err is not nil, the method returns core.ErrUnavailable.
	Call(method, key string, cost int64) (retryAfter time.Duration, err error)
}
