package main

import (
	_ "embed"
	"fmt"
	"go/format"
	"strings"
	"text/template"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/limits"
)

//go:embed program.go.tmpl
var programText string

// expression returns the limit as a Go expression.
func (n numbers) expression() string {
	if n.variant.Kind.Slots {
		return fmt.Sprintf("core.%s(%d)", limits.Constructor(n.variant.Kind), n.rate)
	}
	arguments := []string{fmt.Sprintf("core.Per(%d, %d*time.Second)", n.rate, int(n.period/time.Second))}
	if n.variant.Kind.Bursts {
		arguments = append(arguments, fmt.Sprintf("core.Burst(%d)", n.burst))
	}
	if n.variant.Aligned {
		arguments = append(arguments, "core.Aligned()")
	}
	return fmt.Sprintf("core.%s(%s)", limits.Constructor(n.variant.Kind), strings.Join(arguments, ", "))
}

// lines returns the limits of a plan, and its option, as Go expressions.
func (p plan) lines() []string {
	var lines []string
	for _, n := range p.limits {
		lines = append(lines, n.expression())
	}
	if p.code != "" {
		lines = append(lines, p.code)
	}
	return lines
}

// program returns a Go program that uses the limits of a plan.
func (p plan) program() string {
	var b strings.Builder
	t := template.Must(template.New("program").Parse(programText))
	lines := p.lines()
	values := map[string]any{"Lines": lines, "Memory": p.memory, "Timed": strings.Contains(strings.Join(lines, ""), "time.")}
	if p.cost > 1 { // otherwise the default applies
		values["Cost"] = p.cost
	}
	if err := t.Execute(&b, values); err != nil {
		panic(err) // not reached, because the template is tested
	}
	formatted, err := format.Source([]byte(b.String()))
	if err != nil {
		panic(err) // not reached either
	}
	return string(formatted)
}
