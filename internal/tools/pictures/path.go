package main

import (
	"fmt"
	"math"
	"strings"
	"time"
)

type point struct{ x, y float64 }

// A path is a line through points. It leaves out points on the straight line between their neighbors.
type path []point

func (p path) to(x, y float64) path {
	next := point{x, y}
	if n := len(p); n >= 2 && straight(p[n-2], p[n-1], next) {
		p[n-1] = next
		return p
	}
	return append(p, next)
}

// straight reports whether b is on the line from a to c, with a tolerance of a twentieth of a pixel.
func straight(a, b, c point) bool {
	length := math.Hypot(c.x-a.x, c.y-a.y)
	if length == 0 {
		return a == b
	}
	off := math.Abs((c.x-a.x)*(a.y-b.y)-(a.x-b.x)*(c.y-a.y)) / length
	return off < 0.05 && (b.x-a.x)*(c.x-b.x)+(b.y-a.y)*(c.y-b.y) >= 0
}

// above returns the area between the path and y.
func (p path) above(y float64) string {
	return fmt.Sprintf("%sV%sH%sz", p, pixels(y), pixels(p[0].x))
}

func (p path) String() string {
	var b strings.Builder
	for i, at := range p {
		b.WriteString(map[bool]string{true: "M", false: "L"}[i == 0])
		b.WriteString(pixels(at.x) + " " + pixels(at.y))
	}
	return b.String()
}

// inWords describes the record in words for screen readers.
func (r *record) inWords() string {
	var in, out []string
	for _, m := range r.requests {
		at := fmt.Sprint(m.at.Seconds())
		switch {
		case m.Allowed && m.Delay > 0:
			in = append(in, fmt.Sprintf("%s (served at %s)", at, fmt.Sprint(m.served().Round(100*time.Millisecond).Seconds())))
		case m.Allowed:
			in = append(in, at)
		default:
			out = append(out, at)
		}
	}
	return fmt.Sprintf("admitted at %s s; denied at %s s.", strings.Join(in, ", "), strings.Join(out, ", "))
}

// tickAt returns the label of an instant on the time axis. Only the last label has the unit.
func tickAt(x float64, at, lasts time.Duration, y float64) figureText {
	t := figureText{X: pixels(x), Y: pixels(y), Name: fmt.Sprint(at.Seconds()), Class: "mid"}
	if at == lasts {
		t.Name, t.Class = t.Name+" s", "end"
	}
	return t
}

// pixels formats v with one digit after the point. It rounds ties up, so that the result is the same on every
// processor.
func pixels(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", math.Floor(v*10+0.5+1e-6)/10), ".0")
}
