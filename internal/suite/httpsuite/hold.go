package httpsuite

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// delayCases test LeakyBucket, which makes requests wait for their turn.
func delayCases() []testCase {
	return []testCase{
		{"Delayed", delayed, nil},
		{"GoneWhileDelayed", goneWhileDelayed, []Ability{Gone}},
	}
}

// delayed sends a few requests at once: each waits at least for its Delay, and each has the Delay of a different turn.
func delayed(b *testbed) {
	const capacity, interval = 4, 20 * time.Millisecond
	lim := b.limiter(core.LeakyBucket(core.Per(1, interval), core.Burst(capacity)))
	s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP()}, Route{Path: "/a", Handler: Handler{Do: ShowResult}})
	var answers []<-chan answer
	for range capacity {
		_, done := s.start("/a")
		answers = append(answers, done)
	}
	var delays []time.Duration
	for _, done := range answers {
		ans := <-done
		_, delay, _ := strings.Cut(ans.body, " delay=")
		d, err := time.ParseDuration(delay)
		if err != nil {
			b.Fatalf("got the body %q, want one with a delay: %v", ans.body, err)
		}
		if ans.took < d {
			b.Errorf("a request was served after %v, want at least its Delay of %v", ans.took, d)
		}
		delays = append(delays, d)
	}
	slices.Sort(delays)
	if want := []time.Duration{0, interval, 2 * interval, 3 * interval}; !slices.Equal(delays, want) {
		b.Errorf("the requests were delayed for %v, want %v", delays, want)
	}
	ans := s.get("/a") // the clock stands, so the queue is still full
	ans.wantDenied()
	ans.wantHeaders("4", "0", "1800000013", "1")
}

// goneWhileDelayed makes the client leave the queue: its charge is taken back, its slot is freed, and the handler does not
// run. The Delay would last longer than the test.
func goneWhileDelayed(b *testbed) {
	for name, options := range map[string][]guard.Option{
		"Plain":     nil,
		"CountIf":   {guard.CountIf(func(int) bool { return true })},
		"CostAfter": {guard.CostAfter()},
	} {
		b.each(name, func(b *testbed) {
			var calls, decided atomic.Int64
			lim := b.limiter(core.LeakyBucket(core.Per(1, testTimeout/2), core.Burst(3)), core.InFlight(5, core.SlotTTL(time.Hour)), core.FixedWindow(core.PerHour(9)),
				core.Observe(func(_ context.Context, e core.Event) {
					if e.Kind == core.EventDecision {
						decided.Add(1)
					}
				}))
			s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP(), Options: options}, Route{Path: "/a", Handler: Handler{Calls: &calls}})
			s.get("/a").wantServed()
			b.untilLeftOfEach(lim, []int64{2, 5, 8})
			leave, done := s.start("/a")
			b.until("the request is in the queue", func() bool { return decided.Load() == 2 })
			b.wantLeftOfEach(lim, []int64{1, 4, 7})
			leave()
			<-done
			b.untilLeftOfEach(lim, []int64{2, 5, 8})
			s.close()
			if n := calls.Load(); n != 1 {
				b.Errorf("the handler ran %d times, want 1", n)
			}
		})
	}
}
