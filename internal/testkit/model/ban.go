package model

import "math/big"

// longestBan is the longest duration of a ban, in µs: a year, even if a debt takes longer to drain.
const longestBan = 365 * 24 * 3600 * 1_000_000

// bans has the bans of one key.
type bans struct {
	levels       []int64 // the durations of successive bans, in µs; empty if denials do not ban
	count        int     // how many denials have banned the key since its bans were last forgotten
	until, lasts int64   // when the last ban ends, and how long it lasts
}

// Ban makes denials ban the key. levels has the durations of its successive bans, in µs. The last one is also the
// duration of all further bans. A ban lasts longer if the denied call would be admitted only later.
func (m *Model) Ban(levels ...int64) { m.bans.levels = levels }

// Block bans the key by hand. The number of its bans so far stays as it is.
func (m *Model) Block(now, lasts int64) {
	m.bans.forget(now)
	m.bans.until, m.bans.lasts = now+lasts, lasts
}

// BlockAtLeast bans the key by hand, unless it is banned for longer already. The number of its bans is not forgotten
// sooner because of BlockAtLeast.
func (m *Model) BlockAtLeast(now, lasts int64) {
	m.bans.forget(now)
	if now+lasts > m.bans.until {
		m.bans.until, m.bans.lasts = now+lasts, max(m.bans.lasts, lasts)
	}
}

// Unblock ends a ban, and forgets all bans. A test also calls it when the Redis key of the ban is lost.
func (m *Model) Unblock() { m.bans = bans{levels: m.bans.levels} }

// forget forgets all bans together, if as much time has passed since the end of the last ban as that ban lasted.
func (b *bans) forget(now int64) {
	if now >= b.until+b.lasts {
		*b = bans{levels: b.levels}
	}
}

// begin bans the key because of a denial. admitted is the instant from which the denied call would be admitted.
func (b *bans) begin(now, admitted int64) {
	b.forget(now)
	lasts := b.levels[min(b.count, len(b.levels)-1)]
	b.lasts = min(max(lasts, admitted-now), longestBan)
	b.until, b.count = now+b.lasts, b.count+1
}

// banned makes out the Outcome of a call on a banned key: all limits deny, and their states are not shown.
func (m *Model) banned(now int64, out *Outcome) {
	left := whole(m.bans.until - now)
	*out = Outcome{Banned: true}
	for _, l := range m.limits {
		out.Each = append(out.Each, Verdict{At: now, Limit: l.capacity(), RetryAfter: left, ResetAfter: left, Delay: new(big.Rat)})
	}
}

// counts reports whether a denial of n units bans. That is so if some limit would deny them even if nothing were held,
// and if n is above the capacity of none. from is the instant from which they would be admitted if nothing were held
// and nothing else came.
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

// BanEnds returns when the last ban ends, and when all bans are forgotten.
func (m *Model) BanEnds() (until, forgotten int64) { return m.bans.until, m.bans.until + m.bans.lasts }
