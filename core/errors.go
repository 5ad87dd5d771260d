package core

import (
	"errors"

	"github.com/redislimit/redislimit/internal/diagnose"
)

// The errors of a [Limiter], matched with [errors.Is]. A denial is a [Result] and never an error; a
// context that ended gives the context's own error. Other errors say what is wrong in the program:
// a call that the Limiter refuses, or a hook of the Redis client that panicked. [Limiter.Check] can
// also return advice.
var (
	// ErrInvalidCost says that the cost was negative, or that it was above the largest cost that
	// Settle accepts.
	ErrInvalidCost = errors.New("redislimit: the cost is not allowed")
	// ErrInvalidKey says that the key was empty.
	ErrInvalidKey = errors.New("redislimit: the key must not be empty")
	// ErrSlotLost is the cause of a context that was canceled because the slots of an [InFlight]
	// could not be renewed in time, or because Redis has lost them; see [Permit.Context].
	ErrSlotLost = errors.New("redislimit: the slot in flight was lost: it could not be renewed in time")
	// ErrNeverAdmitted says that a Wait would never end: the cost is above the capacity.
	ErrNeverAdmitted = errors.New("redislimit: the cost is above the capacity")
	// ErrUnavailable says that Redis could not answer, or that this process was too busy to ask it in
	// time. The error that is returned also wraps the cause, if there is one.
	ErrUnavailable = errors.New("redislimit: redis is unavailable")
	// ErrUnsupported says that the server answers, but is too old or lacks what the scripts need:
	// waiting does not help. If a method returns an error that is ErrUnsupported, the error is also
	// ErrUnavailable.
	ErrUnsupported = diagnose.ErrUnsupported
)

// errNoParts is the error of AllowUpTo for a Limiter with a limit that cannot grant a part of the units.
var errNoParts = errors.New("redislimit: AllowUpTo cannot grant a part of a place in a LeakyBucket's queue, or of a slot of InFlight: " +
	"use AllowN or Acquire")

// errNeedsEnd is the error of methods that return only a Result: the caller could not free the slots.
var errNeedsEnd = errors.New("redislimit: slots of InFlight are taken until the work ends: use Acquire or AcquireWait")
