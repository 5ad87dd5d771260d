package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// writeTables writes what people read on a terminal.
func writeTables(w io.Writer, a *analysis) {
	for _, line := range a.summary() {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "limit\trequests denied\tkeys denied\tlongest wait\tpeak use")
	for _, j := range a.limits {
		fmt.Fprintf(table, "%v\t%s\t%s\t%s\t%s\n", j.limit, share(j.Denied, j.Arrivals), share(int64(j.keysDenied), int64(len(j.Keys))), j.wait(), j.peak())
	}
	_ = table.Flush()
	for i := range a.limits {
		a.limits[i].writeTop(w, a.top)
	}
	writeUse(w, a)
	writeSmallest(w, a)
}

// summary says what was read.
func (a *analysis) summary() []string {
	span := a.last().Sub(a.first()).Round(time.Second)
	lines := []string{
		fmt.Sprintf("%s of %s in %v: %s to %s UTC", count(len(a.requests), "request"), count(len(a.keys), "key"), span,
			a.first().Format(time.DateTime), a.last().Format(time.DateTime)),
		a.leftOut(),
	}
	if a.late > 0 {
		lines = append(lines, fmt.Sprintf("%s out of order, by %v at most; they are sorted", plural(a.late, "request was", "requests were"), a.lateBy))
	}
	if a.coarse() {
		lines = append(lines, "the times are whole seconds, so requests look more crowded than they were: choose a period of 10s or more")
	}
	return lines
}

// wait is how long a client has to wait at most: for its turn, or until it is not denied.
func (j *judged) wait() string {
	text := short(j.LongestRetry)
	if j.LongestDelay > 0 {
		text = short(j.LongestDelay) + " held, " + text
	}
	return text
}

// peak is the most that any key used of the limit, which is the first one if several did.
func (j *judged) peak() string {
	most := 0.0
	for _, k := range j.Keys {
		most = max(most, k.Peak)
	}
	capacity := j.limit.Capacity()
	return fmt.Sprintf("%s of %s", grouped(int64(most*float64(capacity)+0.5)), grouped(capacity))
}

func (j *judged) writeTop(w io.Writer, top int) {
	if top = min(top, j.keysDenied); top <= 0 {
		return
	}
	fmt.Fprintf(w, "\nDenied most by %v\n", j.limit)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "key\trequests\tdenied")
	for _, k := range j.Keys[:top] {
		fmt.Fprintf(table, "%s\t%s\t%s\n", shown(k.Key), grouped(k.Arrivals), share(k.Denied, k.Arrivals))
	}
	_ = table.Flush()
}

// The quantiles that are shown of what keys use.
var quantiles = []struct {
	at   float64
	name string
}{{0.5, "half of them"}, {0.9, "90 %"}, {0.99, "99 %"}, {0.999, "99.9 %"}, {1, "all"}}

// writeUse says for each period how much keys use.
func writeUse(w io.Writer, a *analysis) {
	seen := map[time.Duration]bool{}
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(table, "\nWhat a key uses at most\t")
	for _, q := range quantiles {
		fmt.Fprintf(table, "%s\t", q.name)
	}
	fmt.Fprintln(table)
	for _, j := range a.limits {
		if seen[j.period] {
			continue
		}
		seen[j.period] = true
		fmt.Fprintf(table, "in any %s\t", period(j.period))
		for _, q := range quantiles {
			fmt.Fprintf(table, "%s\t", grouped(j.atQuantile(q.at)))
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
}

func writeSmallest(w io.Writer, a *analysis) {
	fmt.Fprintf(w, "\nThe smallest limits that deny less than %v %%\n", a.deny)
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tlimit\trequests denied\tkeys denied")
	for i := range a.limits {
		j := &a.limits[i]
		for _, f := range j.smallest() {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.of, f.text(), f.requests(j), f.keys(j))
		}
	}
	_ = table.Flush()
}

// A smallest is one of the smallest limits, and of what it denies little.
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

func (f smallest) requests(j *judged) string { return share(f.outcome.denied, j.Arrivals) }

func (f smallest) keys(j *judged) string { return share(int64(f.outcome.keys), int64(len(j.Keys))) }

// share writes a part of all, as in "120 (1.5 %)".
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

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// short writes a duration with three digits or so.
func short(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// period writes that of a limit, such as "1m0s" as "minute".
func period(d time.Duration) string {
	switch d {
	case time.Second:
		return "second"
	case time.Minute:
		return "minute"
	case time.Hour:
		return "hour"
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// shown returns a key as a terminal can show it: a client may have put anything into it.
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
