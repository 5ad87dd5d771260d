package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"text/template"
	"time"

	"github.com/redislimit/redislimit/internal/demo/look"
	"github.com/redislimit/redislimit/internal/testkit/limits"
)

//go:embed style.css.tmpl
var styleTemplate string

//go:embed picture.svg.tmpl
var pictureTemplate string

// The sizes in a picture, in pixels. A picture is 520 wide. Scaled to the width of a phone, its smallest letters
// are still more than 9 pixels high.
const (
	plotLeft  = 46.0
	plotWidth = 456.0
	plotTop   = 24.0
	request   = 22.0 // the height of one request
)

// A figure is the data of the template.
type figure struct {
	Title, Desc   string
	Says          []string
	Holds, Parts  bool
	Panels        []figurePanel
	Height, Frame int
}

type figurePanel struct {
	Y                         int
	Label, Busiest            string
	Top, TopText              string
	Bottom                    string
	Area, Curve, Under, Holds string
	Levels                    []figureText
	Bounds                    []string
	Marks                     []figureMark
	Spans                     []figureText
	Ticks                     []figureText
	height, zero, plot        float64
}

// A figureText is a text and its position. Some texts also have a line.
type figureText struct{ X, Y, Text, Name, Class, Path string }

type figureMark struct{ Kind, X, Y string }

// draw runs the scenarios of the picture, and draws what they recorded.
func (p picture) draw(ctx context.Context, w *environment) (string, error) {
	f := figure{Title: p.title, Says: p.says}
	y, words := 132, []string{strings.Join(p.says, " ")}
	for _, panel := range p.panel {
		r, err := w.play(ctx, panel.scenario)
		if err != nil {
			return "", err
		}
		drawn := panel.draw(r)
		drawn.Y = y
		y += int(drawn.height)
		f.Panels = append(f.Panels, drawn)
		f.Holds = f.Holds || drawn.Holds != ""
		f.Parts = f.Parts || drawn.Under != ""
		words = append(words, panel.label+": "+r.inWords())
	}
	f.Desc, f.Height, f.Frame = strings.Join(words, " "), y, y-1
	return execute(pictureTemplate, f)
}

func execute(text string, data any) (string, error) {
	light, dark := look.Values()
	t := template.New("picture").Funcs(template.FuncMap{
		"line":  func(i int) int { return 61 + 20*i },
		"light": func(name string) (string, error) { return named(light, name) },
		"dark":  func(name string) (string, error) { return named(dark, name) },
	})
	template.Must(t.New("style").Parse(styleTemplate))
	var b strings.Builder
	err := template.Must(t.Parse(text)).Execute(&b, data)
	return b.String(), err
}

// named returns a color of the palette, or the typeface, by its name.
func named(values map[string]string, name string) (string, error) {
	if value, ok := values[name]; ok {
		return value, nil
	}
	return "", fmt.Errorf("no --%s in palette.css", name)
}

func (p panel) draw(r *record) figurePanel {
	f := figurePanel{
		Label: p.label, Top: p.top,
		Busiest: fmt.Sprintf("busiest 5 s: %d", r.busiest(5*time.Second)),
		zero:    plotTop + (p.room+1.5)*request,
	}
	f.plot = f.zero
	if p.falls { // denied requests are drawn below
		f.zero = plotTop + (p.room+1)*request
		f.plot = f.zero + 1.5*request
	}
	f.Bottom = pixels(f.plot)
	f.levels(p)
	f.curve(p, r)
	f.marks(p, r)
	below := f.plot + 19
	for at := time.Duration(0); at <= p.scenario.lasts; at += 5 * time.Second {
		f.Ticks = append(f.Ticks, tickAt(p.x(at), at, p.scenario.lasts, below))
	}
	if p.spans != nil {
		below += 25
		f.spans(p, r, below)
	}
	f.height = below + 24
	return f
}

// x returns the horizontal position of an instant.
func (p panel) x(at time.Duration) float64 {
	return plotLeft + plotWidth*at.Seconds()/p.scenario.lasts.Seconds()
}

func (f *figurePanel) levels(p panel) {
	for v := 0.0; v <= p.room; v++ {
		level := figureText{Class: "grid", Y: pixels(f.zero - v*request), Text: pixels(f.zero - v*request + 5)}
		switch v {
		case 0:
			level.Class, level.Name = "axis", "0"
		case p.room:
			level.Class, level.Name = "top", fmt.Sprint(v*p.scale)+p.unit
		}
		f.Levels = append(f.Levels, level)
	}
	f.TopText = pixels(f.zero - p.room*request - 7)
}

// curve draws the level and the area below it.
func (f *figurePanel) curve(p panel, r *record) {
	var line, under path
	for _, m := range r.levels {
		line = line.to(p.x(m.at), f.zero-p.level(m)*request)
		if p.under != nil {
			under = under.to(p.x(m.at), f.zero-p.under(r, m)*request)
		}
	}
	f.Curve, f.Area = line.String(), line.above(f.zero)
	if p.under != nil {
		f.Under = under.above(f.zero)
	}
}

// marks draws each request at the level that it reached, or that it would have reached if it was denied.
func (f *figurePanel) marks(p panel, r *record) {
	var holds strings.Builder
	for _, m := range r.requests {
		level, kind := p.level(m), "in"
		if !m.Allowed {
			kind = "out"
			if level++; p.falls {
				level -= 2
			}
		}
		f.Marks = append(f.Marks, figureMark{kind, pixels(p.x(m.at)), pixels(f.zero - level*request)})
		if p.waits(m) {
			if end := p.x(m.served()); end <= p.x(p.scenario.lasts) {
				before := f.zero - (level-1)*request
				fmt.Fprintf(&holds, "M%s %sL%s %s", pixels(p.x(m.at)), pixels(before), pixels(end), pixels(f.zero))
				f.Marks = append(f.Marks, figureMark{"done", pixels(end), pixels(f.zero)})
			}
		}
	}
	f.Holds = holds.String()
}

// waits reports whether m is a request that its limit may delay.
func (p panel) waits(m moment) bool {
	return m.Allowed && limits.Named(p.scenario.limit.Algorithm()).Kind.Delays
}

func (f *figurePanel) spans(p panel, r *record, y float64) {
	for _, s := range p.spans(r) {
		from, to := p.x(max(0, s.from)), p.x(min(s.to, p.scenario.lasts))
		text := figureText{X: pixels((from + to) / 2), Y: pixels(y + 4), Name: s.name}
		half := 5 + 4.1*float64(len(s.name)) // half the width of the name, in a wide font
		if 2*half > to-from {
			half, text.Name = 0, ""
		}
		text.Path = fmt.Sprintf("M%s %sV%sM%s %sH%sM%s %sH%s", pixels(from), pixels(y-6), pixels(y+6),
			pixels(from), pixels(y), pixels((from+to)/2-half), pixels((from+to)/2+half), pixels(y), pixels(to))
		if s.to <= p.scenario.lasts {
			text.Path += fmt.Sprintf("M%s %sV%s", pixels(to), pixels(y-6), pixels(y+6))
		}
		f.Spans = append(f.Spans, text)
		for _, at := range []time.Duration{s.from, s.to} {
			if at > 0 && at < p.scenario.lasts {
				f.Bounds = append(f.Bounds, pixels(p.x(at)))
			}
		}
	}
}
