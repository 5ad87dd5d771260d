package spends

import "slices"

// A Recorder writes a History while the events happen. It has a clock, the one by which a limiter decides, which
// may step back.
type Recorder struct {
	Limit   Limit
	History History

	now, elapsed int64 // the time of the clock, and how far it has moved forward in total
	step         int
	held         []held
}

// held is a Spend whose units are reserved, and neither settled nor expired.
type held struct {
	spend  int   // the index of the Spend in History.Spends
	expiry int64 // by the clock
}

// NewRecorder returns a Recorder whose clock is at now.
func NewRecorder(l Limit, now int64) *Recorder { return &Recorder{Limit: l, now: now} }

// Next moves the clock by d, which may be negative, and begins a step. At this step, the reserved units that have
// expired are charged. Next must be called before the limiter does anything at the step. at takes an expiry, and
// returns the instant at which the limiter charges units that expire then.
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

// Allow records units that were admitted and charged at an instant. It returns the index of the Spend.
func (r *Recorder) Allow(at, units int64) int {
	i := r.Reserve(at, at, units)
	if r.Limit.Kind == Bucket {
		r.History.Spends[i].Until = r.elapsed
	}
	r.held = r.held[:len(r.held)-1]
	r.History.Spends[i].Charged = r.step
	return i
}

// Reserve records units that were admitted at the instant at, and are held until expiry. It returns the index of
// the Spend.
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

// Settle records the actual cost of the Spend with index i, and the instant at which that cost was charged. If the
// units have expired, all of them count as spent, whatever the actual cost is.
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

// Refund records that the units of the Spend with index i were not spent.
func (r *Recorder) Refund(i int) { r.History.Spends[i].Units = 0 }

// Reset records that the charged units were forgotten at this step.
func (r *Recorder) Reset() { r.History.Resets = append(r.History.Resets, r.step) }

// Open records that w was opened, unless w is the window that was recorded last.
func (r *Recorder) Open(w Window) {
	if n := len(r.History.Opened); n == 0 || r.History.Opened[n-1] != w {
		r.History.Opened = append(r.History.Opened, w)
	}
}

// Judge returns an error if the last admission of this step exceeded the limit.
func (r *Recorder) Judge() error {
	n := len(r.History.Spends)
	if n == 0 || r.History.Spends[n-1].Step != r.step {
		return nil
	}
	return JudgeAt(r.Limit, r.History, r.History.Spends[n-1])
}
