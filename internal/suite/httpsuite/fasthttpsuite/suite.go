// Package fasthttpsuite holds what the adapters of frameworks on fasthttp must do besides, without
// a connection. It is apart from httpsuite, so that the other frameworks do not need fasthttp.
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

// NewContext returns a request to / from 192.0.2.1, as fasthttp has it.
func NewContext() *fasthttp.RequestCtx {
	var request fasthttp.Request
	request.SetRequestURI("/")
	var ctx fasthttp.RequestCtx
	ctx.Init(&request, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234}, nil)
	return &ctx
}

// DroppedRequest makes fasthttp drop a request whose handler wants to take over the connection, and not end
// it, as it does if the client has left by then: what is held for it must not be held for ever. The handler
// of app sets a cost of 3.
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
		t.Errorf("%d left while the request is not over, want 9", got)
	}
	check.Eventually(t, "the cost is charged, and no more", func() bool {
		runtime.GC()
		return left() == 7
	})
}

// drop has a request handled, of which nothing is left when drop returns.
//
//go:noinline
func drop(handle fasthttp.RequestHandler) { handle(NewContext()) }

// Cookies returns a request as key functions see it, and how the framework itself reads
// its cookies.
type Cookies func(tb testing.TB, ctx *fasthttp.RequestCtx) (r keyfunc.Request, framework func(name string) string)

// parsed returns a request with these lines of the header Cookie, as a server reads it. It
// returns nil if a server would refuse it.
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

// FuzzCookie compares the cookie that a request is counted by with what the application
// gets from its framework: they are the same, so that no client is one user to the
// application and another one to the limiter.
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
					t.Errorf("cookie %q of %q: %q, and the framework has %q", name, lines, got, want)
				}
			}
		}
	})
}

// CookieLines looks for whether many lines of cookies were left to the framework, which
// takes quadratic time: it would have collected them into one.
func CookieLines(t *testing.T, cookies Cookies) {
	t.Helper()
	ctx := parsed(append(make([]string, 100), "session=1")...)
	if r, _ := cookies(t, ctx); r.Cookie("session") != "1" || r.Cookie("other") != "" {
		t.Error("the cookie is not the one that was sent")
	}
	if n := len(ctx.Request.Header.PeekAll("Cookie")); n != 101 {
		t.Errorf("%d lines are left of 101", n)
	}
}
