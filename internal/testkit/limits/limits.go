// Package limits makes limits of every registered algorithm, so that suites and tools cover all algorithms without lists of
// their own.
package limits

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/inside"
)

// A Variant is an algorithm in one of its forms.
type Variant struct {
	Name    string // "fixed_window", or "fixed_window_aligned"
	Kind    *algorithm.Kind
	Aligned bool
}

// Settings are the settings of a limit's options. A zero value stands for the default.
type Settings struct {
	Burst int64
	Name  string
}

// All returns every variant of every registered algorithm, except for the algorithms that limit slots and have no rate.
func All() []Variant {
	var all []Variant
	for _, k := range algorithm.Kinds {
		if k.Slots {
			continue
		}
		all = append(all, Variant{k.Name, k, false})
		if k.Aligns {
			all = append(all, Variant{k.Name + "_aligned", k, true}, Variant{k.Name + "_calendar", algorithm.Calendar, false})
		}
	}
	return all
}

// Slots returns the registered algorithms that limit slots. They have no rate, and their units are given back.
func Slots() []Variant {
	var all []Variant
	for _, k := range algorithm.Kinds {
		if k.Slots {
			all = append(all, Variant{k.Name, k, false})
		}
	}
	return all
}

// Aligned returns one variant of every registered algorithm: the one with aligned windows, if the algorithm has them.
func Aligned() []Variant {
	return slices.DeleteFunc(All(), func(v Variant) bool { return v.Kind.Aligns && !v.Aligned || v.Kind.Moves })
}

// Plain returns the variant of every registered algorithm that its constructor returns without options.
func Plain() []Variant {
	return slices.DeleteFunc(All(), func(v Variant) bool { return v.Aligned || v.Kind.Moves })
}

// Constructor returns the algorithm's name in Go and in the documents, such as
// "TokenBucket".
func Constructor(k *algorithm.Kind) string {
	switch k {
	case algorithm.GCRA:
		return "GCRA"
	case algorithm.Calendar:
		k = algorithm.FixedWindow
	}
	var name strings.Builder
	for word := range strings.SplitSeq(k.Name, "_") {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

// Named returns the Variant with this name. It panics if there is none.
func Named(name string) Variant {
	for _, v := range append(All(), Slots()...) {
		if v.Name == name {
			return v
		}
	}
	panic("limits: no algorithm is called " + name)
}

// Limit returns a limit whose capacity is the rate's count. A variant of Slots uses no other part of the rate.
func (v Variant) Limit(r core.Rate) core.Limit {
	if v.Kind.Bursts {
		return v.With(r, Settings{Burst: r.Count()})
	}
	return v.With(r, Settings{})
}

// With returns a limit with settings. It ignores settings that the algorithm does not have.
func (v Variant) With(r core.Rate, s Settings) core.Limit {
	all := coreaccess.LimitSettings{Aligned: v.Aligned, Name: s.Name}
	if v.Kind.Bursts {
		all.Burst = s.Burst
	}
	return inside.Core.NewLimit(v.Kind, r.Count(), r.Period(), all)
}

// Hold returns core.Hold(d), or no option if none of the limits can hold units, because New would refuse Hold then.
func Hold(d time.Duration, all ...core.Limit) core.Option {
	for _, l := range all {
		if k := Named(l.Algorithm()).Kind; !k.Slots && !k.Delays {
			return core.Hold(d)
		}
	}
	return core.Options()
}

// Key returns the last part of the Redis key of l, which follows "rl:limiter:{user's key}:".
func Key(l core.Limit) string { return inside.Core.LimitKey(l) }

// Accepts reports whether a Limiter can have the limit l: an algorithm may refuse rates that others accept.
func Accepts(l core.Limit) bool {
	_, err := core.NewMemory("try", l, core.MaxKeys(1))
	return err == nil
}

// Left returns how many units of each limit of lim remain for a key.
func Left(t testing.TB, lim *core.Limiter, key string) (left []int64) {
	t.Helper()
	res, err := lim.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	for each := range res.All() {
		left = append(left, each.Remaining)
	}
	return left
}
