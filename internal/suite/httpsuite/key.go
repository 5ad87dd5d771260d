package httpsuite

import (
	"context"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// keyCases test the key by which a request is counted.
func keyCases() []testCase {
	return []testCase{
		{"User", func(b *testbed) { users(b, UserKey) }, nil},
		{"TypedUser", func(b *testbed) { users(b, TypedUserKey) }, nil},
		{"MissingKey", missingKey, nil},
		{"Fallback", fallback, nil},
		{"NativeKey", nativeKey, nil},
		{"NativeRequest", nativeRequest, nil},
		{"Request", request, nil},
		{"TrailerHTTP2", trailerHTTP2, []Ability{HTTP2}},
	}
}

// A keyedRequest is a request with a header line that has its key, and the status of its response.
type keyedRequest struct {
	line   string // the header line
	status int
}

// getEach sends the requests one after the other, and checks their statuses.
func (s *servedApp) getEach(path string, requests []keyedRequest) {
	s.Helper()
	for i, v := range requests {
		var lines []string
		if v.line != "" {
			lines = append(lines, v.line)
		}
		ans := s.get(path, lines...)
		ans.what += " as " + v.line
		ans.wantStatus(v.status)
		if s.Failed() {
			s.Fatalf("the failure is in request %d", i+1)
		}
	}
}

func users(b *testbed, key any) {
	s := b.behind(Limit{Limiter: b.limiter(core.FixedWindow(core.PerMinute(1))), Key: keyfunc.User(key)})
	s.getEach("/a", []keyedRequest{{user("alice"), 200}, {user("alice"), 429}, {user("bob"), 200}, {user("bob"), 429}})
	ans := s.get("/b", user("alice"))
	ans.wantDenied()
	ans.wantHeaders("1", "0", "1800000073", "60")
}

// missingKey sends requests without a user: they are limited by the peer's address, but under another key than keyfunc.IP
// has.
func missingKey(b *testbed) {
	fallbacks := 0
	lim := b.limiter(core.FixedWindow(core.PerMinute(2)), core.Observe(func(_ context.Context, e core.Event) {
		if e.Kind == core.EventKeyFallback {
			fallbacks++
		}
	}))
	b.behind(Limit{Limiter: lim, Key: keyfunc.User(UserKey)}).getEach("/a", []keyedRequest{
		{user("alice"), 200}, {user("alice"), 200}, {user("alice"), 429},
		{"", 200}, {"", 200}, {"", 429}, {user("bob"), 200},
	})
	if fallbacks != 3 {
		b.Errorf("got %d events about requests without a key, want 3", fallbacks)
	}
	b.wantLeft(lim, fallbackKey, 0)
	b.wantLeft(lim, ipKey, 2)
	if b.logs.lines("WARN") > 0 { // requests without a user are not a mistake of the app
		b.Errorf("the log has %s, want no warning", b.logs.String())
	}
}

// fallback counts requests without their key by another key, and requests without that key by the peer's address.
func fallback(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(2)))
	device := func(r keyfunc.Request) (string, error) { return nativeKeyOf(r.Header(KeyHeader)) }
	limit := Limit{Limiter: lim, Key: keyfunc.User(UserKey), Options: []guard.Option{guard.Fallback(device)}}
	s := b.behind(limit)
	s.getEach("/a", []keyedRequest{
		{user("alice"), 200}, {user("alice"), 200}, {user("alice"), 429},
		{KeyHeader + ": one", 200}, {KeyHeader + ": one", 200}, {KeyHeader + ": one", 429}, {KeyHeader + ": two", 200},
		{"", 200}, {"", 200}, {"", 429},
		{KeyHeader + ": broken", 500},
	})
	b.wantLeft(lim, "one", 0)
	b.wantLeft(lim, "two", 1)
	b.wantLeft(lim, fallbackKey, 0)
	s.get("/a", user("bob"), KeyHeader+": two").wantServed()
	b.wantLeft(lim, "two", 1) // bob's request was counted by its own key
	b.wantLogged("secret detail")

	limit.Options = []guard.Option{guard.Fallback(func(keyfunc.Request) (string, error) { return "", nil })}
	b.behind(limit).getEach("/a", []keyedRequest{{"", 500}})
}

