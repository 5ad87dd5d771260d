package httpsuite

import (
	"context"
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// waitCases test requests that wait because of WaitUpTo. Tests in core/guard, and Leavers, test wake-ups and clients that
// leave.
func waitCases() []testCase {
	return []testCase{
		{"WaitUpTo", waitUpTo, nil},
		{"CutOff", cutOff, nil},
		{"CutOffHTTP2", cutOffHTTP2, []Ability{HTTP2}},
	}
}

// waitUpTo makes a request wait for the next window. A request that would have to wait for too long is denied as usual.
func waitUpTo(b *testbed) {
	const window = 300 * time.Millisecond
	limit := Limit{
		Limiter: b.limiter(core.FixedWindow(core.Per(1, window))), Key: keyfunc.IP(),
		Options: []guard.Option{guard.WaitUpTo(testTimeout)},
	}
	s := b.behind(limit)
	s.get("/a").wantServed()
	_, done := s.start("/a")
	select {
	case ans := <-done:
		b.Fatalf("the request ended at once with status %d and header %v, want it to wait", ans.status, ans.header)
	case <-time.After(50 * time.Millisecond): // on a busy machine the test proves less
	}
	b.advance(window)
	ans := <-done
	ans.wantServed()
	ans.wantHeaders("1", "0", "1800000013", "")
	b.wantLeft(limit.Limiter, ipKey, 0)

	limit.Limiter = b.named("slow", core.FixedWindow(core.PerMinute(1)))
	s = b.behind(limit)
	s.get("/a").wantServed()
	ans = s.get("/a")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "1800000073", "60")
}

// cutOff makes requests wait longer than the server's WriteTimeout. If clients get no response, one line is logged.
func cutOff(b *testbed) {
	b.each("Delay", func(b *testbed) { cutOffAfter(b, queued(b), false) })
	b.each("WaitUpTo", func(b *testbed) {
		lim := b.limiter(core.InFlight(1))
		held, err := lim.Acquire(b.Context(), ipKey, 1)
		if err != nil {
			b.Fatal(err)
		}
		key := func(r keyfunc.Request) (string, error) {
			time.AfterFunc(cutOffWait, func() { _ = held.Release(context.Background()) })
			return keyfunc.IP()(r)
		}
		cutOffAfter(b, Limit{Limiter: lim, Key: key, Options: []guard.Option{guard.WaitUpTo(testTimeout)}}, false)
	})
}

func cutOffHTTP2(b *testbed) { cutOffAfter(b, queued(b), true) }

// cutOffWait is how long a request waits. The WriteTimeout of its server is half of that. Redis must decide in this time. The wait must
// end after it, even if the machine is late and the request arrives some time after the wait has begun.
const cutOffWait = time.Second

// queued returns a limit whose next request waits for cutOffWait.
func queued(b *testbed) Limit {
	b.Helper()
	lim := b.limiter(core.LeakyBucket(core.Per(1, cutOffWait), core.Burst(9)))
	if r, err := lim.Acquire(b.Context(), ipKey, 1); err != nil || !r.Allowed {
		b.Fatalf("Acquire: got %+v, %v; want it admitted", r, err)
	}
	return Limit{Limiter: lim, Key: keyfunc.IP()}
}

func cutOffAfter(b *testbed, limit Limit, http2 bool) {
	b.Helper()
	s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a"}, {Path: "/b"}}, HTTP2: http2, WriteTimeout: cutOffWait / 2})
	s.server.Transport.DisableKeepAlives = true // on a reused connection, the transport would send the request again
	want := 1
	if b.adapter.Lacks[ResponseWriter] != "" { // with fasthttp, the WriteTimeout begins when the response is ready
		want = 0
	}
	if _, err := s.try(b.Context(), http.MethodGet, "/a"); (err != nil) != (want > 0) {
		b.Errorf("the client got the error %v, want one: %v", err, want > 0)
	}
	_, _ = s.try(b.Context(), http.MethodGet, "/b")
	if got := b.logs.Count("WriteTimeout"); got != want {
		b.Errorf("%d lines about the WriteTimeout were logged, want %d: %s", got, want, b.logs.String())
	}
}
