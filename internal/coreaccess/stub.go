package coreaccess

import "time"

// A Stub answers for a core.Limiter in place of Redis.
type Stub interface {
	// Call answers a call of a method that decides about a key or changes what is charged to it. cost is in
	// units. A positive retryAfter makes a decision deny. An error makes the limiter unavailable.
	Call(method, key string, cost int64) (retryAfter time.Duration, err error)
}
