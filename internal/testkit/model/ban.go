package model

import "math/big"

// longestBan bounds a ban, in µs: however large a debt is, a ban ends within a year.
const longestBan = 365 * 24 * 3600 * 1_000_000

// bans has the bans of one key. The model remembers only when the last ban ends, how long it lasts, and how many bans there
// were since all levels were last forgotten.
type bans struct {
	levels       []int64
	count        int
	until, lasts int64
}

// Ban makes denials ban the key. The first ban lasts for the first of these times, in µs, or until the denied call would be
// admitted if that is later. A denial after the end of a ban bans for the next time. The last time repeats.
func (m *Model) Ban(levels ...int64) { m.bans.levels = levels }

// Block bans by hand. The level of escalation does not change.
func (m *Model) Block(now, lasts int64) {
	m.bans.forget(now)
	m.bans.until, m.bans.lasts = now+lasts, lasts
}

// BlockAtLeast bans by hand. It shortens neither a ban nor the time until the levels are forgotten.
func (m *Model) BlockAtLeast(now, lasts int64) {
	m.bans.forget(now)
	if now+lasts > m.bans.until {
		m.bans.until, m.bans.lasts = now+lasts, max(m.bans.lasts, lasts)
	}
}

// Unblock ends a ban, and forgets the levels. The loss of the key of the ban has the same effect.
func (m *Model) Unblock() { m.bans = bans{levels: m.bans.levels} }

// forget resets all levels together, if after the end of the last ban as much time has passed without a denial as that ban
// lasted.
func (b *bans) forget(now int64) {
	if now >= b.until+b.lasts {
		*b = bans{levels: b.levels}
	}
}

// begin bans the key because of a denial. The denied call would be admitted from the instant admitted on.
func (b *bans) begin(now, admitted int64) {
	b.forget(now)
	lasts := b.levels[min(b.count, len(b.levels)-1)]
	b.lasts = min(max(lasts, admitted-now), longestBan)
	b.until, b.count = now+b.lasts, b.count+1
}

// banned makes out say that the key is banned: all limits deny, and their state is hidden.
func (m *Model) banned(now int64, out *Outcome) {
	left := whole(m.bans.until - now)
	*out = Outcome{Banned: true}
	for _, l := range m.limits {
		out.Each = append(out.Each, Verdict{At: now, Limit: l.capacity(), RetryAfter: left, ResetAfter: left, Delay: new(big.Rat)})
	}
}

// counts reports whether a denial of n units bans, and from which instant on the units would be admitted if nothing else
// were charged and nothing were held. A denial bans if some limit denies the units because of its charged units alone, and
// no limit denies them forever.
func (m *Model) counts(now, n int64) (from int64, bans bool) {
	for i, l := range m.limits {
		if n > l.capacity() {
			return 0, false
		}
		s := &state{store: m.states[i].store}
		if v := judge(l, s, now, n); !v.Admits {
			from, bans = max(from, v.At+ceil(v.RetryAfter)), true
		}
	}
	return from, bans && len(m.bans.levels) > 0
}

// BanEnds returns when the last ban ends, and when all levels are forgotten.
func (m *Model) BanEnds() (until, forgotten int64) { return m.bans.until, m.bans.until + m.bans.lasts }
