package guard

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A DeniedError is the error of a denied request. [errors.As] finds it in the errors that the
// middlewares for Echo, Fiber and gRPC return.
type DeniedError struct {
	// Result is the decision. It names the limiter and the limit that denied the request.
	Result core.Result
	// Hidden reports whether clients must not see the limit, because the middleware has [NoHeaders].
	Hidden bool
	// RetryAfter is the value of the header Retry-After: Result.RetryAfter, changed by
	// [RetryJitter] and [MaxRetryAfter], and rounded up to whole seconds. It is 0 if the response
	// has no Retry-After.
	RetryAfter time.Duration
}

// Error returns a message that names the limiter and the limit, but not the key.
func (e *DeniedError) Error() string {
	if e.Result.Banned {
		return fmt.Sprintf("redislimit: limiter %q: banned for %v", e.Result.LimiterName, e.Result.RetryAfter)
	}
	return fmt.Sprintf("redislimit: limiter %q: limit %q exceeded", e.Result.LimiterName, e.Result.LimitName)
}
