package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/redislimit/redislimit/internal/testkit/limits"
)

//go:embed program.go.tmpl
var programText string

// expression returns the limit of a plan in Go.
func (p plan) expression() string {
	arguments := []string{fmt.Sprintf("core.Per(%d, %d*time.Second)", p.rate, int(period.Seconds()))}
	if p.variant.Kind.Bucket {
		arguments = append(arguments, fmt.Sprintf("core.Burst(%d)", p.burst))
	}
	if p.variant.Aligned {
		arguments = append(arguments, "core.Aligned()")
	}
	return fmt.Sprintf("core.%s(%s)", limits.Constructor(p.variant.Kind), strings.Join(arguments, ", "))
}

// program returns a program that has the limit of a plan.
func (p plan) program() string {
	var b strings.Builder
	t := template.Must(template.New("program").Parse(programText))
	if err := t.Execute(&b, map[string]string{"Limit": p.expression(), "Option": p.code}); err != nil {
		panic(err) // not reached: the template is tested
	}
	return b.String()
}
