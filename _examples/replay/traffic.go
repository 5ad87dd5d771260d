package main

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/redislimit/redislimit/limittest"
)

// A request is one request of the log. It is small, because there are many.
type request struct {
	at   int64 // microseconds since 1970
	key  uint32
	cost int32
}

// A traffic contains the requests of a log.
type traffic struct {
	requests []request
	keys     []string
	ids      map[string]uint32 // the index of each key in keys
	fields   []string          // the fields from which the keys were read

	lines   int           // how many lines were read
	skipped []skipped     // the lines that are left out, in the order of their first occurrence
	late    int           // how many requests were out of order
	lateBy  time.Duration // by how much they were late, at most
	part    bool          // whether a time has a fraction of a second
	broken  []string      // files whose end cannot be read
}

// A skipped describes lines that are left out for one reason.
type skipped struct {
	why          string
	first, lines int      // the first of these lines, and how many there are
	fields       []string // the names of the first line's fields
}

func newTraffic() *traffic { return &traffic{ids: make(map[string]uint32)} }

// skip records that the latest line is left out. fields are the names of its fields, if they help.
func (t *traffic) skip(why string, fields ...string) {
	i := slices.IndexFunc(t.skipped, func(s skipped) bool { return s.why == why })
	if i < 0 {
		i = len(t.skipped)
		t.skipped = append(t.skipped, skipped{why: why, first: t.lines, fields: fields})
	}
	t.skipped[i].lines++
}

// counted records the field from which a key was read.
func (t *traffic) counted(field string) {
	if !slices.Contains(t.fields, field) {
		t.fields = append(t.fields, field)
	}
}

// add adds a request. A cost of more than 2^31-1 is reduced to it: no limit has room for more than 1e9 units.
func (t *traffic) add(at time.Time, key []byte, cost int64) {
	id, known := t.ids[string(key)]
	if !known {
		id = uint32(len(t.keys))
		name := string(key)
		t.ids[name] = id
		t.keys = append(t.keys, name)
	}
	t.part = t.part || at.Nanosecond() != 0
	t.requests = append(t.requests, request{at.UnixMicro(), id, int32(min(cost, math.MaxInt32))})
}

// sort sorts the requests by time. Requests with the same time keep their order.
func (t *traffic) sort() {
	latest := int64(math.MinInt64)
	for _, r := range t.requests {
		if r.at < latest {
			t.late++
			t.lateBy = max(t.lateBy, time.Duration(latest-r.at)*time.Microsecond)
		}
		latest = max(latest, r.at)
	}
	if t.late > 0 {
		slices.SortStableFunc(t.requests, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	}
}

// arrivals returns requests as arrivals for Replay. It calls tick now and then.
func (t *traffic) arrivals(requests []request, tick func(done int)) iter.Seq[limittest.Arrival] {
	return func(yield func(limittest.Arrival) bool) {
		for i, r := range requests {
			if i%65536 == 0 {
				tick(i)
			}
			if !yield(limittest.Arrival{Time: time.UnixMicro(r.at), Key: t.keys[r.key], Cost: int64(r.cost)}) {
				return
			}
		}
	}
}

func (t *traffic) first() time.Time { return time.UnixMicro(t.requests[0].at).UTC() }

func (t *traffic) last() time.Time { return time.UnixMicro(t.requests[len(t.requests)-1].at).UTC() }

// busiest returns the most units that each key used within any period, wherever the period begins.
func (t *traffic) busiest(period time.Duration) []int64 {
	type window struct {
		requests []request // the requests of the key in the period that ends with its last request
		units    int64
	}
	windows, most := make([]window, len(t.keys)), make([]int64, len(t.keys))
	for _, r := range t.requests {
		w := &windows[r.key]
		for len(w.requests) > 0 && w.requests[0].at <= r.at-period.Microseconds() {
			w.units -= int64(w.requests[0].cost)
			w.requests = w.requests[1:]
		}
		w.requests = append(w.requests, r)
		w.units += int64(r.cost)
		most[r.key] = max(most[r.key], w.units)
	}
	return most
}
