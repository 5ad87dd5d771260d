package core

import (
	"errors"

	"github.com/redislimit/redislimit/internal/server"
)

// The errors of a [Limiter], matched with [errors.Is]. A denial is a [Result] and
// never an error; a context that ended gives the context's own error.
var (
	// ErrInvalidCost says that the cost was negative, or given to Settle above 1e9.
	ErrInvalidCost = errors.New("redislimit: the cost is not allowed")
	// ErrInvalidKey says that the key was empty.
	ErrInvalidKey = errors.New("redislimit: the key must not be empty")
	// ErrInvalidResult says that a Result given to Refund, Settle or Release is of another
	// Limiter, or that one given to Settle was not reserved.
	ErrInvalidResult = errors.New("redislimit: the Result is not one for this call")
	// ErrSlotLost is the cause of a context that was canceled because the slots of an
	// [InFlight] could not be renewed in time; see [Limiter.SlotContext].
	ErrSlotLost = errors.New("redislimit: the slot in flight was lost: it could not be renewed in time")
	// ErrNeverAdmitted says that a Wait would never end: the cost is above the
	// capacity.
	ErrNeverAdmitted = errors.New("redislimit: the cost is above the capacity")
	// ErrUnavailable says that Redis could not answer. It wraps the cause.
	ErrUnavailable = errors.New("redislimit: redis is unavailable")
	// ErrUnsupported says that the server answers, but is too old or lacks what the
	// scripts need: waiting does not help. It comes with ErrUnavailable.
	ErrUnsupported = server.ErrUnsupported
)
