// Package format turns the numbers and names of a [core.Result] into the values that headers and
// bodies contain.
package format

import (
	"time"

	"github.com/redislimit/redislimit/core"
)

// SecondsCeil returns d in whole seconds. It rounds up, so that a client that waits that many seconds
// does not come too early.
func SecondsCeil(d time.Duration) int64 { return Ceil(d, time.Second) }

// Ceil returns d in whole units, rounded up. It is 0 if d is negative.
func Ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// RetrySeconds returns the RetryAfter of res in whole seconds. It returns at least 1, because clients
// take a Retry-After of 0 as an invitation to retry at once.
func RetrySeconds(res *core.Result) int64 { return max(1, SecondsCeil(res.RetryAfter)) }

// PolicyName returns the name by which RateLimit-Policy lists a limit. one is the Result of this limit, from
// res.All. The name is the limiter's. If the limiter has several limits in res, a hyphen and the name of the
// limit follow.
func PolicyName(res, one *core.Result) string {
	limits := 0
	for each := range res.All() {
		if each.LimiterName == one.LimiterName {
			limits++
		}
	}
	if limits > 1 {
		return one.LimiterName + "-" + one.LimitName
	}
	return one.LimiterName
}
