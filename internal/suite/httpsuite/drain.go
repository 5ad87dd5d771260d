package httpsuite

import (
	"context"
	"net/http"

	"github.com/redislimit/redislimit/core"
)

// drain cancels a server's BaseContext, as programs do when they shut down. A client that is still connected gets a 503
// with Retry-After, and not the status of a client that has left.
func drain(b *testbed) {
	ctx, cancel := context.WithCancel(context.Background())
	s := b.serve(App{Base: ctx, Renders: true, Routes: []Route{{Path: "/a", Use: []Mount{b.fixed(9)}}}})
	s.get("/a").wantServed()
	cancel()
	ans := s.get("/a")
	ans.wantStatus(http.StatusServiceUnavailable)
	ans.wantHeader("Retry-After", "1")
	if lim := b.limiter(core.FixedWindow(core.PerMinute(9))); b.left(lim, ipKey) != 8 {
		b.Error("a request with a canceled context was charged, want it not charged")
	}
}
