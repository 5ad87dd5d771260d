package httpsuite

import (
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// cachingCases test that no cache between the server and its clients may store a response that one client receives instead
// of the handler's, and send it to another client.
func cachingCases() []testCase {
	return []testCase{{"Caching", caching, nil}}
}

// cacheable are the headers that an outer middleware sets for the handler's response.
var cacheable = []Mount{
	AddHeader{"Cache-Control", "public, max-age=3600"}, AddHeader{"Age", "7"}, AddHeader{"Etag", `"v1"`},
	AddHeader{"Expires", "Mon, 16 Nov 2026 10:00:00 GMT"}, AddHeader{"Last-Modified", "Mon, 16 Nov 2026 09:00:00 GMT"},
	AddHeader{"Content-Disposition", "attachment"}, AddHeader{"CDN-Cache-Control", "max-age=3600"},
	AddHeader{"Cloudflare-CDN-Cache-Control", "max-age=3600"}, AddHeader{"Surrogate-Control", "max-age=3600"}, AddHeader{"X-Accel-Expires", "3600"},
}

func caching(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(4)))
	limit := Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{estimate(3)}}
	unnamed := Limit{Limiter: b.limiter(core.FixedWindow(core.PerHour(1))), Key: keyfunc.IP(), Options: []guard.Option{guard.NoHeaders()}}
	s := b.serve(App{Renders: true, Use: append([]Mount{AddHeader{"Vary", "Accept"}}, cacheable...), Routes: []Route{
		{Path: "/middleware", Use: []Mount{limit}},
		{Path: "/handler", Handler: Handler{Asks: []Ask{charging(lim, 3)}}},
		{Path: "/unnamed", Use: []Mount{unnamed}},
		{Path: "/broken", Use: []Mount{b.broken()}},
	}})
	for _, path := range []string{"/middleware", "/handler", "/unnamed"} {
		served := s.get(path)
		served.wantServed()
		for _, mount := range cacheable {
			set := mount.(AddHeader)
			served.wantHeader(set.Name, set.Value)
		}
		s.get(path).wantUncached(http.StatusTooManyRequests)
	}
	s.get("/broken").wantUncached(http.StatusInternalServerError)
	b.redis.SetError("LOADING")
	for _, path := range []string{"/middleware", "/handler"} {
		s.get(path).wantUncached(http.StatusServiceUnavailable)
	}
	b.redis.SetError("")
	b.each("OwnHandler", func(b *testbed) {
		own := b.fixed(1)
		own.OnDenied = &Handler{Status: http.StatusTooManyRequests, Body: "slow down"}
		s := b.serve(App{Use: append([]Mount{AddHeader{"Vary", "Accept"}}, cacheable...), Routes: []Route{{Path: "/a", Use: []Mount{own}}}})
		s.get("/a").wantServed()
		s.get("/a").wantUncached(http.StatusTooManyRequests)
	})
	b.each("OwnHandlerCaches", func(b *testbed) {
		b.need(ResponseWriter)
		own := b.fixed(1)
		own.OnDenied = &Handler{Do: Inspect, Status: http.StatusTooManyRequests, Probe: func(w http.ResponseWriter) string {
			w.Header().Set("Cache-Control", "private, max-age=7")
			return "slow down"
		}}
		s := b.serve(App{Use: cacheable, Routes: []Route{{Path: "/a", Use: []Mount{own}}}})
		s.get("/a").wantServed()
		s.get("/a").wantHeader("Cache-Control", "private, max-age=7")
	})
}

// wantUncached checks the status, and that no cache may store the response.
func (a answer) wantUncached(status int) {
	a.Helper()
	a.wantStatus(status)
	a.wantHeader("Cache-Control", "no-store")
	a.wantHeader("Vary", "Accept")
	for _, mount := range cacheable[1:] {
		set := mount.(AddHeader)
		a.wantHeader(set.Name, "")
	}
}
