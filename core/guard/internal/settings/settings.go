// Package settings defines the Settings of a middleware and the options that change them. It
// connects package guard, which makes the options, with package adapter, which reads the Settings.
package settings

import (
	"fmt"
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// Settings is the result of all options of one middleware.
type Settings struct {
	Fallback   keyfunc.Func // may be nil
	Skip       func(keyfunc.Request) bool
	Cost       func(keyfunc.Request) int64
	LimiterFor func(keyfunc.Request) (*core.Limiter, error)
	CountIf    func(status, code int) bool
	Codes      string // the adapter whose codes CountIf judges; "" if it judges the HTTP status
	CostAfter  bool
	DryRun     bool
	WaitUpTo   time.Duration // 0 means that no request waits to be admitted
	MaxWaiting int           // how many requests may wait at a time because of WaitUpTo
	Headers    Headers
	OnDenied   any // a handler of the framework's type; may be nil
	OnError    any // likewise
	AlsoLimits []AlsoLimit

	given map[string]bool // the names of the options that were given
}

// An AlsoLimit is another limiter that decides together with the limiter of the middleware, as the
// option AlsoLimit describes. Its Settings contain only Cost, Fallback and LimiterFor.
type AlsoLimit struct {
	Limiter  *core.Limiter
	Key      keyfunc.Func
	Settings Settings
}

// Headers says which headers about the limit a response has, and how they are written.
type Headers struct {
	Sets     uint8  // a guard.HeaderSet; 0 means no headers about the limit, and no Retry-After
	Names    *Names // the names of the set XRateLimit
	OnDenial bool   // only denials have headers
	Delta    bool   // X-RateLimit-Reset is in seconds from now
	Expose   bool   // the headers are listed in Access-Control-Expose-Headers

	Jitter   float64       // the share of a wait by which RetryJitter may lengthen it
	MaxRetry time.Duration // the longest Retry-After, in whole seconds; 0 without a bound
	Millis   bool          // Retry-After-Ms is sent as well
}

// Names contains the names of the headers of the set XRateLimit, in the canonical form of net/http.
type Names struct {
	Prefix                  string // the prefix of the names, as it was given
	Limit, Remaining, Reset string
}

// NewNames returns the Names with the given prefix.
func NewNames(prefix string) *Names {
	name := func(field string) string { return http.CanonicalHeaderKey(prefix + field) }
	return &Names{prefix, name("Limit"), name("Remaining"), name("Reset")}
}

// give records that the option is given. It panics if the option was given before.
func (s *Settings) give(option string) {
	if s.given[option] {
		panic(fmt.Sprintf("guard: %s and %s: give it once", option, option))
	}
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given[option] = true
}

// AddAlsoLimit adds the limiter of an AlsoLimit. It panics if that limiter has an option that only the
// whole middleware may have.
func (s *Settings) AddAlsoLimit(m AlsoLimit) {
	for option := range m.Settings.given {
		if option != "Cost" && option != "Fallback" && option != "LimiterFor" {
			panic(fmt.Sprintf("guard: AlsoLimit with %s: give it to the middleware: AlsoLimit takes Cost, Fallback and LimiterFor", option))
		}
	}
	s.AlsoLimits = append(s.AlsoLimits, m)
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given["AlsoLimit"] = true
}

// MustLimit panics if lim or key is nil.
func MustLimit(lim *core.Limiter, key keyfunc.Func) {
	switch {
	case lim == nil:
		panic("guard: the limiter is nil: make one with core.New")
	case key == nil:
		panic("guard: the key function is nil: choose one, such as keyfunc.IP()")
	}
}

// Apply applies opts to s. It panics if an option is nil.
func Apply[O Option](s *Settings, opts []O) {
	for _, opt := range opts {
		if any(opt) == nil {
			panic("guard: a nil Option: leave it out")
		}
		opt.applyTo(s)
	}
}

// Check panics if two options cannot be combined, or if an option would have no effect: MaxWaiting without
// WaitUpTo, and HeaderPrefix or ResetInSeconds without the headers of XRateLimit. xRateLimit is the bit of
// guard.XRateLimit in Headers.Sets.
func (s *Settings) Check(xRateLimit uint8) {
	if s.given["NoHeaders"] {
		for _, option := range []string{
			"Headers", "HeaderPrefix", "HeadersOnDenial", "ResetInSeconds", "ExposeHeaders", "RetryJitter", "MaxRetryAfter", "RetryAfterMs",
		} {
			if s.given[option] {
				panic(fmt.Sprintf("guard: NoHeaders and %s: choose one", option))
			}
		}
	}
	if s.given["MaxWaiting"] && !s.given["WaitUpTo"] {
		panic("guard: MaxWaiting without WaitUpTo: no request waits: add WaitUpTo, or leave MaxWaiting out")
	}
	if s.given["WaitUpTo"] && s.given["AlsoLimit"] {
		panic("guard: AlsoLimit and WaitUpTo: choose one: units of one limiter would stay held while the request waits for another")
	}
	for _, option := range []string{"HeaderPrefix", "ResetInSeconds"} {
		if s.given[option] && s.Headers.Sets&xRateLimit == 0 {
			panic("guard: " + option + ": it changes only the headers of XRateLimit, which Headers leaves out")
		}
	}
}

// MustFunc panics if missing is true, that is, if the function that was given to option is nil. purpose says
// what such a function does, and becomes the end of the message.
func MustFunc(missing bool, option, purpose string) {
	if missing {
		panic("guard: " + option + "(nil): want a function that " + purpose)
	}
}
