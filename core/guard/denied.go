package guard

import (
	"fmt"

	"github.com/redislimit/redislimit/core"
)

// A DeniedError is the error of a denied request, where a framework's error
// handler renders it: errors.As finds it in what Echo's and Fiber's middleware
// return.
type DeniedError struct {
	// Result is the decision.
	Result core.Result
}

// Error names the limiter and the limit, and no key.
func (e *DeniedError) Error() string {
	return fmt.Sprintf("redislimit: limiter %q: limit %q exceeded", e.Result.Limiter, e.Result.Name)
}
