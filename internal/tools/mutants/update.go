package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// folder is the folder of the lists.
const folder = "internal/tools/mutants"

// updateLists updates the mutants that are found by other names: it writes the names that the code has now into the lists.
func updateLists(all []mutant) error {
	var replace []string
	for _, m := range all {
		if c, err := m.apply(); err == nil && c.old != m.old {
			replace = append(replace, m.lines(), mutant{name: m.name, old: c.old, new: c.new}.lines())
		}
	}
	replacer := strings.NewReplacer(replace...)
	paths, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	for _, path := range paths {
		text, readErr := os.ReadFile(path)
		updated := replacer.Replace(string(text))
		if err = errors.Join(err, readErr); updated != string(text) {
			fmt.Println("updated:", path)
			err = errors.Join(err, os.WriteFile(path, []byte(updated), 0o600)) // the file exists, so its mode does not change
		}
	}
	return err
}

// lines returns m as it is written in a list.
func (m mutant) lines() string {
	return "== " + m.name + "\n-" + strings.ReplaceAll(m.old, "\n", "\n-") + "\n+" + strings.ReplaceAll(m.new, "\n", "\n+") + "\n"
}
