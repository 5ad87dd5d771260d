package algorithm

// InFlight limits how many units are in use at the same time. Its units are slots. Each slot is held until
// it is released, or until it expires because its holder does not renew it.
var InFlight = &Kind{
	Name: "in_flight", Tag: "inflight", Slots: true, Unleasable: "a slot is held until its work has ended", New: newInFlight,
	lua: readLua("in_flight", bansLua), work: func(int64) int64 { return 1 },
}

// HeldRetry is the longest RetryAfter, in microseconds, of a denial that is caused only by slots or
// held units: these may be given back at any time.
const HeldRetry = 1_000_000

// An inFlight decides for [InFlight]. Its only state is the holds of the State; see hold.go.
//
//	Observation  A the held units, set only by WithHeld; B and C are 0
//	State        A, B and C are 0
//	Handle       none for a charge, because slots are never charged
type inFlight struct{ limit int64 }

func newInFlight(l Numbers) Evaluator { return &inFlight{l.Burst} }

func (f *inFlight) Evaluate(_ *State, now, n int64) (Observation, bool) {
	return Observation{At: now}, n <= f.limit
}

func (f *inFlight) Outcome(o Observation, n int64, admits, charged bool) Outcome {
	var out Outcome
	switch {
	case n > f.limit:
		out.RetryAfter = Never
	case !admits && n > 0:
		out.RetryAfter = HeldRetry
	}
	held := o.A
	if charged {
		held += n
	}
	out.Remaining = max(0, f.limit-held)
	return out
}

func (f *inFlight) WithHeld(o Observation, _, held int64) Observation {
	o.A += held
	return o
}

func (f *inFlight) Constants() []any                       { return []any{f.limit} }
func (f *inFlight) Capacity() (units, window int64)        { return f.limit, 0 }
func (f *inFlight) Valid(o Observation) bool               { return o.A == 0 && o.B == 0 && o.C == 0 }
func (f *inFlight) Cost(args []any, n int64) []any         { return append(args, min(n, f.limit+1)) }
func (f *inFlight) ResetAt(*State) int64                   { return 0 }
func (f *inFlight) Usage(*State, int64) float64            { return 0 } // Limit.Usage adds the holds
func (f *inFlight) ChargeHandle(Observation, int64) Handle { return Handle{} }
func (f *inFlight) Charge(*State, Observation, int64)      {}
func (f *inFlight) Refund(*State, int64, int64, Handle)    {}

// Adopt does nothing, because holds do not depend on the numbers of the limit.
func (f *inFlight) Adopt(*State, Evaluator, int64) {}

// DeniedFor returns 0, because a slot may be released at any time.
func (f *inFlight) DeniedFor(Observation, int64, int64) int64 { return 0 }

// MaxCharge returns 0, because a slot that expires is free, and is not charged.
func (f *inFlight) MaxCharge(Observation, int64) int64 { return 0 }
