package outage

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
)

// load is callers of one Limiter that do not stop, and a count of what their calls return.
type load struct {
	mode

	limiter *core.Limiter
	watch   *watcher
	keys    []string
	limit   int64
	timeout time.Duration
	pause   atomic.Int64 // after each call, in nanoseconds

	admitted map[string]*[core.SourceNone + 8]atomic.Int64 // by key and Source
	denied   atomic.Int64
	errors   atomic.Int64
	worst    atomic.Int64 // of all decisions, in nanoseconds
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

// run calls from n goroutines, with a pause after each call, until the channel is closed.
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
			tb.Errorf("%s: %v", l.name, err)
		}
	case res.Allowed:
		l.admitted[key][res.Source].Add(1)
	default:
		l.denied.Add(1)
	}
}

// sum returns how many calls a source admitted, of all keys, and the most of one key.
func (l *load) sum(s core.Source) (all, most int64) {
	for _, each := range l.admitted {
		n := each[s].Load()
		all, most = all+n, max(most, n)
	}
	return all, most
}

// check holds what was admitted against what the mode allows. Redis may have forgotten, with a server, up to lost.
func (l *load) check(tb testing.TB, lost int64) {
	tb.Helper()
	redis, mostRedis := l.sum(core.SourceRedis)
	local, mostLocal := l.sum(core.SourceFallback)
	unasked, _ := l.sum(core.SourceNone)
	tb.Logf("%s: admitted %d by Redis, %d by itself, %d unasked; %d denied, %d errors; %d calls failed; the slowest took %v",
		l.name, redis, local, unasked, l.denied.Load(), l.errors.Load(), l.watch.count(core.EventOutage), time.Duration(l.worst.Load()))
	if over := mostRedis - l.limit; over > 0 {
		tb.Logf("%s: %d beyond the limit of %d by Redis", l.name, over, l.limit)
	}
	if mostRedis > l.limit+lost {
		tb.Errorf("%s: Redis admitted %d of one key, the limit is %d", l.name, mostRedis, l.limit)
	}
	if l.share == 0 && local > 0 || l.share > 0 && mostLocal > l.limit/l.share {
		tb.Errorf("%s: the process admitted %d of one key by itself", l.name, mostLocal)
	}
	if l.name != "FailOpen" && unasked > 0 {
		tb.Errorf("%s: %d admitted without a decision", l.name, unasked)
	}
	if worst := time.Duration(l.worst.Load()); worst > l.timeout+slack {
		tb.Errorf("%s: a decision took %v", l.name, worst)
	}
}
