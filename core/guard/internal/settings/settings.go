// Package settings has the type of the options of package guard, and the Settings that they change.
// Package adapter reads the Settings.
package settings

import (
	"fmt"
	"net/http"
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
	CountIf    func(status, code int) bool
	Codes      string // the adapter whose codes CountIf is about, or "" for the status
	CostAfter  bool
	DryRun     bool
	WaitUpTo   time.Duration // 0: a denied request does not wait
	MaxWaiting int           // with WaitUpTo
	Headers    Headers
	OnDenied   any // a handler of the framework's type, or nil
	OnError    any // likewise
	Members    []Member

	given map[string]bool
}

// A Member is a limiter that decides together with that of the middleware. Its Settings have no
// more than a Cost, a Fallback and a LimiterFor.
type Member struct {
	Limiter  *core.Limiter
	Key      keyfunc.Func
	Settings Settings
}

// Headers says which headers a response has, and how they are written.
type Headers struct {
	Sets     uint8  // a guard.HeaderSet, or 0 for none
	Names    *Names // of the set XRateLimit
	OnDenial bool   // and on nothing else
	Delta    bool
	Expose   bool

	Jitter   float64       // by what share of it Retry-After may be later
	MaxRetry time.Duration // the longest one, or 0
	Millis   bool          // Retry-After-Ms, too
}

// Names are the names of the headers of the set XRateLimit, as net/http writes them.
type Names struct {
	Prefix                  string // with which they begin, as it was given
	Limit, Remaining, Reset string
}

// NewNames returns the Names that begin with prefix.
func NewNames(prefix string) *Names {
	name := func(field string) string { return http.CanonicalHeaderKey(prefix + field) }
	return &Names{prefix, name("Limit"), name("Remaining"), name("Reset")}
}

// give notes that an option is given. It panics if it was given before.
func (s *Settings) give(option string) {
	if s.given[option] {
		panic(fmt.Sprintf("guard: %s and %s: give it once", option, option))
	}
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given[option] = true
}

// And adds a member. It panics if it has what only the whole middleware can have.
func (s *Settings) And(m Member) {
	for option := range m.Settings.given {
		if option != "Cost" && option != "Fallback" && option != "LimiterFor" {
			panic(fmt.Sprintf("guard: AlsoLimit with %s: give it to the middleware: AlsoLimit takes Cost, Fallback and LimiterFor", option))
		}
	}
	s.Members = append(s.Members, m)
	if s.given == nil {
		s.given = make(map[string]bool)
	}
	s.given["AlsoLimit"] = true
}

// MustLimit panics if a limiter or the function of its keys is missing.
func MustLimit(lim *core.Limiter, key keyfunc.Func) {
	switch {
	case lim == nil:
		panic("guard: the limiter is nil: make one with core.New")
	case key == nil:
		panic("guard: the key function is nil: choose one, such as keyfunc.IP()")
	}
}

// Apply applies options.
func Apply[O Option](s *Settings, opts []O) {
	for _, opt := range opts {
		if any(opt) == nil {
			panic("guard: a nil Option: leave it out")
		}
		opt.applyTo(s)
	}
}

// Check panics if an option has no effect because of another.
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
		panic("guard: MaxWaiting: it is for WaitUpTo, which is missing")
	}
	if s.given["WaitUpTo"] && s.given["AlsoLimit"] {
		panic("guard: AlsoLimit and WaitUpTo: choose one: what one limiter has would be held while another is waited for")
	}
	for _, option := range []string{"HeaderPrefix", "ResetInSeconds"} {
		if s.given[option] && s.Headers.Sets&xRateLimit == 0 {
			panic("guard: " + option + ": it is for XRateLimit, which Headers leaves out")
		}
	}
}

// MustFunc panics if the function given to an option is missing.
func MustFunc(missing bool, option, does string) {
	if missing {
		panic("guard: " + option + "(nil): want a function that " + does)
	}
}
