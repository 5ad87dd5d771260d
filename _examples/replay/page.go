package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"math/bits"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redislimit/redislimit/internal/demo/look"
	"github.com/redislimit/redislimit/limittest"
)

//go:embed page.html.tmpl
var pageTemplate string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":     func() template.CSS { return template.CSS(look.CSS) },
	"share":   share,
	"grouped": grouped,
}).Parse(pageTemplate))

// A view contains the data of the page. html/template escapes the text that clients have put into keys.
type view struct {
	*analysis

	Summary  []string
	Deny     float64
	Limits   []limitView
	Instants []string // the labels of the time axis
	Came     string   // the path of the requests
	Most     string   // the height of the picture, in words
}

type limitView struct {
	*judged

	Limit, Wait, Peak, Period string
	Requests, KeysDenied      string
	Path, Words               string
	Rows                      []row
	Top                       []limittest.KeyReport
	Smallest                  []smallestView
}

// A smallestView describes one of the smallest limits.
type smallestView struct{ Of, Limit, Requests, Keys string }

// A row describes the keys that use about as much.
type row struct {
	Range            string
	Keys, Requests   int64
	KeyBar, ShareBar float64 // percentages
	Above            bool    // whether the keys use more than the limit
}

func writePage(name string, a *analysis) error {
	var text strings.Builder
	if err := page.Execute(&text, a.view()); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text.String()), 0o600) // only for the user, because it contains keys
}

func (a *analysis) view() view {
	most := slices.Max(a.came[:])
	span := a.last().Sub(a.first())
	v := view{analysis: a, Summary: a.summary(), Deny: a.deny, Came: area(a.came, most)}
	v.Most = fmt.Sprintf("up to %s in %s", count(int(most), "request"), period(max(span/slots, time.Second).Round(time.Second)))
	layout, rounded := "15:04:05", time.Second
	switch {
	case span > 48*time.Hour:
		layout, rounded = "2 Jan", time.Minute
	case span > 10*time.Minute:
		layout, rounded = "15:04", time.Minute
	}
	for i := range 5 {
		v.Instants = append(v.Instants, a.first().Add(time.Duration(i)*(span/4)).Round(rounded).Format(layout))
	}
	for i := range a.limits {
		v.Limits = append(v.Limits, a.limitView(&a.limits[i], most))
	}
	return v
}

func (a *analysis) limitView(j *judged, most int64) limitView {
	v := limitView{
		judged: j, Limit: j.limit.String(), Wait: j.wait(), Peak: j.peak(), Period: period(j.period),
		Requests: share(j.Denied, j.Arrivals), KeysDenied: share(int64(j.keysDenied), int64(len(j.Keys))),
		Path: area(j.denied, most), Rows: a.rows(j),
		Top: j.Keys[:max(0, min(a.top, j.keysDenied))],
	}
	worst := 0
	for i, n := range j.denied {
		if n > j.denied[worst] {
			worst = i
		}
	}
	v.Words = fmt.Sprintf("Most is denied in part %d of %d: %d of %d requests.", worst+1, slots, j.denied[worst], a.came[worst])
	for _, f := range j.smallest() {
		v.Smallest = append(v.Smallest, smallestView{f.of, f.text(), f.requests(j), f.keysOf(j)})
	}
	return v
}

// area returns the path of an area that draws numbers as steps, in a picture of 120 by 100.
func area(numbers [slots]int64, most int64) string {
	var path strings.Builder
	path.WriteString("M0 100")
	for i, n := range numbers {
		fmt.Fprintf(&path, "V%.1fH%d", 100-100*float64(n)/float64(most), i+1)
	}
	return path.String() + "V100z"
}

// rows groups the keys by how much they use within a period: up to 1, 2, 4, 8 and so on, and up to the limit.
func (a *analysis) rows(j *judged) []row {
	limit := j.limit.Rate().Count()
	edges := []int64{limit}
	for i := range bits.Len64(uint64(j.sorted[len(j.sorted)-1])) + 1 {
		edges = append(edges, 1<<i)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	rows := make([]row, len(edges))
	low := int64(1)
	for i, high := range edges {
		rows[i].Range = grouped(low) + "–" + grouped(high)
		if low == high {
			rows[i].Range = grouped(low)
		}
		rows[i].Above = low > limit
		low = high + 1
	}
	for _, k := range j.Keys {
		i, _ := slices.BinarySearch(edges, j.busiest[a.ids[k.Key]])
		rows[i].Keys++
		rows[i].Requests += k.Arrivals
	}
	mostKeys, mostRequests := int64(1), int64(1)
	for _, r := range rows {
		mostKeys, mostRequests = max(mostKeys, r.Keys), max(mostRequests, r.Requests)
	}
	for i := range rows {
		r := &rows[i]
		r.KeyBar, r.ShareBar = 100*float64(r.Keys)/float64(mostKeys), 100*float64(r.Requests)/float64(mostRequests)
	}
	used := func(r row) bool { return r.Keys > 0 }
	rows = rows[slices.IndexFunc(rows, used):]
	for !used(rows[len(rows)-1]) {
		rows = rows[:len(rows)-1]
	}
	return rows
}
