package model

import (
	"maps"
	"slices"
)

// EveryLimit returns a limit of 5 per 100 µs of every algorithm that has a model.
func EveryLimit() []Limit {
	all := []Limit{{Algorithm: FixedWindow, Count: 5, Period: 100, Aligned: true}}
	for _, name := range slices.Sorted(maps.Keys(algorithms)) {
		l := Limit{Algorithm: name, Count: 5, Period: 100}
		if l.bucket() {
			l.Burst = 5
		}
		all = append(all, l)
	}
	return all
}
