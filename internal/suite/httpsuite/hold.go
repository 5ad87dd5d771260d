package httpsuite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// holdCases are about LeakyBucket, which has requests wait for their turn.
func holdCases() []testCase {
	return []testCase{
		{"Held", held, nil},
		{"GoneWhileHeld", goneWhileHeld, []Ability{Gone}},
	}
}

// held sends a handful of requests at once: each waits at least as long as it is
// told to, and is told its own place in the queue.
func held(b *bench) {
	const places, interval = 4, 20 * time.Millisecond
	lim := b.limiter(core.LeakyBucket(core.Per(1, interval), core.Burst(places)))
	s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP()}, Route{Path: "/a", Handler: Handler{Do: ShowResult}})
	var answers []<-chan answer
	for range places {
		_, done := s.start("/a")
		answers = append(answers, done)
	}
	var delays []time.Duration
	for _, done := range answers {
		ans := <-done
		_, delay, _ := strings.Cut(ans.body, " delay=")
		d, err := time.ParseDuration(delay)
		if err != nil {
			b.Fatalf("body %q: %v", ans.body, err)
		}
		if ans.took < d {
			b.Errorf("served after %v, want at least %v", ans.took, d)
		}
		delays = append(delays, d)
	}
	slices.Sort(delays)
	if want := []time.Duration{0, interval, 2 * interval, 3 * interval}; !slices.Equal(delays, want) {
		b.Errorf("held for %v, want %v", delays, want)
	}
	ans := s.get("/a") // the queue is full by the clock, which stands
	ans.wantDenied()
	ans.wantHeaders("4", "0", "1800000013", "1")
}

// goneWhileHeld has the client leave the queue: its place is free at once, and
// nobody is served in its name. The hold itself would last longer than the test.
func goneWhileHeld(b *bench) {
	for _, options := range [][]guard.Option{nil, {guard.CountIf(func(int) bool { return true })}} {
		b.each(fmt.Sprintf("CountIf=%t", options != nil), func(b *bench) {
			var calls, decided atomic.Int64
			lim := b.limiter(core.LeakyBucket(core.Per(1, patience/2), core.Burst(3)), core.Observe(func(_ context.Context, e core.Event) {
				if e.Kind == core.EventDecision {
					decided.Add(1)
				}
			}))
			s := b.behind(Limit{Limiter: lim, Key: keyfunc.IP(), Options: options}, Route{Path: "/a", Handler: Handler{Calls: &calls}})
			s.get("/a").wantServed()
			leave, done := s.start("/a")
			b.until("in the queue", func() bool { return decided.Load() == 2 })
			b.wantLeft(lim, peer, 1)
			leave()
			<-done
			s.close()
			b.wantLeft(lim, peer, 2)
			if n := calls.Load(); n != 1 {
				b.Errorf("the handler ran %d times, want 1", n)
			}
		})
	}
}
