package httpsuite

import (
	"errors"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// routeCases test counting by the matched pattern.
func routeCases() []testCase {
	return []testCase{
		{"RouteAtEachPlace", routeAtEachPlace, nil},
		{"RouteKeepsApart", routeKeepsApart, nil},
		{"RouteHasOnePath", routeHasOnePath, nil},
		{"RouteOfNothing", routeOfNothing, nil},
	}
}

// mountedAt returns an app that serves routes below /g, with mount at point.
func mountedAt(point MountPoint, mount Mount, routes ...Route) App {
	app := App{}
	switch mounts := []Mount{mount}; point {
	case BeforeRouting:
		app.Pre = mounts
	case Everywhere:
		app.Use = mounts
	case InGroup:
		app.Groups = []Group{{Use: mounts}}
	case OnRoute:
		for i := range routes {
			routes[i].Use = mounts
		}
	}
	if app.Groups == nil {
		app.Groups = []Group{{}}
	}
	app.Groups[0].Prefix, app.Groups[0].Routes = "/g", routes
	return app
}

// routeAtEachPlace mounts a limit by route at each mount point. Where the route is not known yet, there is no key. Requests
// are then limited by their address, and not by a pattern that happens to be the same for all, and this is logged once.
func routeAtEachPlace(b *testbed) {
	for _, point := range []MountPoint{BeforeRouting, Everywhere, InGroup, OnRoute} {
		b.each(string(point), func(b *testbed) {
			b.need(Ability(point))
			var pattern, key string
			var err error
			byRoute := keyfunc.Route()
			limit := b.fixed(1)
			limit.Key = func(r keyfunc.Request) (string, error) {
				pattern = r.Route()
				key, err = byRoute(r)
				return key, err
			}
			s := b.serve(mountedAt(point, limit, Route{Path: "/users/{id}"}, Route{Path: "/other"}))
			s.get("/g/users/1").wantServed()
			want := b.adapter.Patterns[point]
			if pattern != want {
				b.Errorf("the route is %q, want %q", pattern, want)
			}
			s.get("/g/users/2").wantDenied()
			if want != "" {
				if err != nil {
					b.Errorf("with a route the key function returned the error %v, want nil", err)
				}
				b.wantLeft(limit.Limiter, key, 0)
				b.wantLeft(limit.Limiter, fallbackKey, 1)
				b.wantWarnings(0)
				return
			}
			if !errors.Is(err, keyfunc.ErrNoKey) {
				b.Errorf("without a route the key function returned %q, %v; want ErrNoKey", key, err)
			}
			s.get("/g/other").wantDenied()
			b.wantLeft(limit.Limiter, fallbackKey, 0)
			b.wantWarnings(1)
		})
	}
}

func (b *testbed) wantWarnings(n int) {
	b.Helper()
	if got := b.logs.lines("WARN"); got != n {
		b.Errorf("%d warnings were logged, want %d", got, n)
	}
}

func (b *testbed) byRoute(n int64) Limit {
	return Limit{Limiter: b.limiter(core.FixedWindow(core.PerMinute(n))), Key: keyfunc.Route()}
}

// routeKeepsApart checks that each pattern has a count of its own, but not each path.
func routeKeepsApart(b *testbed) {
	s := b.serve(mountedAt(OnRoute, b.byRoute(2), Route{Path: "/users/{id}"}, Route{Path: "/users/{id}/posts"}, Route{Path: "/other"}))
	s.getEach("/g/users/1", []keyedRequest{{"", 200}})
	s.getEach("/g/users/2?page=2", []keyedRequest{{"", 200}})
	s.getEach("/g/users/3", []keyedRequest{{"", 429}})
	s.getEach("/g/users/1/posts", []keyedRequest{{"", 200}, {"", 200}, {"", 429}})
	s.getEach("/g/other", []keyedRequest{{"", 200}, {"", 200}, {"", 429}})
}

// routeHasOnePath writes one path in different ways. Frameworks differ in which of them they serve, but none may be a way
// around the limit.
func routeHasOnePath(b *testbed) {
	for _, variant := range []string{"/g/a", "/g/a/", "/g//a", "//g/a", "/g/%61", "/%67/a", "/g/A", "/g/./a", "/g/a?x", "/g/a;x"} {
		b.each(variant, func(b *testbed) {
			s := b.serve(mountedAt(OnRoute, b.byRoute(1), Route{Path: "/a"}))
			first := s.get(variant)
			second := s.get("/g/a")
			if first.body == "served" {
				second.wantDenied()
			} else {
				second.wantServed()
			}
			if last := s.get(variant); last.body == "served" || first.body == "served" && last.status != http.StatusTooManyRequests {
				b.Errorf("%s after the limit was reached: got status %d and body %q, want it not served", variant, last.status, last.body)
			}
		})
	}
}

// routeOfNothing requests paths that do not exist: they share one count. Otherwise each path would have a count of its own.
func routeOfNothing(b *testbed) {
	s := b.serve(mountedAt(Everywhere, b.byRoute(2), Route{Path: "/a"}))
	for i, path := range []string{"/nowhere", "/g/nowhere", "/nowhere/else"} {
		want := map[bool]int{true: http.StatusNotFound, false: http.StatusTooManyRequests}[i < 2]
		s.get(path).wantStatus(want)
	}
}
