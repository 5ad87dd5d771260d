package httpsuite

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/keyfunc"
)

// countIfCases are about limits that count only what ends in a certain way.
func countIfCases() []testCase {
	return []testCase{
		{"CountIf", countIf, nil},
		{"CountIfGuardsLogin", countIfGuardsLogin, nil},
		{"CountIfChargesFirst", countIfChargesFirst, nil},
		{"CountIfConcurrent", countIfConcurrent, nil},
		{"CountIfSavesNothing", countIfSavesNothing, nil},
		{"CountIfClientGone", countIfClientGone, []Ability{Gone}},
		{"CountIfStacked", countIfStacked, nil},
		{"CountIfUpgrade", countIfUpgrade, nil},
		{"CountIfHijackedThenFails", countIfHijackedThenFails, []Ability{ResponseWriter}},
	}
}

// A statusLog has the statuses that a CountIf was asked about.
type statusLog struct {
	mu       sync.Mutex
	statuses []int
}

// counts is a CountIf that records the statuses before it asks counted.
func (s *statusLog) counts(counted func(status int) bool) guard.Option {
	return guard.CountIf(func(status int) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.statuses = append(s.statuses, status)
		return counted(status)
	})
}

// want checks, after the server was closed, that CountIf was asked about these
// statuses, once each. An adapter may ask as late as at the end of the request's
// context.
func (s *statusLog) want(b *testbed, statuses ...int) {
	b.Helper()
	var got []int
	b.until("CountIf was asked", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		got = slices.Clone(s.statuses)
		return len(got) >= len(statuses)
	})
	if !slices.Equal(got, statuses) {
		b.Errorf("CountIf saw %v, the client %v", got, statuses)
	}
}

// countIfGuardsLogin serves requests with the right password any number of times, and
// those with a wrong one three times.
func countIfGuardsLogin(b *testbed) {
	limit := b.fixed(3)
	limit.Options = []guard.Option{guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })}
	s := b.behind(limit, Route{Path: "/right"}, Route{Path: "/wrong", Handler: Handler{Do: Fail, Status: http.StatusUnauthorized}})
	done := func(left int64) {
		b.Helper()
		b.untilLeft(limit.Limiter, ipKey, left)
	}
	for i := range 3 {
		for range 4 {
			s.get("/right").wantServed()
			done(int64(3 - i))
		}
		ans := s.get("/wrong")
		ans.wantStatus(http.StatusUnauthorized)
		ans.wantHeader("X-RateLimit-Remaining", []string{"2", "1", "0"}[i])
		ans.wantHeader("Retry-After", "")
	}
	s.get("/right").wantDenied()
	s.get("/wrong").wantDenied()
	b.advance(time.Minute)
	s.get("/right").wantServed()
}

// countIfChargesFirst looks at the count while a handler is at work: otherwise any
// number of guesses could be in flight at once.
func countIfChargesFirst(b *testbed) {
	gate := make(chan struct{})
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.CountIf(func(int) bool { return false })}
	var calls atomic.Int64
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Wait, Gate: gate, Calls: &calls}})
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	b.wantLeft(limit.Limiter, ipKey, 0)
	s.get("/a").wantDenied()
	close(gate)
	(<-done).wantServed()
	s.close()
	b.wantLeft(limit.Limiter, ipKey, 1) // and not 2: the denied one was not charged
}

// countIfConcurrent has many logins at once, which end in any order: those that succeed
// use up nothing, and each of the others a unit.
func countIfConcurrent(b *testbed) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, v := range limits.Plain() {
		if v.Kind.Delays {
			continue
		}
		for logins, wrong := range map[int]int{100: 0, 20: 6} {
			b.each(fmt.Sprintf("%s/%dOf%dWrong", v.Name, wrong, logins), func(b *testbed) {
				var calls atomic.Int64
				gates := map[string]chan struct{}{"/right": make(chan struct{}), "/wrong": make(chan struct{})}
				lim := b.limiter(v.Limit(core.PerHour(int64(logins))))
				s := b.behind(
					Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })}},
					Route{Path: "/right", Handler: Handler{Do: Wait, Gate: gates["/right"], Calls: &calls}},
					Route{Path: "/wrong", Handler: Handler{Do: Wait, Gate: gates["/wrong"], Calls: &calls, Status: http.StatusUnauthorized}})
				for _, gate := range gates {
					b.Cleanup(func() { close(gate) }) // so that a failed test ends
				}
				paths, ends := make([]string, logins), make([]<-chan answer, logins)
				for i := range paths {
					paths[i] = "/right"
					if i < wrong {
						paths[i] = "/wrong"
					}
					_, ends[i] = s.start(paths[i])
				}
				b.until("all handlers run", func() bool { return calls.Load() == int64(logins) })
				s.get("/right").wantDenied()
				for _, i := range random.Perm(logins) {
					gates[paths[i]] <- struct{}{}
				}
				for i, end := range ends {
					(<-end).wantStatus(map[string]int{"/right": http.StatusOK, "/wrong": http.StatusUnauthorized}[paths[i]])
				}
				b.untilLeft(lim, ipKey, int64(logins-wrong))
			})
		}
	}
}

