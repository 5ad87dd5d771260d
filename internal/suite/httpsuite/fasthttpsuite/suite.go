// Package fasthttpsuite has further cases for the adapters of frameworks on fasthttp, which need no connection. It is
// separate from httpsuite so that tests of the other frameworks do not depend on fasthttp.
package fasthttpsuite

import (
	"bufio"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/suite/httpsuite"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/keyfunc"
)

// NewContext returns a request to / from 192.0.2.1, in the form of fasthttp.
func NewContext() *fasthttp.RequestCtx {
	var request fasthttp.Request
	request.SetRequestURI("/")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	return &ctx
}

// DroppedRequest makes fasthttp drop a request without ending it: the handler wants to take over the connection, but the
// client has left by then. The units of the request must not be held forever. The handler of app sets a cost of 3.
func DroppedRequest(t *testing.T, app func(httpsuite.Limit) fasthttp.RequestHandler) {
	t.Helper()
	lim, err := core.NewMemory("api", core.FixedWindow(core.PerDay(10)))
	if err != nil {
		t.Fatal(err)
	}
	left := func() int64 {
		res, err := lim.Peek(t.Context(), "ip:192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		return res.Remaining
	}
	drop(app(httpsuite.Limit{Limiter: lim, Key: keyfunc.IP(), Options: []guard.Option{guard.CostAfter()}}))
	if got := left(); got != 9 {
		t.Errorf("%d units remain while the request is in flight, want 9", got)
	}
	check.Eventually(t, "the cost is charged, and no more", func() bool {
		runtime.GC()
		return left() == 7
	})
}

// drop makes handle serve a request. When drop returns, nothing refers to the request any more, so that it can be collected.
//
//go:noinline
func drop(handle fasthttp.RequestHandler) { handle(NewContext()) }

// Cookies returns a request as key functions see it, and a function that reads its cookies as the framework itself does.
type Cookies func(tb testing.TB, ctx *fasthttp.RequestCtx) (r keyfunc.Request, framework func(name string) string)

// parsed returns a request with these lines of the header Cookie, as a server reads it, or nil if a server would refuse it.
func parsed(cookies ...string) *fasthttp.RequestCtx {
	var text strings.Builder
	text.WriteString("GET / HTTP/1.1\r\nHost: test\r\n")
	for _, line := range cookies {
		text.WriteString("Cookie: " + line + "\r\n")
	}
	text.WriteString("\r\n")
	var ctx fasthttp.RequestCtx
	if err := ctx.Request.Read(bufio.NewReaderSize(strings.NewReader(text.String()), text.Len())); err != nil {
		return nil
	}
	return &ctx
}

// FuzzCookie compares the cookie by which a request is counted with the cookie that the application gets from its
// framework. Both must be equal, so that no client is one user to the application and another to the limiter.
func FuzzCookie(f *testing.F, cookies Cookies) {
	for _, lines := range [][2]string{
		{"", ""},
		{"a=1", "a=2"},
		{"b=1", "a=2"},
		{`a="1"`, "a=2"},
		{"a", "a=2"},
		{"a=", "a=2"},
		{"a=1;a=2", " a = 3 "},
		{"=1; a=2", "a"},
		{";;a=1", "; ;"},
		{`a=""1""`, `a="`},
		{"A=1", "a=%31"},
		{"a=1=2", "a=\t3"},
		{"a=1,a=2", "$Version=1; a=3"},
		{"a\x00=1", "a=\xff"},
	} {
		f.Add(lines[0], lines[1])
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		for _, lines := range [][]string{{first}, {first, second}, {first, second, first}} {
			for _, name := range []string{"a", "b", ""} {
				ctx, again := parsed(lines...), parsed(lines...)
				if ctx == nil {
					continue
				}
				r, _ := cookies(t, ctx)
				_, framework := cookies(t, again)
				if got, want := r.Cookie(name), framework(name); got != want {
					t.Errorf("cookie %q of %q: got %q, want %q as in the framework", name, lines, got, want)
				}
			}
		}
	})
}

// CookieLines checks that many lines of cookies are not parsed by the framework, which would take quadratic time. The
// framework would have collected them into one line.
func CookieLines(t *testing.T, cookies Cookies) {
	t.Helper()
	ctx := parsed(append(make([]string, 100), "session=1")...)
	if r, _ := cookies(t, ctx); r.Cookie("session") != "1" || r.Cookie("other") != "" {
		t.Errorf("the cookies are %q and %q, want 1 and none", r.Cookie("session"), r.Cookie("other"))
	}
	if n := len(ctx.Request.Header.PeekAll("Cookie")); n != 101 {
		t.Errorf("the request has %d lines of cookies after the key was read, want the 101 that were sent", n)
	}
}
