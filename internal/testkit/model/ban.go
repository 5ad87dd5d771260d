package model

import "math/big"

// longestBan bounds a ban, in µs: however far a debt reaches, it ends within a year.
const longestBan = 365 * 24 * 3600 * 1_000_000

// bans has the bans of one key. The model remembers one line about them: when the last ends, how long it
// lasts, and how many there were before all were forgotten.
type bans struct {
	levels       []int64
	count        int
	until, lasts int64
}

// Ban makes denials ban the key: for the first of these times, in µs, or until it would be admitted if that
// is later; denied again after that, for the next. The last one repeats.
func (m *Model) Ban(levels ...int64) { m.bans.levels = levels }

// Block bans by hand. The level of escalation stays.
func (m *Model) Block(now, lasts int64) {
	m.bans.forget(now)
	m.bans.until, m.bans.lasts = now+lasts, lasts
}

// BlockAtLeast bans by hand. It shortens neither a ban nor the memory of the level of escalation.
func (m *Model) BlockAtLeast(now, lasts int64) {
	m.bans.forget(now)
	if now+lasts > m.bans.until {
		m.bans.until, m.bans.lasts = now+lasts, max(m.bans.lasts, lasts)
	}
}

// Unblock ends a ban, and its levels. So does the loss of the key that has them.
func (m *Model) Unblock() { m.bans = bans{levels: m.bans.levels} }

// forget forgets all levels together, once nothing was denied for as long as the last ban lasted, after its end.
func (b *bans) forget(now int64) {
	if now >= b.until+b.lasts {
		*b = bans{levels: b.levels}
	}
}

// begin bans the key because of a denial of what would be admitted from an instant on.
func (b *bans) begin(now, admitted int64) {
	b.forget(now)
	lasts := b.levels[min(b.count, len(b.levels)-1)]
	b.lasts = min(max(lasts, admitted-now), longestBan)
	b.until, b.count = now+b.lasts, b.count+1
}

// banned makes out say that the key is banned: all limits deny, and their state is not shown.
func (m *Model) banned(now int64, out *Outcome) {
	left := whole(m.bans.until - now)
	*out = Outcome{Banned: true}
	for _, l := range m.limits {
		out.Each = append(out.Each, Verdict{At: now, Limit: l.capacity(), RetryAfter: left, ResetAfter: left, Delay: new(big.Rat)})
	}
}

// counts reports whether a denial of n units bans, and from when on they would be admitted if nothing
// else came and nothing were held: some limit denies them by what is charged alone, and none for ever.
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
