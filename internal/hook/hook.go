// Package hook gives package limittest, and this module's own suites and tools, access to
// what core does not export. Importing package core sets it.
package hook

import (
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
)

// LimitSettings are what the options of a core.Limit set; zero is the default.
type LimitSettings struct {
	Burst   int64
	Aligned bool
	Name    string
}

// NewLimit returns the core.Limit of a registered algorithm, whether it has a
// constructor in core or not.
var NewLimit func(k *algorithm.Kind, count int64, period time.Duration, s LimitSettings) any

// SetNewLimit sets NewLimit.
func SetNewLimit(f func(*algorithm.Kind, int64, time.Duration, LimitSettings) any) bool {
	NewLimit = f
	return true
}

// Renew renews at once all that a core.Limiter keeps from expiring, as it does by itself
// now and then.
var Renew func(limiter any)

// SetRenew sets Renew.
func SetRenew(f func(limiter any)) bool {
	Renew = f
	return true
}
