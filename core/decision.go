package core

// A Decision is what a call of a [Limiter] decided, in the form in which the call returns it: a
// [Result], or a [*Reservation], which is nil after an error. A handler that asks a Limiter itself
// passes it on to the Answerer of its adapter. Only types of this package are Decisions.
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