// countIfSavesNothing has an attacker with a right password of its own open many requests,
// and let them end one by one while it guesses: none of them gives it a guess more than
// the limit, because what they took has long drained.
func countIfSavesNothing(b *testbed) {
	const capacity, rounds = 5, 4
	for _, v := range limits.Plain() {
		b.each(v.Name, func(b *testbed) {
			var calls atomic.Int64
			gate := make(chan struct{})
			limit := v.Limit(core.Per(capacity, capacity*time.Millisecond)) // a queue delays for so long
			lim := b.limiter(limit, core.Hold(time.Minute))
			s := b.behind(
				Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.CountIf(func(status int) bool { return status == http.StatusUnauthorized })}},
				Route{Path: "/right", Handler: Handler{Do: Wait, Gate: gate, Calls: &calls}},
				Route{Path: "/wrong", Handler: Handler{Do: Fail, Status: http.StatusUnauthorized}})
			b.Cleanup(func() { close(gate) }) // so that a failed test ends
			var open []<-chan answer
			for range rounds {
				for range capacity {
					_, end := s.start("/right")
					open = append(open, end)
				}
				b.until("the requests are open", func() bool { return calls.Load() == int64(len(open)) })
				b.advance(71 * time.Second) // whatever is held has expired and drained
			}
			guesses := 0
			guess := func(times int) {
				for range times {
					if s.get("/wrong").status == http.StatusUnauthorized {
						guesses++
					}
				}
			}
			guess(capacity + 1)
			for range open {
				gate <- struct{}{}
				guess(1)
			}
			for _, end := range open {
				(<-end).wantServed()
			}
			guess(capacity + 1)
			if guesses != capacity {
				b.Errorf("%d guesses, want %d", guesses, capacity)
			}
		})
	}
}

// countIfClientGone charges nothing, although the request's context has ended.
func countIfClientGone(b *testbed) {
	var calls atomic.Int64
	var saw statusLog
	limit := b.fixed(9)
	limit.Options = []guard.Option{saw.counts(func(int) bool { return false })}
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: AwaitGone, Calls: &calls}})
	leave, _ := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	leave()
	s.close()
	b.wantLeft(limit.Limiter, ipKey, 9)
	saw.want(b, http.StatusOK)
}

// countIfStacked has one limit watch what comes of another, and of errors that
// pass both.
func countIfStacked(b *testbed) {
	var outerSaw, innerSaw statusLog
	outer := b.namedFixed("outer", 9)
	outer.Options = []guard.Option{outerSaw.counts(func(status int) bool { return status == http.StatusTooManyRequests })}
	inner := b.fixed(1)
	inner.Options = []guard.Option{
		innerSaw.counts(func(status int) bool { return status == http.StatusTeapot }),
		guard.Skip(func(r keyfunc.Request) bool { return r.Path() == "/skipped" }),
	}
	s := b.serve(App{
		Use: []Mount{outer, inner}, Routes: []Route{{Path: "/fails", Handler: Handler{Do: Throw}}, {Path: "/skipped"}},
		Renders: true,
	})
	s.get("/skipped").wantServed()
	s.get("/fails").want(http.StatusTeapot, "teapot")
	s.get("/fails").wantDenied()
	s.close()
	outerSaw.want(b, http.StatusOK, http.StatusTeapot, http.StatusTooManyRequests)
	innerSaw.want(b, http.StatusTeapot)
	b.wantLeft(outer.Limiter, ipKey, 8)
	b.wantLeft(inner.Limiter, ipKey, 0)
}

// countIfUpgrade limits WebSockets: a connection that was taken over is a 101, whatever
// the framework keeps as its status.
func countIfUpgrade(b *testbed) {
	var saw statusLog
	limit := b.fixed(2)
	limit.Options = []guard.Option{saw.counts(func(status int) bool { return status == http.StatusSwitchingProtocols })}
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Upgrade}}, Route{Path: "/b"})
	s.get("/b").wantServed()
	b.until("refunded", func() bool { return b.left(limit.Limiter, ipKey) == 2 })
	for _, status := range []int{http.StatusSwitchingProtocols, http.StatusSwitchingProtocols, http.StatusTooManyRequests} {
		s.upgrade("/a", status)
	}
	s.close()
	saw.want(b, http.StatusOK, http.StatusSwitchingProtocols, http.StatusSwitchingProtocols)
	b.wantLeft(limit.Limiter, ipKey, 0)
}

// countIfHijackedThenFails takes over the connection and then writes to the response,
// which reaches nobody and has no status.
func countIfHijackedThenFails(b *testbed) {
	var saw statusLog
	limit := b.fixed(2)
	limit.Options = []guard.Option{saw.counts(func(int) bool { return true })}
	hijacks := func(w http.ResponseWriter) string {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			b.Error(err)
			return "not hijacked"
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping\n")
		_ = conn.Close()
		return "too late"
	}
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Inspect, Probe: hijacks}})
	s.upgrade("/a", http.StatusSwitchingProtocols)
	s.close()
	saw.want(b, http.StatusSwitchingProtocols)
}
