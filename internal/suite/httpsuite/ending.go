package httpsuite

import (
	"fmt"
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
)

// A way is how a request ends.
type way struct {
	name    string
	handler Handler
	status  int  // that the client gets; 0: frameworks differ
	rudely  bool // the app has no error handler
}

// countIf ends a request in every way there is: what is counted goes by the
// status that the client gets.
func countIf(b *bench) {
	for _, w := range []way{
		{"Served", Handler{}, 200, false},
		{"Silent", Handler{Do: Silent}, 200, false},
		{"Created", Handler{Status: 201}, 201, false},
		{"NoContent", Handler{Status: 204}, 204, false},
		{"Status", Handler{Status: 401}, 401, false},
		{"FrameworkError", Handler{Do: Fail, Status: 403}, 403, false},
		{"FrameworkError502", Handler{Do: Fail, Status: 502}, 502, false},
		{"RenderedError", Handler{Do: Throw}, 418, false},
		{"Error", Handler{Do: Throw}, 0, true}, // Gin leaves it at 200
		{"Panic", Handler{Do: Panic}, 500, false},
		{"PanicLate", Handler{Do: PanicLate}, 0, false}, // what was written is sent, or is taken back
		{"NotFound", Handler{}, 404, false},
	} {
		for _, place := range []Place{Everywhere, InGroup, OnRoute} {
			if w.status == http.StatusNotFound && place != Everywhere {
				continue // nothing is mounted there
			}
			for _, failures := range []bool{true, false} {
				b.each(fmt.Sprintf("%s/%s/failures=%t", w.name, place, failures), func(b *bench) { b.ends(w, place, failures) })
			}
		}
	}
}

// ends has a request end in the way w, where either failures count or all else does.
func (b *bench) ends(w way, place Place, failures bool) {
	b.Helper()
	var saw seen
	limit := b.fixed(9)
	limit.Options = []guard.Option{saw.counts(func(status int) bool { return status >= 400 == failures })}
	app := mountedAt(place, limit, Route{Path: "/a", Handler: w.handler})
	app.Recover, app.Renders = true, !w.rudely
	path := "/g/a"
	if w.status == http.StatusNotFound {
		path = "/nowhere"
	}
	s := b.serve(app)
	ans := s.get(path)
	s.close() // so that all is done, or about to be
	if w.status != 0 && ans.status != w.status {
		b.Errorf("status %d, want %d", ans.status, w.status)
	}
	saw.want(b, ans.status)
	left := int64(9)
	if ans.status >= 400 == failures {
		left = 8
	}
	b.until("counted or given back", func() bool { return b.left(limit.Limiter, peer) == left })
}
