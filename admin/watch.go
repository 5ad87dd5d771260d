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

// A Watch counts the decisions of limiters in this process: how many there are, how long they take, by
// what they are made, and for which keys. [Handler] shows a Watch. It is safe for concurrent use.
//
// The memory of a Watch is bounded: for each limiter, it takes about 40 kB, and keeps up to 2,048 keys,
// of each the first 512 bytes. While there are few keys, their counts are exact. With many keys, a key
// with 2 % of the requests is always found. Latencies from 256 ns to two minutes are shown up to a
// quarter too high.
type Watch struct {
	began  time.Time
	byName atomic.Pointer[map[string]*watched] // copied when it changes
	kinds  atomic.Pointer[[]kind]              // the ways to look up a key; copied when it changes

	mu sync.Mutex // held while byName or kinds changes
}

// NewWatch returns a Watch without limiters.
func NewWatch() *Watch {
	w := &Watch{began: time.Now()}
	w.byName.Store(&map[string]*watched{})
	w.kinds.Store(&kinds)
	return w
}

// Add adds limiters to the page. A limiter replaces another one with the same name. From then on, the
// decisions of the limiter are counted, provided that it also has an option that calls [Watch.Observe].
// Keys are looked up by the limits given to [core.New], not by limits of [core.Limiter.With]. Add panics
// if a limiter is nil.
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

// Observe counts a decision. Pass it to the option [core.ObserveKeys] of a limiter. Keys are personal
// data, and the page shows the keys that are asked for most often. If it must not show keys, pass none:
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

// The sizes of the rings of a limiter.
const (
	shownSeconds = 300
	everyLatency = 10 * time.Second
	latencies    = shownSeconds / 10
)

// The counts of a second: first the decisions by each core.Source, up to SourceUncounted, which is
// the last, and then these counts.
const (
	countFailed = int(core.SourceUncounted) + 1 + iota // decisions that failed with an error
	countDenied
	counts
)

// A watched is a limiter with the counts of its decisions.
type watched struct {
	limiter       *core.Limiter
	seconds, took *ring
	keys          *top
}

// newWatched returns a watched that has counted nothing.
func newWatched(l *core.Limiter) *watched {
	return &watched{
		l, newRing(time.Second, shownSeconds, counts), newRing(everyLatency, latencies, latencyBuckets), newTop(),
	}
}

// decided counts a decision about key. now is the time since the Watch began.
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

// Latencies are counted in buckets, four for each power of two, from 64 ns upwards.
const (
	latencyUnit    = 64 * time.Nanosecond
	latencyBuckets = 4 * 30
)

// latencyBucket returns the bucket of a latency.
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
