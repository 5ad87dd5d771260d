// Package inside gives other packages of this module, such as adapters, admin, limittest, tests and tools,
// access to what package core does only for them.
package inside

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/coreaccess"
)

// Core has the functions of package core that only this module may call. Some make limits, clocks and stubs
// for tests. Others are for adapters, for package admin or for tools. To add a function, add it to the
// interface coreaccess.Core and to core's type inside.
var Core = coreaccess.Registered.(known) //nolint:forcetypeassert // core has assigned a value of this type

type known = coreaccess.Core[core.Limiter, core.Permit, core.Reservation, core.Result, core.Option, core.Limit, core.Event]
