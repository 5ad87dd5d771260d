package core

import "errors"

// The errors of a [Limiter], matched with [errors.Is]. A denial is a [Result] and
// never an error; a context that ended gives the context's own error.
var (
	// ErrInvalidCost says that the cost was negative.
	ErrInvalidCost = errors.New("redislimit: the cost must not be negative")
	// ErrInvalidKey says that the key was empty.
	ErrInvalidKey = errors.New("redislimit: the key must not be empty")
	// ErrInvalidResult says that a Result given to Refund is not of this Limiter and
	// key.
	ErrInvalidResult = errors.New("redislimit: the Result is not of this limiter and key")
	// ErrNeverAdmitted says that a Wait would never end: the cost is above the
	// capacity.
	ErrNeverAdmitted = errors.New("redislimit: the cost is above the capacity")
	// ErrUnavailable says that Redis could not answer. It wraps the cause.
	ErrUnavailable = errors.New("redislimit: redis is unavailable")
)
