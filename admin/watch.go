package admin

import (
	"context"
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
)

// A Watch counts what limiters decide in this process: how many, how fast, by whom and for which
// keys. [Handler] shows it. It is safe for concurrent use.
//
// Its memory is bounded: for each limiter about 40 kB and 2,048 keys, each by its first 512 bytes.
// Counts of keys are exact while there are few; of many, one with 2 % of the requests is always
// found. Latencies of 256 ns to two minutes are too high by a quarter at most.
type Watch struct {
	began  time.Time
	byName atomic.Pointer[map[string]*watched] // copied when it changes
	kinds  atomic.Pointer[[]kind]              // by which keys are looked up; copied when it changes

	mu sync.Mutex // held where these change
}

// NewWatch returns a Watch of no limiter yet.
func NewWatch() *Watch {
	w := &Watch{began: time.Now()}
	w.byName.Store(&map[string]*watched{})
	w.kinds.Store(&kinds)
	return w
}

// Add has limiters be on the page, each by its name: a later one of the same name takes the place
// of the one before. What they decide is counted from then on, if they have [Watch.Observe], too.
// Keys are looked up by the limits given to core.New, not by those of With.
func (w *Watch) Add(limiters ...*core.Limiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	byName := maps.Clone(*w.byName.Load())
	for _, l := range limiters {
		if l == nil {
			panic("admin: Add: a Limiter is nil: pass what core.New returned")
		}
		byName[l.Name()] = newWatched(l)
	}
	w.byName.Store(&byName)
}

// Observe counts a decision: it is for the option [core.ObserveKeys]. Keys are personal data, and
// the page shows those that are asked for most. If it must not, pass none:
//
//	core.Observe(func(ctx context.Context, e core.Event) { watch.Observe(ctx, "", e) })
func (w *Watch) Observe(_ context.Context, key string, e core.Event) {
	if e.Kind != core.EventDecision {
		return
	}
	if seen := (*w.byName.Load())[e.Limiter]; seen != nil {
		seen.decided(time.Since(w.began), key, &e)
	}
}

// What is kept of a limiter, besides the keys.
const (
	shownSeconds = 300
	everyLatency = 10 * time.Second
	latencies    = shownSeconds / 10
)

// The counts of a second: decisions by each core.Source, of which SourceUncounted is the last, and
// then these.
const (
	countFailed = int(core.SourceUncounted) + 1 + iota // decisions that were none: an error
	countDenied
	counts
)

// A watched is a limiter with what was counted of it.
type watched struct {
	limiter       *core.Limiter
	seconds, took *ring
	keys          *top
}

func newWatched(l *core.Limiter) *watched {
	return &watched{
		l, newRing(time.Second, shownSeconds, counts), newRing(everyLatency, latencies, latencyBuckets), newTop(),
	}
}

func (s *watched) decided(now time.Duration, key string, e *core.Event) {
	second, was := s.seconds.at(now), int(e.Result.Source)
	if e.Err != nil {
		was = countFailed
	}
	second[was].Add(1)
	isDenied := e.Err == nil && !e.Result.Allowed
	if isDenied {
		second[countDenied].Add(1)
	}
	s.took.at(now)[latencyBucket(e.Took)].Add(1)
	if key != "" {
		s.keys.add(key, now, isDenied)
	}
}

// Latencies are counted in four buckets for each power of two, of 64 ns and more.
const (
	latencyUnit    = 64 * time.Nanosecond
	latencyBuckets = 4 * 30
)

func latencyBucket(d time.Duration) int {
	v := uint64(max(0, d) / latencyUnit)
	if v < 4 {
		return int(v)
	}
	octave := bits.Len64(v) - 3 // v>>octave is 4 to 7
	return min(4*octave+int(v>>octave), latencyBuckets-1)
}

// latencyWithin returns the upper end of a bucket.
func latencyWithin(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket+1) * latencyUnit
	}
	octave := bucket/4 - 1
	return time.Duration(bucket%4+5) << octave * latencyUnit
}
