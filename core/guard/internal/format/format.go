// Package format writes the numbers and names of a Result as headers and bodies have them.
package format

import (
	"time"

	"github.com/redislimit/redislimit/core"
)

// SecondsCeil returns d in whole seconds, rounded up: a client that waits that long is never early.
func SecondsCeil(d time.Duration) int64 { return Ceil(d, time.Second) }

// Ceil returns d in whole units, rounded up.
func Ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// RetrySeconds returns RetryAfter in whole seconds, and at least 1: clients take 0 for "at once".
func RetrySeconds(res *core.Result) int64 { return max(1, SecondsCeil(res.RetryAfter)) }

// PolicyName returns the name of the policy of one limit of res: that of the limiter and, if res
// has several limits of that, of the limit.
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
