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
	Time time.Time // when the request came, from 1970 to 2199
	Key  string    // the key by which it is counted, such as an address; not empty
	Cost int64     // how many units it costs, at least 1
}

// A Report says what a limiter would have done to the arrivals of a log.
type Report struct {
	// Limits are the limits of the limiter.
	Limits []core.Limit
	// Arrivals is how many requests there were, and Denied how many would have been denied.
	Arrivals, Denied int64
	// LongestDelay is the longest Delay of a request that would have been admitted. It is 0 without a
	// [core.LeakyBucket].
	LongestDelay time.Duration
	// LongestRetry is the longest RetryAfter of a denial, not counting [core.Never].
	LongestRetry time.Duration
	// Late is how many arrivals were earlier than an arrival that comes before them in the log.
	// LateBy is the largest difference.
	Late   int64
	LateBy time.Duration // see Late
	// Keys are the reports about all keys. The keys with the most denials come first. Among keys with
	// equally many, the key with the highest Peak comes first.
	Keys []KeyReport
}

// A KeyReport is the part of a [Report] about one key.
type KeyReport struct {
	Key              string // the key, as in the log
	Arrivals, Denied int64  // how many requests there were, and how many would have been denied
	// Peak is the largest share of a limit that was used at one time, from 0 to 1.
	Peak float64
}

// The times that Replay accepts, for which the arithmetic of all algorithms is exact.
var (
	minTime = time.Unix(0, 0)
	maxTime = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Replay returns what limiters would have done to the arrivals of a log, with one report for each
// limiter, in their order. Each of limiters describes one limiter: it is a [core.Limit], or
// [core.Options] with several limits that decide together, and perhaps with [core.Ban].
//
// The reports are exact: limiters of [core.NewMemory] decide, by the times of the log. The arrivals
// should be in order. If an arrival is earlier than another one that comes before it in the log, it is
// decided at the time of that other arrival, and counts as Late. Replay cannot know how clients would
// have reacted to a denial: a client that is denied might have sent its request again.
//
// Replay reads the arrivals once, and writes and sends nothing. It keeps all keys in memory, with about
// 100 bytes for each key, and 200 more for each limiter. It returns an error, with the number of the
// arrival, if an arrival is invalid. It also returns an error for [core.InFlight], because a log does
// not say how long requests took.
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

// A replay is the state of one call of Replay.
type replay struct {
	runs     []*run
	ids      map[string]int // the index in keys of each key
	keys     []string
	counts   []int64 // how many arrivals each key has
	arrivals int64
	now      time.Time // the latest time of an arrival so far
	late     int64
	lateBy   time.Duration
}

// A run is a limiter and the results of its decisions so far.
type run struct {
	*core.Limiter

	report Report
	keys   []KeyReport // in the order of replay.keys
}

// add adds a limiter.
func (r *replay) add(option core.Option) error {
	clock := core.Clock(func() time.Time { return r.now })
	lim, err := core.NewMemory("replay", option, clock, core.MaxKeys(1e8)) // no key is evicted
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

// decide makes all limiters decide on an arrival.
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
		a.Key = strings.Clone(a.Key) // the key may be part of a line, which must not stay in memory
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

// decide makes one limiter decide, and adds the decision to its report. id is the index of key.
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
		// If there are several limits, res is the one with the largest share in use. Only admissions
		// increase the share.
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

// reports returns the reports, sorted by keys.
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
