package algorithm

import "fmt"

// MaxBan bounds the duration of a ban, in microseconds. A ban ends within a year, however large a debt
// is. So a ban that a script has written is never foreign, even if the clock steps back by weeks.
const MaxBan = 365 * 24 * 3600 * 1_000_000

// Bans has the durations of a key's successive bans, in microseconds; the last one is used again and
// again. If Bans is empty, only Block bans. A limiter without bans has nil.
type Bans []int64

// A Ban is a ban that a decision has found or begun. The zero Ban means that the key is not banned.
type Ban struct {
	At, Until int64
	Began     bool // whether this decision has begun the ban
}

// Observation returns b in the form of an Observation, from which the method Ban returns b again.
func (b Ban) Observation() Observation {
	o := Observation{At: b.At, A: b.Until}
	if b.Began {
		o.B = 1
	}
	return o
}

// Ban returns the Ban whose method Observation returned o.
func (o Observation) Ban() Ban { return Ban{At: o.At, Until: o.A, Began: o.B > 0} }

// In memory, the ban of a key is a State: A is its end, B how many bans there were since the last time
// all were forgotten, and C its duration. In Redis, lua/bans.lua does what this file does.

// Ban returns the ban of s at now.
func (s *State) Ban(now int64) Ban {
	if now >= s.A {
		return Ban{}
	}
	return Ban{At: now, Until: s.A}
}

// Begin bans s because of a denial at now. The ban lasts at least until the given instant, from which on
// the denied request would be admitted.
func (b Bans) Begin(s *State, now, admitted int64) Ban {
	if s.forgotten(now) {
		s.B = 0
	}
	lasts := b[min(s.B, int64(len(b)-1))]
	s.C = min(max(lasts, admitted-now), MaxBan)
	s.A, s.B = now+s.C, min(s.B+1, maxUnits)
	return Ban{At: now, Until: s.A, Began: true}
}

// Block bans s by hand for a duration. The level stays. If atLeast is set, neither a longer ban nor its
// level ends sooner because of Block.
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

// forgotten reports whether nothing was denied after the last ban for as long as the ban lasted.
func (s *State) forgotten(now int64) bool { return now >= s.A+s.C }

// BanLimit is the limit to which the State of a ban belongs in memory. It never decides.
var BanLimit = Limit{Kind: &Kind{}, Evaluator: banned{}}

type banned struct{ Evaluator }

// ResetAt returns the instant at which the ban and its level are forgotten.
func (banned) ResetAt(s *State) int64 { return s.A + s.C }

// Usage makes banned keys the last ones to be evicted.
func (banned) Usage(s *State, now int64) float64 {
	if now < s.A {
		return 2
	}
	return 1
}

// Bars returns the instant from which on n units would be admitted if only the charges in s counted. It
// reports whether the charges alone deny them now.
func (m Limit) Bars(s *State, now, n int64) (from int64, denies bool) {
	o, admits := m.Evaluate(s, now, n)
	if admits {
		return 0, false
	}
	return o.At + m.Outcome(o, n, false, false).RetryAfter, true
}

// DecodeBan decodes the next ban in the part of a reply about bans, and returns the rest.
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
