package algorithm

import "fmt"

// MaxBan bounds a ban, in microseconds: however far a debt reaches, it ends within a year. So what
// is written is never foreign, though the clock may step back by weeks.
const MaxBan = 365 * 24 * 3600 * 1_000_000

// Bans say for how long the denials of a limiter ban a key, in microseconds: the first one, the
// next, and so on; the last repeats. Without any only Block does. A limiter without bans has nil.
type Bans []int64

// A Ban is one that a decision has found, or begun. The zero Ban is none.
type Ban struct {
	At, Until int64
	Began     bool // with this decision
}

// Observation returns b as an Observation, and Ban returns it again.
func (b Ban) Observation() Observation {
	o := Observation{At: b.At, A: b.Until}
	if b.Began {
		o.B = 1
	}
	return o
}

// Ban returns the Ban of which o is the Observation.
func (o Observation) Ban() Ban { return Ban{At: o.At, Until: o.A, Began: o.B > 0} }

// In memory the state of a key's ban is a State: A is until when it lasts, B how many there were
// before all were forgotten, and C how long it lasts. In Redis it is lua/bans.lua that does what
// this file does.

// Ban returns the ban of s that lasts at now.
func (s *State) Ban(now int64) Ban {
	if now >= s.A {
		return Ban{}
	}
	return Ban{At: now, Until: s.A}
}

// Begin bans s because of a denial at now of what would be admitted from an instant on.
func (b Bans) Begin(s *State, now, admitted int64) Ban {
	if s.forgotten(now) {
		s.B = 0
	}
	lasts := b[min(s.B, int64(len(b)-1))]
	s.C = min(max(lasts, admitted-now), MaxBan)
	s.A, s.B = now+s.C, min(s.B+1, maxUnits)
	return Ban{At: now, Until: s.A, Began: true}
}

// Block bans s by hand, for so long. The level stays. With atLeast neither the ban nor its level
// ends sooner for it.
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

// forgotten reports whether nothing was denied for as long as the last ban lasted, after its end.
func (s *State) forgotten(now int64) bool { return now >= s.A+s.C }

// BanMember is the limit of which such a State is in memory. It never decides.
var BanMember = Member{Kind: &Kind{}, Evaluator: banned{}}

type banned struct{ Evaluator }

// ResetAt returns when all is forgotten.
func (banned) ResetAt(s *State) int64 { return s.A + s.C }

// Usage has what is banned be evicted last.
func (banned) Usage(s *State, now int64) float64 {
	if now < s.A {
		return 2
	}
	return 1
}

// Bars returns from when on n units would be admitted by what is charged to s alone, if that denies
// them now.
func (m Member) Bars(s *State, now, n int64) (from int64, denies bool) {
	o, admits := m.Evaluate(s, now, n)
	if admits {
		return 0, false
	}
	return o.At + m.Outcome(o, n, false, false).RetryAfter, true
}

// DecodeBan reads the next of what a reply says of bans, and returns what follows.
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
