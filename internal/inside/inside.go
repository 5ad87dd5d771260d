// Package inside leads from this module's adapters, admin, limittest, suites and tools to what
// package core does for them alone.
package inside

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/hook"
)

// Core is package core. Its methods are those of core's type inside, in four groups: limits, clocks
// and stubs for tests; what adapters ask about a limiter, how a request waits and is settled, and
// what is logged; what admin shows; and the scripts, for tools. A method is added in package hook
// and in core.
var Core = hook.Registered.(known) //nolint:forcetypeassert // core checks it

type known = hook.Core[core.Limiter, core.Permit, core.Reservation, core.Result, core.Option, core.Limit, core.Event]
