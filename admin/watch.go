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

// A Watch counts the decisions of limiters in this process: how many there were, how long they took,
// where they were made (see [core.Source]) and for which keys. [Handler] shows the counts. A Watch is
// safe for concurrent use.
//
// Its memory is bounded: for each limiter, it takes about 40 kB and the first 512 bytes of each of at most
// 2,048 keys. The counts of keys are exact while there are few keys. With many keys, a key with 2 % of the
// requests is always found. Latencies between 256 ns and 2 minutes are overstated by at most a quarter.
type Watch struct {
	began  time.Time
	byName atomic.Pointer[map[string]*watched] // copied when it changes
	kinds  atomic.Pointer[[]kind]              // the ways to look a key up; copied when it changes

	mu sync.Mutex // held while byName or kinds is replaced
}

// NewWatch returns a Watch without limiters.
func NewWatch() *Watch {
	w := &Watch{began: time.Now()}
	w.byName.Store(&map[string]*watched{})
	w.kinds.Store(&kinds)
	return w
}

// Add puts limiters on the page, each under its name. A limiter replaces an earlier one of the same name.
// Decisions are counted from then on, if the limiter also has the option [core.ObserveKeys] with
// [Watch.Observe]. A key is looked up by the limits that were given to [core.New], even if limits of
// [core.Limiter.With] decide about it.
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

// Observe counts a decision. Pass it to the option [core.ObserveKeys]. The page then shows the keys that
// are requested most often. Keys are personal data: if the page must not show them, use this option
// instead, which passes no keys:
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

// The slots of time in which a limiter is counted. Its keys are counted by a top.
const (
	shownSeconds = 300               // how many slots of a second the decisions have
	everyLatency = 10 * time.Second  // how long a slot of the latencies is
	latencies    = shownSeconds / 10 // how many slots the latencies have
)

// The counts of a second. First come the decisions by each core.Source, the last of which is
// SourceUncounted. After them come the following counts.
const (
	countFailed = int(core.SourceUncounted) + 1 + iota // decisions that failed with an error
	countDenied
	counts
)

// A watched is a limiter with its counts.
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

// Latencies are counted in four buckets for each power of two, from 64 ns.
const (
	latencyUnit    = 64 * time.Nanosecond
	latencyBuckets = 4 * 30
)

// latencyBucket returns the bucket in which d is counted.
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
