package fiberlimit

import (
	"bufio"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
)

// parsed returns a request with these lines of the header Cookie, as a server reads it.
// It reports false if a server would refuse it.
func parsed(tb testing.TB, cookies ...string) (request, bool) {
	tb.Helper()
	var text strings.Builder
	text.WriteString("GET / HTTP/1.1\r\nHost: test\r\n")
	for _, line := range cookies {
		text.WriteString("Cookie: " + line + "\r\n")
	}
	text.WriteString("\r\n")
	var ctx fasthttp.RequestCtx
	if err := ctx.Request.Read(bufio.NewReaderSize(strings.NewReader(text.String()), text.Len())); err != nil {
		return request{}, false
	}
	app := fiber.New()
	c := app.AcquireCtx(&ctx)
	tb.Cleanup(func() { app.ReleaseCtx(c) })
	return request{c}, true
}

// FuzzCookie compares the cookie that a request is counted by with what the application
// gets from Fiber: they are the same, so that no client is one user to the application
// and another one to the limiter.
func FuzzCookie(f *testing.F) {
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
			q, ok := parsed(t, lines...)
			if !ok {
				continue
			}
			for _, name := range []string{"a", "b", ""} {
				got := q.Cookie(name)
				again, _ := parsed(t, lines...)
				if want := again.c.Cookies(name); got != want {
					t.Errorf("cookie %q of %q: %q, and Fiber has %q", name, lines, got, want)
				}
			}
		}
	})
}

// BenchmarkCookie has requests of about 64 kB, which need a larger ReadBufferSize than
// Fiber's default, with their cookies in one line and in many.
func BenchmarkCookie(b *testing.B) {
	for name, lines := range map[string][]string{
		"one line":    {strings.Repeat("c=1; ", 12_000) + "session=1"},
		"5,000 lines": append(make([]string, 5_000), "session=1"),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				q, ok := parsed(b, lines...)
				b.StartTimer()
				if !ok || q.Cookie("session") != "1" {
					b.Fatal("no such cookie")
				}
			}
		})
	}
}

// TestCookieLines looks for whether many lines of cookies were left to Fiber, which
// takes quadratic time: it would have collected them into one.
func TestCookieLines(t *testing.T) {
	q, ok := parsed(t, append(make([]string, 100), "session=1")...)
	if !ok || q.Cookie("session") != "1" || q.Cookie("other") != "" {
		t.Error("the cookie is not the one that was sent")
	}
	if n := len(q.c.Request().Header.PeekAll(fiber.HeaderCookie)); n != 101 {
		t.Errorf("%d lines are left of 101", n)
	}
}
