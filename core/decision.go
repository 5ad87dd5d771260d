package core

// A Decision is a [Result] or a [*Reservation], which may be nil after an error: the decision of a
// [Limiter] in whatever form the call returned it. A handler that asks a Limiter itself passes the
// Decision to the Answerer of its adapter. Only types of this package are Decisions.
type Decision interface {
	// Decided returns the Result, or the zero Result if nothing was decided.
	Decided() Result

	isDecision()
}

// Decided returns r: a Result is a [Decision].
func (r Result) Decided() Result { return r }

func (Result) isDecision() {}

// Decided returns the Result of r, or the zero Result if r is nil: a Reservation is a [Decision].
func (r *Reservation) Decided() Result {
	if r == nil {
		return Result{}
	}
	return r.Result
}
