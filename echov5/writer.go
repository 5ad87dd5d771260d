package echolimit

import (
	"bufio"
	"cmp"
	"net"
	"net/http"

	"github.com/labstack/echo/v5"
)

// A writer receives what the handlers behind the middleware write, and records the status that they send.
// Echo's own response may get the status later, because Echo's Gzip, mounted further out, holds back the
// header.
type writer struct {
	http.ResponseWriter

	response *echo.Response // Echo's own, at the bottom; nil if middleware further out hides it
	first    int            // the status to send if the handler writes before it sets one; 0 leaves that to Echo
	status   int            // that was sent, or 0
	written  bool
	hijacked bool
}

// newWriter replaces the response of c with a writer.
func newWriter(c *echo.Context, first int) *writer {
	w := &writer{ResponseWriter: c.Response(), first: first}
	w.response, _ = echo.UnwrapResponse(w.ResponseWriter)
	c.SetResponse(w)
	return w
}

// remove restores the response that c had, unless a middleware further in has left its own.
func (w *writer) remove(c *echo.Context) {
	if c.Response() == w {
		c.SetResponse(w.ResponseWriter)
	}
}

// answered reports whether the handler has answered, by w or by Echo's response itself.
func (w *writer) answered() bool {
	return w.status != 0 || w.written || w.hijacked || w.response != nil && w.response.Committed
}

// sent returns the status of the answer.
func (w *writer) sent() int {
	switch {
	case w.status != 0:
		return w.status
	case w.hijacked:
		return http.StatusSwitchingProtocols
	case w.response != nil:
		return cmp.Or(w.response.Status, http.StatusOK)
	}
	return http.StatusOK
}

func (w *writer) WriteHeader(status int) {
	if w.status == 0 && !w.hijacked { // a status that is set later is not sent
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(b []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(b)
}

// begin is called before a body, or a part of it, is sent.
func (w *writer) begin() {
	if w.status == 0 && w.first != 0 && !w.hijacked {
		w.WriteHeader(w.first)
	}
	w.written = true
}

// Flush makes writer an http.Flusher, as Echo's response is.
func (w *writer) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Echo's response panics if it cannot
}

// Hijack makes writer an http.Hijacker, as Echo's response is.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// Unwrap is for http.ResponseController and echo.UnwrapResponse.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
