package fiberlimit

import (
	"bytes"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// lines returns all lines of the header called name. fasthttp appends the trailer of a
// chunked body to the headers, where it would be the last entry of X-Forwarded-For: of a
// chunked request only as many lines count as its header block has. Lines that the
// application itself added to such a request do not count either, as they look the same.
//
// The lines are valid until a header is read again.
func (q request) lines(name string) (lines [][]byte, chunked bool) {
	header := &q.c.Request().Header
	block := header.RawHeaders() // empty if a converter made the request, which has no trailer then
	chunked = len(linesIn(block, fiber.HeaderTransferEncoding)) > 0
	if q.c.App().Server().DisableHeaderNamesNormalizing {
		// Fiber finds one spelling only. Clients choose theirs, and HTTP/2 proxies write lower case.
		if lines = linesIn(block, name); len(lines) > 0 {
			return lines, chunked
		}
	}
	lines = header.PeekAll(name)
	if chunked && len(lines) > 0 {
		lines = lines[:min(len(lines), len(linesIn(block, name)))]
	}
	return lines, chunked
}

// linesIn returns the values of the header called name, in upper or lower case, that a
// header block has. One that is continued on a further line has the line end in it.
func linesIn(block []byte, name string) (values [][]byte) {
	defer func() {
		for i, value := range values {
			values[i] = bytes.Trim(value, " \r\n") // as fasthttp does
		}
	}()
	var value []byte // that of the line before, if it is called name
	for at := 0; at < len(block); {
		end := len(block)
		if i := bytes.IndexByte(block[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line := block[at:end]
		at = end
		switch {
		case line[0] == '\n' || string(line) == "\r\n":
			return values
		case line[0] == ' ' || line[0] == '\t':
			if value != nil {
				value = block[end-len(line)-len(value) : end]
				values[len(values)-1] = value
			}
		case len(line) > len(name) && line[len(name)] == ':' && strings.EqualFold(string(line[:len(name)]), name):
			value = line[len(name)+1:]
			values = append(values, value)
		default:
			value = nil
		}
	}
	return values
}

// cookieIn returns the first value of the cookie called name in lines of the header
// Cookie, parsed as Fiber parses them. Fiber's accessor does the same in a time that is
// quadratic in the number of lines.
func cookieIn(lines [][]byte, name string) string {
	var header fasthttp.RequestHeader
	for _, line := range lines {
		header.AddBytesV(fiber.HeaderCookie, line)
	}
	return string(header.Cookie(name))
}
