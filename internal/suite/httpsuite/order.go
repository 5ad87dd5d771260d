package httpsuite

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// orderCases test the rows of the table in docs/guide.md: the effects of a limit inside and outside another middleware.
// TestTimeoutHandler tests the row about http.TimeoutHandler.
func orderCases() []testCase {
	return []testCase{
		{"OrderRecover", orderRecover, nil},
		{"OrderLog", orderLog, nil},
		{"OrderCORS", orderCORS, nil},
		{"OrderAuth", orderAuth, nil},
		{"OrderCompression", orderCompression, nil},
	}
}

// ordered serves /a behind mounts, the outermost first.
func (b *testbed) ordered(mounts ...Mount) *servedApp {
	b.Helper()
	return b.serve(App{Use: mounts, Routes: []Route{{Path: "/a", Handler: Handler{Body: longBody}}}, Recover: true, Renders: true})
}

// longBody is long enough to be compressed.
var longBody = strings.Repeat("served again and again ", 100)

// orderRecover makes a key function panic inside a middleware that recovers: the client gets a 500. Without it, the
// connection ends or, with Fiber, the process.
func orderRecover(b *testbed) {
	limit := b.fixed(9)
	limit.Key = func(r keyfunc.Request) (string, error) { return r.Header("Parts")[:2], nil }
	s := b.ordered(limit)
	s.get("/a").wantStatus(http.StatusInternalServerError)
	s.get("/a", "Parts: one").want(http.StatusOK, longBody)
	if b.adapter.Lacks[ResponseWriter] != "" {
		return
	}
	bare := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a"}}})
	if ans, err := bare.try(b.Context(), http.MethodGet, "/a"); err == nil {
		b.Errorf("without a middleware that recovers: got status %d, want no response", ans.status)
	}
}

// orderLog checks that a log sees only the denials of limits inside of it.
func orderLog(b *testbed) {
	for _, outside := range []bool{true, false} {
		b.redis.FlushAll()
		var saw statusLog
		mounts := []Mount{Log{saw.add}, b.fixed(1)}
		want := []int{http.StatusOK, http.StatusTooManyRequests}
		if !outside {
			slices.Reverse(mounts)
			want = want[:1]
		}
		s := b.ordered(mounts...)
		s.get("/a").want(http.StatusOK, longBody)
		s.get("/a")
		s.close()
		saw.want(b, want...)
	}
}

// orderCORS sends the requests of a browser for a script: first a preflight, and then the request with its key.
func orderCORS(b *testbed) {
	preflight := []string{"Origin: https://app.example", "Access-Control-Request-Method: GET", "Access-Control-Request-Headers: x-api-key"}
	skip := guard.Skip(func(r keyfunc.Request) bool {
		return r.Method() == http.MethodOptions && r.Header("Access-Control-Request-Method") != ""
	})
	for name, c := range map[string]struct {
		outside  bool
		options  []guard.Option
		charged  int64 // units charged to the peer for a preflight
		readable bool  // scripts can read the denial
	}{
		"outside": {outside: true, readable: true},
		"inside":  {charged: 1},
		"skipped": {options: []guard.Option{skip}},
	} {
		b.each(name, func(b *testbed) {
			limit := b.fixed(1)
			limit.Key, limit.Options = keyfunc.APIKey("X-API-Key"), c.options
			mounts := []Mount{CORS{}, limit}
			if !c.outside {
				slices.Reverse(mounts)
			}
			s := b.ordered(mounts...)
			if ans := s.send(http.MethodOptions, "/a", preflight...); ans.status != http.StatusNoContent {
				b.Errorf("the preflight got status %d, want 204", ans.status)
			}
			b.wantLeft(limit.Limiter, fallbackKey, 1-c.charged)
			key := []string{preflight[0], "X-API-Key: one"}
			s.get("/a", key...).want(http.StatusOK, longBody)
			ans := s.get("/a", key...)
			ans.wantDenied()
			if got := ans.header.Get("Access-Control-Allow-Origin"); (got != "") != c.readable {
				b.Errorf("a denial has the Access-Control-Allow-Origin %q, want one: %v", got, c.readable)
			}
		})
	}
}

// orderAuth mounts a limit by user outside the authentication: all users are counted by their address, which is logged
// once.
func orderAuth(b *testbed) {
	limit := b.fixed(2)
	limit.Key = keyfunc.User(UserKey)
	s := b.serve(App{Use: []Mount{limit, Auth{}}, Routes: []Route{{Path: "/a"}}})
	s.getEach("/a", []keyedRequest{{user("alice"), 200}, {user("bob"), 200}, {user("carol"), 429}})
	b.wantLeft(limit.Limiter, fallbackKey, 0)
	if b.logs.lines("WARN") != 1 || b.logs.Count("mount the middleware after the authentication") != 1 {
		b.Errorf("the log has %s, want one warning about the order", b.logs.String())
	}
}

// orderCompression checks, with the limit inside and outside a compression, that the body is compressed and that a denial
// can be read.
func orderCompression(b *testbed) {
	for name, outside := range map[string]bool{"outside": true, "inside": false} {
		b.eachWriter(1, func(b *testbed, limit Limit) {
			mounts := []Mount{Compress{}, limit}
			if !outside {
				slices.Reverse(mounts)
			}
			s := b.ordered(mounts...)
			ans := s.get("/a", "Accept-Encoding: gzip")
			if ans.header.Get("Content-Encoding") != "gzip" || unzipped(ans) != longBody {
				b.Errorf("%s: got status %d, header %v and %d bytes, want the whole body compressed", name, ans.status, ans.header, len(ans.body))
			}
			ans = s.get("/a", "Accept-Encoding: gzip")
			ans.wantDenied()
			ans.wantHeaders("1", "0", "1800000073", "60")
			if body := unzipped(ans); !strings.Contains(body, "quota") && !strings.Contains(body, "denied: ") {
				b.Errorf("%s: the body of the denial is %q, want the usual one", name, body)
			}
		})
	}
}

// unzipped returns the body of ans as a client reads it.
func unzipped(ans answer) string {
	if ans.header.Get("Content-Encoding") != "gzip" {
		return ans.body
	}
	r, err := gzip.NewReader(strings.NewReader(ans.body))
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(r)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
