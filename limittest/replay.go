package limittest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core"
)

// An Arrival is a request of a log, for [Replay].
type Arrival struct {
	Time time.Time // of the request, by the log
	Key  string    // who is counted, such as an address
	Cost int64     // in units, at least 1
}

// A Report says what a limiter would have done to the arrivals of a log.
type Report struct {
	// Limits are those of the limiter.
	Limits []core.Limit
	// Arrivals is how many there were, and Denied how many of them would have been denied.
	Arrivals, Denied int64
	// LongestDelay is for how long an admitted request would have been held at most. Only
	// [core.LeakyBucket] holds any.
	LongestDelay time.Duration
	// LongestRetry is the longest RetryAfter of what was denied, but for [core.Never].
	LongestRetry time.Duration
	// Late is how many arrivals were earlier than one before them, and LateBy by how much at most.
	Late   int64
	LateBy time.Duration // see Late
	// Keys are all keys: those of which most was denied come first, and then those that used most.
	Keys []KeyReport
}

// A KeyReport is the part of one key in a [Report].
type KeyReport struct {
	Key              string // as in the log
	Arrivals, Denied int64  // how many there were, and how many of them would have been denied
	// Peak is the largest share of a limit that was in use at a time, from 0 to 1.
	Peak float64
}

// The times that Replay takes: what the arithmetic of all algorithms holds.
var (
	minTime = time.Unix(0, 0)
	maxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Replay returns what limiters would have done to the arrivals of a log, which are read once. Each
// of limiters is one: a [core.Limit], or [core.Options] with several, which stand together, and
// with [core.Ban]. The reports are in their order.
//
// It is exact: a limiter of [core.NewMemory] decides, by the times of the log. They should be in
// order: an arrival that is earlier than one before it is decided on at the time of that one, and
// counts as Late. Clients stay as they were: who is denied would perhaps have come again.
//
// It keeps all keys, with about 100 bytes for each, and 200 more for each limiter. Nothing is
// written or sent. An arrival that no limiter takes is an error, with its number. [core.InFlight]
// is one, too: a log does not say how long requests took.
func Replay(arrivals iter.Seq[Arrival], limiters ...core.Option) ([]Report, error) {
	r := replay{ids: make(map[string]int)}
	for _, option := range limiters {
		if err := r.add(option); err != nil {
			return nil, fmt.Errorf("limittest: Replay: %w", err)
		}
	}
	if len(r.runs) == 0 {
		return nil, errors.New("limittest: Replay: no limit given: pass at least one, as in core.TokenBucket(core.PerMinute(100))")
	}
	for a := range arrivals {
		if err := r.decide(a); err != nil {
			return nil, fmt.Errorf("limittest: Replay: arrival %d: %w", r.arrivals, err)
		}
	}
	return r.reports(), nil
}

// A replay is one that is under way.
type replay struct {
	runs     []*run
	ids      map[string]int // of each key its place in keys
	keys     []string
	counts   []int64 // the arrivals of each key
	arrivals int64
	now      time.Time // the latest so far
	late     int64
	lateBy   time.Duration
}

// A run is what one limiter does.
type run struct {
	*core.Limiter

	report Report
	keys   []KeyReport // by their ids
}

func (r *replay) add(option core.Option) error {
	clock := core.Clock(func() time.Time { return r.now })
	lim, err := core.NewMemory("replay", option, clock, core.MaxKeys(1e8)) // none is evicted
	if err != nil {
		return err
	}
	limits := lim.Limits()
	for _, l := range limits {
		if l.Algorithm() == "in_flight" {
			return fmt.Errorf("limit %v: a log does not say how long requests took, so it is not known when a slot is free again", l)
		}
	}
	r.runs = append(r.runs, &run{Limiter: lim, report: Report{Limits: limits}})
	return nil
}

func (r *replay) decide(a Arrival) error {
	r.arrivals++
	switch {
	case a.Key == "":
		return core.ErrInvalidKey
	case a.Cost < 1:
		return fmt.Errorf("%w: it is %d: leave out what is free", core.ErrInvalidCost, a.Cost)
	case a.Time.Before(minTime) || !a.Time.Before(maxTime):
		return fmt.Errorf("the time is %v, allowed is %d to %d", a.Time, minTime.UTC().Year(), maxTime.Year())
	}
	if early := r.now.Sub(a.Time); early > 0 {
		r.late++
		r.lateBy = max(r.lateBy, early)
	} else {
		r.now = a.Time
	}
	id, known := r.ids[a.Key]
	if !known {
		id = len(r.keys)
		a.Key = strings.Clone(a.Key) // it may be part of a line, which is not to be kept
		r.ids[a.Key] = id
		r.keys, r.counts = append(r.keys, a.Key), append(r.counts, 0)
	}
	r.counts[id]++
	for _, run := range r.runs {
		if err := run.decide(id, r.keys[id], a.Cost); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) decide(id int, key string, cost int64) error {
	res, err := r.AllowN(context.Background(), key, cost)
	if err != nil {
		return err
	}
	if id == len(r.keys) {
		r.keys = append(r.keys, KeyReport{})
	}
	k := &r.keys[id]
	if res.Allowed {
		// Of several limits res is that of which the largest share is in use, and only admissions
		// add to that.
		k.Peak = max(k.Peak, float64(res.Limit-res.Remaining)/float64(res.Limit))
		r.report.LongestDelay = max(r.report.LongestDelay, res.Delay)
		return nil
	}
	k.Denied++
	r.report.Denied++
	if res.RetryAfter != core.Never {
		r.report.LongestRetry = max(r.report.LongestRetry, res.RetryAfter)
	}
	return nil
}

func (r *replay) reports() []Report {
	reports := make([]Report, len(r.runs))
	for i, run := range r.runs {
		for id := range run.keys {
			run.keys[id].Key, run.keys[id].Arrivals = r.keys[id], r.counts[id]
		}
		slices.SortFunc(run.keys, func(a, b KeyReport) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Key, b.Key))
		})
		reports[i] = run.report
		reports[i].Arrivals, reports[i].Late, reports[i].LateBy = r.arrivals, r.late, r.lateBy
		reports[i].Keys = run.keys
	}
	return reports
}
