// Package limits makes limits of every registered algorithm, so that each suite and
// tool runs over all of them, without a list of its own.
package limits

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/hook"
)

// A Variant is an algorithm in one of its forms.
type Variant struct {
	Name    string // "fixed_window", or "fixed_window_aligned"
	Kind    *algorithm.Kind
	Aligned bool
}

// Settings are what the options of a limit set; zero is the default.
type Settings struct {
	Burst int64
	Name  string
}

// All returns every variant of every registered algorithm.
func All() []Variant {
	var all []Variant
	for _, k := range algorithm.Kinds {
		all = append(all, Variant{k.Name, k, false})
		if k.Aligns {
			all = append(all, Variant{k.Name + "_aligned", k, true})
		}
	}
	return all
}

// Named returns the Variant of a name. It panics if there is none.
func Named(name string) Variant {
	for _, v := range All() {
		if v.Name == name {
			return v
		}
	}
	panic("limits: no algorithm is called " + name)
}

// Limit returns a limit whose capacity is the rate's count.
func (v Variant) Limit(r core.Rate) core.Limit {
	if v.Kind.Bucket {
		return v.With(r, Settings{Burst: r.Count()})
	}
	return v.With(r, Settings{})
}

// With returns a limit with settings. Those that the algorithm does not take are
// ignored.
func (v Variant) With(r core.Rate, s Settings) core.Limit {
	all := hook.LimitSettings{Aligned: v.Aligned, Name: s.Name}
	if v.Kind.Bucket {
		all.Burst = s.Burst
	}
	return hook.NewLimit(v.Kind, r.Count(), r.Period(), all).(core.Limit)
}
