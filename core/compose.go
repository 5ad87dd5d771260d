package core

import (
	"fmt"
	"strings"
)

// A composer puts a script together from the Lua files: what all begin with, the
// algorithms of the limits, and what is done with them. What a script does not need
// is left out, because Redis makes every function anew for each call.
type composer struct {
	text    strings.Builder
	refunds bool // what only a refund needs, too
	next    int  // where the next constants stand in ARGV
}

// decideSource composes the script that decides on limits. One limit does not pay
// for the generality that several need.
func decideSource(limits []Limit, deciders []decider) string {
	c := composer{next: 1}
	if len(limits) == 1 {
		c.addLibrary(limits[0].algorithm)
		c.addFile(limits[0].algorithm.script)
		c.addConstants(deciders[0])
		return c.finish(decideScript)
	}
	c.addTable(limits, deciders)
	return c.finish(decideAllScript)
}

// refundSource composes the script that gives back what was charged to limits.
func refundSource(limits []Limit, deciders []decider) string {
	c := composer{next: 1, refunds: true}
	c.addTable(limits, deciders)
	return c.finish(refundScript)
}

// addFile adds a file, once.
func (c *composer) addFile(file string) {
	if file = c.part(file); !strings.Contains(c.text.String(), file) {
		c.text.WriteString("\n" + file)
	}
}

// part is what is needed of a file: what only a refund needs stands at its end.
func (c *composer) part(file string) string {
	if !c.refunds {
		file, _, _ = strings.Cut(file, "\n-- refund")
	}
	return file
}

func (c *composer) addLibrary(a *algorithm) {
	c.addFile(stateLibrary)
	for _, file := range a.library {
		c.addFile(file)
	}
}

// addConstants makes numbers of a limit's constants in ARGV, once for a whole
// script.
func (c *composer) addConstants(d decider) {
	for _, constant := range d.constants() {
		if _, number := constant.(int64); number {
			fmt.Fprintf(&c.text, "\nARGV[%d] = tonumber(ARGV[%[1]d])", c.next)
		}
		c.next++
	}
}

// addTable adds the algorithms of the limits as a Lua table, each with the
// functions of its file and where its constants begin.
func (c *composer) addTable(limits []Limit, deciders []decider) {
	functions := "read = read, charge = charge"
	if c.refunds {
		functions += ", refund = refund"
	}
	var table strings.Builder
	table.WriteString("\nlocal algorithms = {")
	for i, l := range limits {
		c.addLibrary(l.algorithm)
		name := l.algorithm.name
		if !strings.Contains(c.text.String(), "function "+name) {
			fmt.Fprintf(&c.text, "\nlocal function %s(first)\n%s\nreturn { first = first, %s }\nend", name, c.part(l.algorithm.script), functions)
		}
		fmt.Fprintf(&table, "%s(%d), ", name, c.next)
		c.addConstants(deciders[i])
	}
	c.text.WriteString(table.String() + "}")
}

// finish ends the script with what is done: first is where the first decision's
// arguments begin.
func (c *composer) finish(body string) string {
	return fmt.Sprintf("%s\nlocal first = %d\n\n%s", c.text.String(), c.next, body)
}
