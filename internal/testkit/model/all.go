package model

// An Asked is a key that is asked together with others, on a cost of its own.
type Asked struct {
	*Model

	N int64
}

// All answers a call about several keys: it is charged in each if all admit, else in none. Each outcome has what its own
// limits answer. While a key is banned the outcomes of those that are not have no verdicts.
func All(now int64, keys ...Asked) (all []Outcome, allowed bool) {
	all, banned, allowed := make([]Outcome, len(keys)), false, true
	for i, k := range keys {
		if now < k.bans.until {
			k.banned(now, &all[i])
			banned = true
		}
	}
	if banned {
		return all, false
	}
	for i, k := range keys {
		expire(now, k.limits, k.states)
		all[i] = k.evaluate(now, k.N)
		allowed = allowed && all[i].Allowed
	}
	for i, k := range keys {
		from, bans := k.counts(now, k.N)
		switch {
		case allowed:
			all[i] = k.Decide(now, k.N)
		case bans && !all[i].Allowed:
			k.bans.begin(now, from)
			k.banned(now, &all[i])
		}
	}
	return all, allowed
}
