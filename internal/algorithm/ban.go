package algorithm

import "fmt"

// MaxBan is the longest duration of a ban, in microseconds: a year. A denial may be because of a debt
// that takes longer to drain, but its ban ends within a year all the same. So the end of a ban is never
// more than 400 days ahead, even if the clock steps back by weeks, and the ban never counts as a foreign
// value.
const MaxBan = 365 * 24 * 3600 * 1_000_000

// Bans has the durations of a key's successive bans, in microseconds: the first one for the first ban, and
// so on. The last one is also the duration of all further bans. If Bans is empty but not nil, only Block
// bans. A limiter without bans has nil.
type Bans []int64

// A Ban is a ban that a decision has found or begun. The zero Ban means that the key is not banned.
type Ban struct {
	At, Until int64 // the instant of the decision, and the instant at which the ban ends
	Began     bool  // whether this decision has begun the ban
}

// Observation returns an Observation that contains b. Its method Ban returns b again.
func (b Ban) Observation() Observation {
	o := Observation{At: b.At, A: b.Until}
	if b.Began {
		o.B = 1
	}
	return o
}

// Ban returns the Ban whose method Observation returned o.
func (o Observation) Ban() Ban { return Ban{At: o.At, Until: o.A, Began: o.B > 0} }

// In memory, the ban of a key is a State. A is the end of the last ban. B is its level: how many denials
// have banned the key since its bans were last forgotten. C is the duration of the last ban. In Redis,
// lua/bans.lua does what this file does.

// Ban returns the ban of s at now, or the zero Ban if it has ended.
func (s *State) Ban(now int64) Ban {
	if now >= s.A {
		return Ban{}
	}
	return Ban{At: now, Until: s.A}
}

// Begin begins a ban of s because of a denial at now. admitted is the instant from which the limits would
// admit the denied request. The ban does not end before admitted, unless it would be longer than MaxBan. b must
// not be empty.
func (b Bans) Begin(s *State, now, admitted int64) Ban {
	if s.forgotten(now) {
		s.B = 0
	}
	lasts := b[min(s.B, int64(len(b)-1))]
	s.C = min(max(lasts, admitted-now), MaxBan)
	s.A, s.B = now+s.C, min(s.B+1, maxUnits)
	return Ban{At: now, Until: s.A, Began: true}
}

// Block bans s by hand for the duration lasts, which must be above 0. The level stays as it is, unless the bans
// of s are forgotten. If atLeast is set, a ban that ends later is not shortened, and the level is not forgotten
// sooner.
func (s *State) Block(now, lasts int64, atLeast bool) {
	if s.forgotten(now) {
		s.B, s.C = 0, 0
	}
	switch until := now + lasts; {
	case !atLeast:
		s.A, s.C = until, lasts
	case until > s.A:
		s.A, s.C = until, max(s.C, lasts)
	}
}

// forgotten reports whether the bans of s are forgotten: as much time has passed since the end of the last
// ban as that ban lasted, without another ban. (After Block with atLeast, a longer ban before may count.)
func (s *State) forgotten(now int64) bool { return now >= s.A+s.C }

// BanLimit is the limit of an entry in memory that stores a ban, so that it is kept and evicted like other
// entries. BanLimit never decides.
var BanLimit = Limit{Kind: &Kind{}, Evaluator: banned{}}

type banned struct{ Evaluator }

// ResetAt returns the instant at which the ban and its level are forgotten.
func (banned) ResetAt(s *State) int64 { return s.A + s.C }

// Usage returns 2 during the ban and 1 after it. The keys with the smallest Usage are evicted first, so banned
// keys are evicted last.
func (banned) Usage(s *State, now int64) float64 {
	if now < s.A {
		return 2
	}
	return 1
}

// Bars reports whether the charges in s deny n units at now, without the held units. If so, from is the
// instant from which they would be admitted. n must be at most the capacity, because a larger n is never
// admitted. s still has its holds, so Bars relies on an Evaluate that does not look at them.
func (m Limit) Bars(s *State, now, n int64) (from int64, denies bool) {
	o, admits := m.Evaluate(s, now, n)
	if admits {
		return 0, false
	}
	return o.At + m.Outcome(o, n, false, false).RetryAfter, true
}

// DecodeBan decodes the first ban in n, the part of a reply about bans, and returns the rest of n. It returns
// ErrReply if the script never gives such a reply. n must have the length that SplitReply has checked.
func DecodeBan(n []int64) (b Ban, rest []int64, err error) {
	if rest = n[banReplyLen:]; n[0] == 0 {
		return b, rest, nil
	}
	b = Ban{At: n[1], Until: n[2], Began: n[0] == 2}
	if n[0] < 0 || n[0] > 2 || b.At < 0 || b.Until <= b.At || b.Until >= maxInstant {
		return Ban{}, nil, fmt.Errorf("%w: a ban of %v", ErrReply, n[:banReplyLen])
	}
	return b, rest, nil
}
