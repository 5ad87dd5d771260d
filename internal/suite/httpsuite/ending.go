package httpsuite

import (
	"fmt"
	"net/http"

	"github.com/redislimit/redislimit/core/guard"
)

// An ending is how a request ends.
type ending struct {
	name    string
	handler Handler
	status  int  // that the client gets; 0: frameworks differ
	bare    bool // the app has no error handler
}

func endings() []ending {
	return []ending{
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
	}
}

// countIf ends a request in every way: it counts by the status that the client gets.
func countIf(b *testbed) {
	for _, e := range endings() {
		for _, point := range []MountPoint{Everywhere, InGroup, OnRoute} {
			if e.status == http.StatusNotFound && point != Everywhere {
				continue // nothing is mounted there
			}
			for _, failures := range []bool{true, false} {
				b.each(fmt.Sprintf("%s/%s/failures=%t", e.name, point, failures), func(b *testbed) { b.ends(e, point, failures) })
			}
		}
	}
}

// ends has a request end as in e, where either failures count or everything else
// does.
func (b *testbed) ends(e ending, point MountPoint, failures bool) {
	b.Helper()
	var saw statusLog
	limit := b.fixed(9)
	limit.Options = []guard.Option{saw.counts(func(status int) bool { return status >= 400 == failures })}
	app := mountedAt(point, limit, Route{Path: "/a", Handler: e.handler})
	app.Recover, app.Renders = true, !e.bare
	path := "/g/a"
	if e.status == http.StatusNotFound {
		path = "/nowhere"
	}
	s := b.serve(app)
	ans := s.get(path)
	s.close() // so that all is done, or about to be
	if e.status != 0 && ans.status != e.status {
		b.Errorf("status %d, want %d", ans.status, e.status)
	}
	saw.want(b, ans.status)
	left := int64(9)
	if ans.status >= 400 == failures {
		left = 8
	}
	b.untilLeft(limit.Limiter, ipKey, left)
}
