package core

// A Decision is the decision of a [Limiter] in the form in which the call returned it: a [Result], a
// [*Permit] or a [*Reservation]. After an error, the Permit or the Reservation is nil. A handler that
// calls a Limiter itself passes the Decision to the Answerer of its adapter. Only types of this
// package are Decisions.
type Decision interface {
	// Decided returns the Result, or the zero Result if nothing was decided.
	Decided() Result

	isDecision()
}

// Decided returns r: a Result is a [Decision].
func (r Result) Decided() Result { return r }

func (Result) isDecision() {}

// Decided returns the Result of p, or the zero Result if p is nil: a Permit is a [Decision].
func (p *Permit) Decided() Result { return (*admission)(p).decided() }

// Decided returns the Result of r, or the zero Result if r is nil: a Reservation is a [Decision].
func (r *Reservation) Decided() Result { return (*admission)(r).decided() }

func (a *admission) decided() Result {
	if a == nil {
		return Result{}
	}
	return a.Result
}
