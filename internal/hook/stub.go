package hook

import "time"

// A Stub answers the methods of a core.Limiter in place of Redis.
type Stub interface {
	// Call answers a call of a method that decides about a key or changes what is charged to it;
	// cost is in units. If it returns an error, the limiter is unavailable because of that. A
	// decision denies if retryAfter is positive.
	Call(method, key string, cost int64) (retryAfter time.Duration, err error)
}
