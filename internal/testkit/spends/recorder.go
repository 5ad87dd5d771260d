package spends

import "slices"

// A Recorder records a History while it happens. Its clock is the clock by which a limiter decides, and may step back.
type Recorder struct {
	Limit   Limit
	History History

	now, elapsed int64
	step         int
	held         []held
}

// held is a spend that is reserved and not settled yet.
type held struct {
	spend  int
	expiry int64 // by the clock
}

// NewRecorder returns a Recorder whose clock is at now.
func NewRecorder(l Limit, now int64) *Recorder { return &Recorder{Limit: l, now: now} }

// Next moves the clock by d and begins a step, at which expired holds are charged. The caller calls it before the limiter
// does anything at that step. The function at returns the instant at which the limiter charges a hold that expires at the
// given instant.
func (r *Recorder) Next(d int64, at func(int64) int64) {
	r.now += d
	r.elapsed += max(0, d)
	r.step++
	r.held = slices.DeleteFunc(r.held, func(h held) bool {
		if h.expiry > r.now {
			return false
		}
		s := &r.History.Spends[h.spend]
		s.Charged = r.step
		if r.Limit.Kind != Bucket {
			s.Until = at(h.expiry)
		}
		return true
	})
}

// Allow records units that were admitted and charged at an instant. It returns the number of the spend.
func (r *Recorder) Allow(at, units int64) int {
	i := r.Reserve(at, at, units)
	if r.Limit.Kind == Bucket {
		r.History.Spends[i].Until = r.elapsed
	}
	r.held = r.held[:len(r.held)-1]
	r.History.Spends[i].Charged = r.step
	return i
}

// Reserve records units that were admitted at an instant and held until an expiry. It returns the number of the spend.
func (r *Recorder) Reserve(at, expiry, units int64) int {
	s := Spend{Units: units, Step: r.step, From: at, Until: max(at, expiry)}
	if r.Limit.Kind == Bucket {
		s.From, s.Until = r.elapsed, r.elapsed+expiry-r.now
	}
	r.History.Spends = append(r.History.Spends, s)
	i := len(r.History.Spends) - 1
	r.held = append(r.held, held{i, expiry})
	return i
}

// Settle records the actual cost of a spend, and the instant at which it was charged. The units of a spend that has expired
// count as spent, whatever its actual cost is.
func (r *Recorder) Settle(i int, actual, at int64) {
	s := &r.History.Spends[i]
	if r.Limit.Kind == Bucket {
		at = r.elapsed
	}
	if actual > s.Units {
		r.History.Debts = append(r.History.Debts, Debt{Units: actual - s.Units, Step: r.step, At: at})
	}
	if s.Charged > 0 {
		return
	}
	s.Units, s.Until, s.Charged = min(actual, s.Units), min(s.Until, at), r.step
	r.held = slices.DeleteFunc(r.held, func(h held) bool { return h.spend == i })
}

// Refund records that the units of a spend were not spent.
func (r *Recorder) Refund(i int) { r.History.Spends[i].Units = 0 }

// Reset records that the charged units were forgotten.
func (r *Recorder) Reset() { r.History.Resets = append(r.History.Resets, r.step) }

// Open records a window when it is opened. Recording it again has no effect.
func (r *Recorder) Open(w Window) {
	if n := len(r.History.Opened); n == 0 || r.History.Opened[n-1] != w {
		r.History.Opened = append(r.History.Opened, w)
	}
}

// Judge returns an error if the last spend, admitted at this step, went beyond the limit.
func (r *Recorder) Judge() error {
	n := len(r.History.Spends)
	if n == 0 || r.History.Spends[n-1].Step != r.step {
		return nil
	}
	return JudgeAt(r.Limit, r.History, r.History.Spends[n-1])
}
