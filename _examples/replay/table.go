package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// text returns the tables that are printed.
func (a *analysis) text() string {
	var b strings.Builder
	b.WriteString(strings.Join(a.summary(), "\n") + "\n\n")
	limits := [][]string{{"limit", "requests denied", "keys denied", "longest wait", "peak use"}}
	for _, j := range a.limits {
		limits = append(limits, []string{
			j.limit.String(), share(j.Denied, j.Arrivals), share(int64(j.keysDenied), int64(len(j.Keys))), j.wait(), j.peak(),
		})
	}
	align(&b, limits)
	for i := range a.limits {
		a.limits[i].writeTop(&b, a.top)
	}
	a.writeUse(&b)
	a.writeSmallest(&b)
	return b.String()
}

// align writes a table.
func align(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, strings.Join(row, "\t")+"\n")
	}
	_ = w.Flush()
}

// summary describes what was read.
func (a *analysis) summary() []string {
	span := a.last().Sub(a.first()).Round(time.Second)
	lines := []string{
		fmt.Sprintf("%s of %s by %s in %v: %s to %s UTC", count(len(a.requests), "request"), count(len(a.keys), "key"), strings.Join(a.fields, " or "), span,
			a.first().Format(time.DateTime), a.last().Format(time.DateTime)),
		a.leftOut(),
	}
	if n, example := a.strangers(); 2*n > len(a.keys) {
		lines = append(lines, fmt.Sprintf("WARNING: %s of %s are no addresses, such as %q: is this the client? -key names another field",
			grouped(int64(n)), count(len(a.keys), "key"), example))
	}
	if a.late > 0 {
		lines = append(lines, fmt.Sprintf("%s out of order, by %v at most; they are sorted", plural(a.late, "request was", "requests were"), a.lateBy))
	}
	if a.coarse() {
		lines = append(lines, "the times are whole seconds, so requests look more crowded than they were: choose a period of 10s or more")
	}
	return lines
}

// wait returns the longest time that a client waits for its turn, or until it is no longer denied.
func (j *judged) wait() string {
	text := short(j.LongestRetry)
	if j.LongestDelay > 0 {
		text = short(j.LongestDelay) + " held, " + text
	}
	return text
}

// peak returns the most units that any key used of the limit.
func (j *judged) peak() string {
	most := 0.0
	for _, k := range j.Keys {
		most = max(most, k.Peak)
	}
	capacity := j.limit.Capacity()
	return fmt.Sprintf("%s of %s", grouped(int64(most*float64(capacity)+0.5)), grouped(capacity))
}

func (j *judged) writeTop(b *strings.Builder, top int) {
	if top = min(top, j.keysDenied); top <= 0 {
		return
	}
	fmt.Fprintf(b, "\nDenied most by %v\n", j.limit)
	rows := [][]string{{"key", "requests", "denied"}}
	for _, k := range j.Keys[:top] {
		rows = append(rows, []string{shown(k.Key), grouped(k.Arrivals), share(k.Denied, k.Arrivals)})
	}
	align(b, rows)
}

// quantiles are the quantiles of the keys' use that are shown.
var quantiles = []struct {
	at   float64
	name string
}{{0.5, "half of them"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {1, "all"}}

// writeUse writes for each period how much keys use.
func (a *analysis) writeUse(b *strings.Builder) {
	rows := [][]string{{"What a key uses at most"}}
	for _, q := range quantiles {
		rows[0] = append(rows[0], q.name)
	}
	seen := map[time.Duration]bool{}
	for _, j := range a.limits {
		if seen[j.period] {
			continue
		}
		seen[j.period] = true
		row := []string{"in any " + period(j.period)}
		for _, q := range quantiles {
			row = append(row, grouped(j.atQuantile(q.at)))
		}
		rows = append(rows, row)
	}
	b.WriteByte('\n')
	align(b, rows)
}

func (a *analysis) writeSmallest(b *strings.Builder) {
	fmt.Fprintf(b, "\nThe smallest limits that deny less than %v %%\n", a.deny)
	rows := [][]string{{"", "limit", "requests denied", "keys denied"}}
	for i := range a.limits {
		j := &a.limits[i]
		for _, f := range j.smallest() {
			rows = append(rows, []string{f.of, f.text(), f.requests(j), f.keysOf(j)})
		}
	}
	align(b, rows)
}

// A smallest is one of the smallest limits that deny little. of says whether it denies few of the requests or few of the keys.
type smallest struct {
	of string
	found
}

func (j *judged) smallest() []smallest {
	return []smallest{{"of the requests", j.byRequests}, {"of the keys", j.byKeys}}
}

func (f smallest) text() string {
	if !f.ok {
		return fmt.Sprintf("none: %v is too small", f.limit)
	}
	return f.limit.String()
}

func (f smallest) requests(j *judged) string { return share(f.denied, j.Arrivals) }

func (f smallest) keysOf(j *judged) string { return share(int64(f.keys), int64(len(j.Keys))) }

// share returns a part of all as a text, as in "120 (1.5 %)".
func share(part, all int64) string {
	percent := 100 * float64(part) / float64(max(all, 1))
	digits := 1
	if percent < 1 {
		digits = 3
	}
	if part == 0 {
		digits = 0
	}
	return fmt.Sprintf("%s (%s %%)", grouped(part), strconv.FormatFloat(percent, 'f', digits, 64))
}

func count(n int, what string) string { return plural(n, what, what+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return grouped(int64(n)) + " " + many
}

// grouped returns a number with commas between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short returns a duration with about three digits.
func short(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// period returns the period of a limit as a text, such as "minute" or "5m".
func period(d time.Duration) string {
	for name, unit := range map[string]time.Duration{"second": time.Second, "minute": time.Minute, "hour": time.Hour} {
		if d == unit {
			return name
		}
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// shown returns a key in a form that is harmless on a terminal: a client may have put any text into it.
func shown(key string) string {
	text := strconv.Quote(key)
	if len(text) > 62 {
		text = text[:59] + `..."`
	}
	if inner := text[1 : len(text)-1]; !strings.Contains(inner, `\`) {
		return inner
	}
	return text
}
