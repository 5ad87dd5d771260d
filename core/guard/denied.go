package guard

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A DeniedError is the error of a denied request. errors.As finds it in the error that the
// middleware for Echo, Fiber and gRPC returns.
type DeniedError struct {
	// Result is the decision. It names the limiter, and the limit that denied.
	Result core.Result
	// Hidden is whether clients are to see nothing of the limit: the middleware has NoHeaders.
	Hidden bool
	// RetryAfter is what the header Retry-After says: Result.RetryAfter in whole seconds, rounded
	// up, and by [RetryJitter] and [MaxRetryAfter]. It is 0 if there is no such header.
	RetryAfter time.Duration
}

// Error names the limiter and the limit, and no key.
func (e *DeniedError) Error() string {
	if e.Result.Banned {
		return fmt.Sprintf("redislimit: limiter %q: banned for %v", e.Result.LimiterName, e.Result.RetryAfter)
	}
	return fmt.Sprintf("redislimit: limiter %q: limit %q exceeded", e.Result.LimiterName, e.Result.LimitName)
}
