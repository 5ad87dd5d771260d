package fiberlimit

import (
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/redislimit/redislimit/core/guard/adapter"
)

// lines returns all lines of the header called name. fasthttp appends the trailer of a chunked body to the
// headers, so a client could use a trailer to add the last entry of Forwarded. For a chunked request, lines
// therefore returns only as many lines as the header block has. Lines that the application added are dropped as
// well, because they look like a trailer.
//
// The lines are valid until a header is read again.
func (q request) lines(name string) [][]byte {
	header := &q.c.Request().Header
	block := header.RawHeaders() // empty if a converter made the request, which has no trailer then
	if q.c.App().Server().DisableHeaderNamesNormalizing {
		// Fiber finds only one spelling of the name. Clients choose theirs, and HTTP/2 proxies write lower
		// case.
		if lines := adapter.HeaderLines(block, name); len(lines) > 0 {
			return lines
		}
	}
	lines := header.PeekAll(name)
	if len(lines) > 0 && len(adapter.HeaderLines(block, fiber.HeaderTransferEncoding)) > 0 {
		lines = lines[:min(len(lines), len(adapter.HeaderLines(block, name)))]
	}
	return lines
}

// cookieIn returns the first value of the cookie called name in lines of the header Cookie, parsed
// as Fiber parses them. Fiber's accessor does the same in a time that is quadratic in the number of
// lines.
func cookieIn(lines [][]byte, name string) string {
	var header fasthttp.RequestHeader
	for _, line := range lines {
		header.AddBytesV(fiber.HeaderCookie, line)
	}
	return string(header.Cookie(name))
}
