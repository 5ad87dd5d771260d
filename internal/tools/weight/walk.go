package main

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A walk has four numbers for a path: the functions, files, switches and returns of somebody who reads along it.
type walk [4]int

// An entry records that a goroutine entered a function.
type entry struct {
	goroutine int64
	function
}

// read parses the entries that the program of a path printed, and sorts them by goroutine.
func read(text string, functions []function) ([]entry, error) {
	var entered []entry
	order := make(map[int64]int) // of the goroutines' first entries
	for line := range strings.Lines(text) {
		var e entry
		var number int
		if _, err := fmt.Sscan(line, &e.goroutine, &number); err != nil {
			return nil, fmt.Errorf("the path printed %q: %w", line, err)
		}
		e.function = functions[number]
		if _, known := order[e.goroutine]; !known {
			order[e.goroutine] = len(order)
		}
		entered = append(entered, e)
	}
	slices.SortStableFunc(entered, func(a, b entry) int { return cmp.Compare(order[a.goroutine], order[b.goroutine]) })
	return entered, nil
}

// walks returns the walk through all packages, under the name "", and the walk through each package.
func walks(entered []entry) map[string]walk {
	byPackage := map[string][]entry{"": entered}
	for _, e := range entered {
		name := path.Dir(e.file)
		byPackage[name] = append(byPackage[name], e)
	}
	all := make(map[string]walk)
	for name, entered := range byPackage {
		all[name] = newWalk(entered)
	}
	return all
}

func newWalk(entered []entry) (w walk) {
	functions, files := make(map[function]bool), make(map[string]bool)
	var before entry
	for _, e := range entered {
		if e.goroutine != before.goroutine || e.file != before.file {
			w[2]++
			if files[e.file] {
				w[3]++
			}
		}
		functions[e.function], files[e.file] = true, true
		before = e
	}
	w[0], w[1] = len(functions), len(files)
	return w
}

// common returns the sorted names of the walks that at least half of the runs have.
func common(runs []map[string]walk) []string {
	count := make(map[string]int)
	for _, r := range runs {
		for name := range r {
			count[name]++
		}
	}
	maps.DeleteFunc(count, func(_ string, n int) bool { return 2*n < len(runs) })
	return slices.Sorted(maps.Keys(count))
}

// summary returns the median of each number of a walk. The smallest and the largest follow it if the runs differ.
func summary(runs []map[string]walk, name string) (figures []string) {
	for i := range (walk{}) {
		var values []int
		for _, r := range runs {
			values = append(values, r[name][i])
		}
		slices.Sort(values)
		text := fmt.Sprint(values[len(values)/2])
		if least, greatest := values[0], values[len(values)-1]; least != greatest {
			text += fmt.Sprintf(" (%d-%d)", least, greatest)
		}
		figures = append(figures, text)
	}
	return figures
}