// nativeKey takes the key from the framework's own request.
func nativeKey(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(2)))
	s := b.behind(Limit{Limiter: lim, NativeKey: true})
	s.getEach("/a", []keyedRequest{
		{KeyHeader + ": one", 200}, {KeyHeader + ": one", 200}, {KeyHeader + ": one", 429},
		{KeyHeader + ": two", 200}, {"", 200}, {KeyHeader + ": broken", 500},
	})
	b.wantLeft(lim, "one", 0)
	b.wantLeft(lim, "two", 1)
	b.wantLeft(lim, fallbackKey, 1)
}

// nativeRequest makes a native key function call others with the adapter's Request.
func nativeRequest(b *testbed) {
	lim := b.limiter(core.FixedWindow(core.PerMinute(2)))
	key := keyfunc.Join(keyfunc.IP(), keyfunc.User(UserKey), keyfunc.Header("Demo-Line"))
	b.behind(Limit{Limiter: lim, NativeKey: true, Key: key}).
		send(http.MethodGet, "/a", KeyHeader+": login", user("alice"), "Demo-Line: 1").wantServed()
	b.wantLeft(lim, "login,join:"+ipKey+",user:alice,header:Demo-Line:1", 1)
	b.behind(Limit{Limiter: lim, NativeKey: true, Key: keyfunc.IP()}).send(http.MethodGet, "/a", KeyHeader+": proxied", "X-Forwarded-For: 192.0.2.1").wantServed()
	if n := b.logs.Count("limiter=api"); n != 1 {
		b.Errorf("%d warnings have the limiter's name, want 1: the adapter's Request has the limiter's logger", n)
	}
}

// request calls every method of a Request.
func request(b *testbed) {
	var got []string
	limit := b.fixed(9)
	limit.Key = func(r keyfunc.Request) (string, error) {
		remote, err := netip.ParseAddrPort(r.RemoteAddr())
		if err != nil || !remote.Addr().IsLoopback() || r.Context() == nil || r.Unwrap() == nil || r.Value("none") != nil {
			b.Errorf("the request has the peer %q, the context %v, the native request %T and, for a missing key, the value %v; want a loopback address, a context, a native request, and nil", r.RemoteAddr(), r.Context(), r.Unwrap(), r.Value("none"))
		}
		got = append([]string{
			r.Method(), r.Path(), r.Query("q"), r.Query("none"), r.Cookie("c"), r.Cookie("none"),
			r.Value(UserKey).(string), r.Header("demo-line"), r.Header("None"),
		}, r.HeaderValues("Demo-Line")...)
		for i := range got {
			got[i] = strings.Clone(got[i]) // a framework may reuse the memory of these strings
		}
		return keyfunc.IP()(r)
	}
	s := b.behind(limit)
	s.send(http.MethodPost, "/a?q=x%20y&q=z", user("alice"), "Cookie: c=v; d=w", "Demo-Line: 1", "Demo-Line: 2, 3").wantServed()
	want := []string{"POST", "/a", "x y", "", "v", "", "alice", "1", "", "1", "2, 3"}
	if !slices.Equal(got, want) {
		b.Errorf("the methods of the request return %q, want %q", got, want)
	}
	b.wantLeft(limit.Limiter, ipKey, 8)
}

// trailerHTTP2 sends, after the body, trailers that would name another client. Package clientsuite does the same over
// HTTP/1.
func trailerHTTP2(b *testbed) {
	limit := b.fixed(9)
	limit.Key = keyfunc.FirstOf(keyfunc.APIKey("X-API-Key"), keyfunc.Cookie("session"), keyfunc.IP(keyfunc.TrustedProxies("127.0.0.1")))
	s := b.serve(App{Use: []Mount{limit}, Routes: []Route{{Path: "/a"}}, HTTP2: true})
	ctx, cancel := context.WithTimeout(b.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.server.URL+"/a", io.NopCloser(strings.NewReader("of unknown length")))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	req.Trailer = http.Header{"X-Forwarded-For": {"198.51.100.6"}, "X-Api-Key": {"forged"}, "Cookie": {"session=forged"}}
	ans, err := s.roundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	ans.wantServed()
	if ans.proto != "HTTP/2.0" {
		b.Errorf("the response came over %s, want HTTP/2.0", ans.proto)
	}
	b.wantLeft(limit.Limiter, "ip:192.0.2.1", 8)
}
