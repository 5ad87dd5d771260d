// Package format writes the numbers and names of a Result as headers and bodies have them.
package format

import (
	"time"

	"github.com/redislimit/redislimit/core"
)

// SecondsCeil returns d in whole seconds, rounded up: a client that waits that
// long is never early.
func SecondsCeil(d time.Duration) int64 { return Ceil(d, time.Second) }

// Ceil returns d in whole units, rounded up.
func Ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// RetrySeconds returns RetryAfter in whole seconds, and at least 1: clients take 0
// for "at once".
func RetrySeconds(res *core.Result) int64 { return max(1, SecondsCeil(res.RetryAfter)) }

// SeveralLimits reports whether res is of more than one limit.
func SeveralLimits(res *core.Result) bool {
	limits := 0
	for range res.All() {
		limits++
	}
	return limits > 1
}

// PolicyName returns the name of a limit's policy: that of the limiter and, if there are
// several limits, of the limit.
func PolicyName(each *core.Result, several bool) string {
	if several {
		return each.Limiter + "-" + each.Name
	}
	return each.Limiter
}
