// Package inside gives adapters, admin, limittest, suites and tools access to what package core does only
// for this module.
package inside

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
)

// Core is package core. Its methods form four groups: limits, clocks and stubs for tests; what adapters
// need for deciding, waiting, settling and logging; what admin shows; and the scripts, for tools. To add a
// method, add it to coreaccess.Core and to core's type inside.
var Core = coreaccess.Registered.(known) //nolint:forcetypeassert // core checks it

type known = coreaccess.Core[core.Limiter, core.Permit, core.Reservation, core.Result, core.Option, core.Limit, core.Event]
