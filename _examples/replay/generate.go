package main

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// A visitor is a client of a generated log. It comes again and again, and sends several requests in each visit, one after the other.
type visitor struct {
	address, agent string
	each           int           // how many requests a visit has on average
	gap            time.Duration // the time between two requests, on average
}

const (
	browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
	perHead = 125 // how many requests of a log are for each person
)

// heavy are the clients of a generated log that are not people. Each of them sends a 64th of the requests.
var heavy = []visitor{
	{"203.0.113.7", "python-requests/2.32", 3000, 150 * time.Millisecond},
	{"203.0.113.99", "Scrapy/2.11", 8000, 220 * time.Millisecond},
	{"198.51.100.23", "curl/8.5.0", 600, 90 * time.Millisecond},
	{"2001:db8::17", "Go-http-client/2.0", 2000, 250 * time.Millisecond},
}

// paths are the paths of the requests in a generated log.
var paths = []string{"/", "/items", "/items/17", "/cart", "/search?q=lamp", "/static/app.js", "/static/style.css", "/api/prices"}

// generate writes n lines of nginx's combined format: a day of a shop. The same n always gives the same lines.
func generate(w *bufio.Writer, n int) error {
	type line struct {
		at   time.Duration // since midnight
		from *visitor
	}
	r := rand.New(rand.NewPCG(uint64(n), 28))
	all := make([]line, 0, n)
	visit := func(v *visitor, most int) {
		at := timeOfDay(r)
		for range min(1+r.IntN(2*v.each), most) {
			if at >= 24*time.Hour {
				return
			}
			all = append(all, line{at, v})
			at += time.Duration(2 * r.Float64() * float64(v.gap))
		}
	}
	for i := range heavy {
		for share := (i + 1) * n / 64; len(all) < share; {
			visit(&heavy[i], share-len(all))
		}
	}
	people := make([]visitor, max(1, n/perHead))
	for i := range people {
		people[i] = visitor{fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), browser, 12, 4 * time.Second}
	}
	for len(all) < n {
		visit(&people[r.IntN(len(people))], n-len(all))
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	midnight := time.Date(2026, 11, 16, 0, 0, 0, 0, time.UTC)
	for _, l := range all {
		_, err := fmt.Fprintf(w, "%s - - [%s] \"GET %s HTTP/1.1\" 200 %d \"-\" \"%s\"\n",
			l.from.address, midnight.Add(l.at).Format(layouts[0]), paths[r.IntN(len(paths))], 200+r.IntN(9000), l.from.agent)
		if err != nil {
			return err
		}
	}
	return nil
}

// timeOfDay returns a random time since midnight, most often in the afternoon.
func timeOfDay(r *rand.Rand) time.Duration {
	for {
		at := r.Float64()
		if r.Float64() < 0.55-0.45*math.Cos(2*math.Pi*(at-0.1)) {
			return time.Duration(at * float64(24*time.Hour))
		}
	}
}
