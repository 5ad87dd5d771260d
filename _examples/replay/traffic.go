package main

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/redislimit/redislimit/limittest"
)

// A request is one of the log, small, because there are many.
type request struct {
	at   int64 // microseconds since 1970
	key  uint32
	cost int32
}

// A traffic is the requests of a log.
type traffic struct {
	requests []request
	keys     []string
	ids      map[string]uint32 // of each key its place in keys
	fields   []string          // of which the keys were read

	lines   int
	skipped []skipped     // what is left out, in the order in which it was found first
	late    int           // how many requests were out of order
	lateBy  time.Duration // and by how much at most
	part    bool          // a time had a part of a second
	broken  []string      // files of which the end cannot be read
}

// A skipped is why lines are left out.
type skipped struct {
	why          string
	first, lines int
	fields       []string // of the first line
}

func newTraffic() *traffic { return &traffic{ids: make(map[string]uint32)} }

// skip notes that the latest line is left out. fields are the names of its fields, if they help.
func (t *traffic) skip(why string, fields ...string) {
	i := slices.IndexFunc(t.skipped, func(s skipped) bool { return s.why == why })
	if i < 0 {
		i = len(t.skipped)
		t.skipped = append(t.skipped, skipped{why: why, first: t.lines, fields: fields})
	}
	t.skipped[i].lines++
}

// counted notes the field of a key.
func (t *traffic) counted(field string) {
	if !slices.Contains(t.fields, field) {
		t.fields = append(t.fields, field)
	}
}

// add adds a request. No limit has room for a cost of more than 1e9, so that is what it is then.
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

// sort puts the requests in order. Those of one instant stay as they were.
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

// arrivals returns requests as Replay wants them. tick is called now and then.
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

// busiest returns the most units that each key used within any period, however that lies.
func (t *traffic) busiest(period time.Duration) []int64 {
	type window struct {
		requests []request // of the key, in the period before its last one
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
