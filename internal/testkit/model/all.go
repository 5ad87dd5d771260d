package model

// A Keyed is one of several keys that are decided together, with a cost of its own.
type Keyed struct {
	*Model

	N int64
}

// All decides on several keys together. If all limits of all keys admit, every key is charged; otherwise none is. Each
// Outcome has the verdicts of the limits of its own key. But if some of the keys were banned before, the Outcomes of the
// other keys have no verdicts.
func All(now int64, keys ...Keyed) (all []Outcome, allowed bool) {
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
