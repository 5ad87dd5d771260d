package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// writeTable writes a cell's figures as a Markdown table. Each figure is followed by its ratios to raw INCR and to
// the best peer, in parentheses.
func writeTable(w io.Writer, r result) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\nMeanwhile other processes took %.0f %% of the CPU.\n\n| contender |", r.cell, r.others)
	for _, m := range metrics() {
		fmt.Fprintf(&b, " %s |", m.title)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("--:|", len(metrics())))
	for _, s := range r.all {
		fmt.Fprintf(&b, "| %s |", s.name)
		for i, m := range metrics() {
			fmt.Fprintf(&b, " %s |", s.text(i, m))
		}
		b.WriteString("\n")
	}
	_, _ = io.WriteString(w, b.String()) // usually to a terminal
}

func (s *summary) text(i int, m metric) string {
	if m.plain {
		return fixed(s.value[i], m.digits)
	}
	return fmt.Sprintf("%s (%s, %s)", fixed(s.value[i], m.digits), ratio(s.toIncr[i]), ratio(s.toPeer[i]))
}

// fixed writes v with the given number of digits after the point, and with fewer if v is large. It writes – for NaN.
func fixed(v float64, digits int) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 1000:
		return grouped(v)
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = min(digits, 1)
	}
	return fmt.Sprintf("%.*f", digits, v)
}

// ratio writes v with two significant digits if it is below 10, and otherwise as a whole number.
func ratio(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return grouped(v)
}

// grouped writes v as a whole number with commas, such as 12,345.
func grouped(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
