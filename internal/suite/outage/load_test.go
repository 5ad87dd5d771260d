package outage

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// load is a number of callers of one Limiter that call without end, and a count of what their calls return.
type load struct {
	mode

	limiter *core.Limiter
	watch   *watcher
	keys    []string
	limit   int64
	timeout time.Duration
	pause   atomic.Int64 // the pause after each call, in nanoseconds

	admitted map[string]*[core.SourceNone + 8]atomic.Int64 // admitted calls, by key and Source
	denied   atomic.Int64
	errors   atomic.Int64
	worst    atomic.Int64 // the longest time of a decision, in nanoseconds
}

func newLoad(m mode, rdb core.Client, name string, perHour int64, timeout time.Duration, keys ...string) *load {
	l := &load{mode: m, watch: newWatcher(), keys: keys, limit: perHour, timeout: timeout}
	options := append(append(l.watch.options(), core.FixedWindow(core.PerHour(perHour)), core.Timeout(timeout)), m.options...)
	l.limiter = core.MustNew(rdb, name, options...)
	l.admitted = map[string]*[core.SourceNone + 8]atomic.Int64{}
	for _, key := range keys {
		l.admitted[key] = &[core.SourceNone + 8]atomic.Int64{}
	}
	return l
}

// run makes calls in n goroutines, with a pause after each call, until the channel is closed.
func (l *load) run(tb testing.TB, callers *sync.WaitGroup, n int, pause time.Duration, end <-chan struct{}) {
	l.pause.Store(int64(pause))
	for i := range n {
		callers.Go(func() {
			for c := i; ; c++ {
				l.call(tb, l.keys[c%len(l.keys)])
				select {
				case <-end:
					return
				case <-time.After(time.Duration(l.pause.Load())):
				}
			}
		})
	}
}

func (l *load) call(tb testing.TB, key string) {
	start := time.Now()
	res, err := l.limiter.Allow(tb.Context(), key)
	for took := time.Since(start).Nanoseconds(); ; {
		if worst := l.worst.Load(); took <= worst || l.worst.CompareAndSwap(worst, took) {
			break
		}
	}
	switch {
	case err != nil:
		l.errors.Add(1)
		if l.name != "FailClosed" || !errors.Is(err, core.ErrUnavailable) {
			tb.Errorf("%s: Allow returned error %v, want nil, or ErrUnavailable with FailClosed", l.name, err)
		}
	case res.Allowed:
		l.admitted[key][res.Source].Add(1)
	default:
		l.denied.Add(1)
	}
}

// sum returns how many calls a source admitted on all keys, and how many on the key with the most.
func (l *load) sum(s core.Source) (all, most int64) {
	for _, each := range l.admitted {
		n := each[s].Load()
		all, most = all+n, max(most, n)
	}
	return all, most
}

// check compares the admitted calls with the calls that the mode allows. Redis may have lost up to the given number of
// charges together with a server.
func (l *load) check(tb testing.TB, lost int64) {
	tb.Helper()
	redis, mostRedis := l.sum(core.SourceRedis)
	local, mostLocal := l.sum(core.SourceFallback)
	unasked, _ := l.sum(core.SourceNone)
	tb.Logf("%s: %d admitted by Redis, %d by the fallback, %d without a decision; %d denied, %d errors; %d calls to Redis failed; the slowest decision took %v",
		l.name, redis, local, unasked, l.denied.Load(), l.errors.Load(), l.watch.count(core.EventOutage), time.Duration(l.worst.Load()))
	if over := mostRedis - l.limit; over > 0 {
		tb.Logf("%s: Redis admitted %d more than the limit of %d", l.name, over, l.limit)
	}
	if mostRedis > l.limit+lost {
		tb.Errorf("%s: Redis admitted %d calls on one key, want at most the limit of %d and the lost charges", l.name, mostRedis, l.limit)
	}
	if l.share == 0 && local > 0 || l.share > 0 && mostLocal > l.limit/l.share {
		tb.Errorf("%s: the fallback admitted %d calls on one key, want at most the process's share", l.name, mostLocal)
	}
	if l.name != "FailOpen" && unasked > 0 {
		tb.Errorf("%s: %d calls were admitted without a decision, want 0", l.name, unasked)
	}
	if worst := time.Duration(l.worst.Load()); worst > l.timeout+slack {
		tb.Errorf("%s: a decision took %v, want at most the Timeout of %v and some slack", l.name, worst, l.timeout)
	}
}
