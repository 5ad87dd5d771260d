// Package settings has what the options of package guard set. Package adapter goes by it.
package settings

import (
	"fmt"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// Settings are what the options of one middleware add up to.
type Settings struct {
	Fallback   keyfunc.Func // or nil
	Skip       func(keyfunc.Request) bool
	Cost       func(keyfunc.Request) int64
	LimiterFor func(keyfunc.Request) (*core.Limiter, error)
	CountIf    func(status int) bool
	CostAfter  bool
	DryRun     bool
	WaitUpTo   time.Duration // 0: a denied request does not wait
	MaxWaiting int           // with WaitUpTo
	Headers    Headers
	OnDenied   any // a handler of the framework's type, or nil
	OnError    any // likewise

	given map[string]bool
}

// Headers says which headers a response has, and how they are written.
type Headers struct {
	Sets     uint8 // a guard.HeaderSet, or 0 for none
	OnDenial bool  // and on nothing else
	Delta    bool
	Expose   bool

	Jitter   float64       // by what share of it Retry-After may be later
	MaxRetry time.Duration // the longest one, or 0
	Millis   bool          // Retry-After-Ms, too
}

// Give notes that an option is given. It panics if it was given before.
func (s *Settings) Give(option string) {
	if s.given[option] {
		panic(fmt.Sprintf("guard: %s and %s: give it once", option, option))
	}
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given[option] = true
}

// Check panics if an option has no effect because of another.
func (s *Settings) Check(xRateLimit uint8) {
	if s.given["NoHeaders"] {
		for _, option := range []string{"Headers", "HeadersOnDenial", "ResetDelta", "ExposeHeaders", "RetryJitter", "MaxRetryAfter", "RetryAfterMs"} {
			if s.given[option] {
				panic(fmt.Sprintf("guard: NoHeaders and %s: choose one", option))
			}
		}
	}
	if s.given["MaxWaiting"] && !s.given["WaitUpTo"] {
		panic("guard: MaxWaiting: it is for WaitUpTo, which is missing")
	}
	if s.given["ResetDelta"] && s.Headers.Sets&xRateLimit == 0 {
		panic("guard: ResetDelta: it is for XRateLimit, which Headers leaves out")
	}
}

// MustFunc panics if the function given to an option is missing.
func MustFunc(missing bool, option, does string) {
	if missing {
		panic("guard: " + option + "(nil): want a function that " + does)
	}
}
