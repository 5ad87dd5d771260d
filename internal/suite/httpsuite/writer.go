package httpsuite

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/redislimit/redislimit/core/guard"
)

// writerCases test the response writer of a handler behind a limit that has to watch the response.
func writerCases() []testCase {
	return []testCase{
		{"WriterAbilities", writerAbilities, []Ability{ResponseWriter}},
		{"WriterReadsFrom", writerReadsFrom, []Ability{ResponseWriter}},
		{"WriterInforms", writerInforms, []Ability{Interim}},
	}
}

// inspected serves a handler that calls probe, with a limit and without.
func (b *testbed) inspected(http2 bool, saw *statusLog, probe func(http.ResponseWriter) string) *servedApp {
	limit := b.fixed(9)
	limit.Options = []guard.Option{saw.counts(func(int) bool { return false })}
	inspects := Handler{Do: Inspect, Probe: probe}
	return b.serve(App{HTTP2: http2, Routes: []Route{
		{Path: "/bare", Handler: inspects}, {Path: "/a", Use: []Mount{limit}, Handler: inspects},
	}})
}

// writerAbilities compares the abilities of a response writer with those without the middleware: no ability is lost, and
// none is added that does not work. It leaves out io.StringWriter, because strings can be written without it.
func writerAbilities(b *testbed) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		b.each(version, func(b *testbed) {
			var saw statusLog
			s := b.inspected(version == "HTTP/2.0", &saw, abilities)
			bare, limited := s.get("/bare"), s.get("/a")
			if bare.proto != version || !strings.Contains(bare.body, "Flusher=true") || limited.body != bare.body {
				b.Errorf("over %s, the writer behind the middleware has %s, want %s as without it", bare.proto, limited.body, bare.body)
			}
		})
	}
}

// abilities tries the abilities that handlers use of their writer.
func abilities(w http.ResponseWriter) string {
	_, flusher := w.(http.Flusher)
	_, hijacker := w.(http.Hijacker)
	_, readerFrom := w.(io.ReaderFrom)
	_, pusher := w.(http.Pusher)
	later := time.Now().Add(testTimeout)
	rc := http.NewResponseController(w)
	return fmt.Sprintf("Flusher=%t Hijacker=%t ReaderFrom=%t Pusher=%t read=%v write=%v duplex=%v flush=%v",
		flusher, hijacker, readerFrom, pusher,
		rc.SetReadDeadline(later), rc.SetWriteDeadline(later), rc.EnableFullDuplex(), rc.Flush())
}

// writerReadsFrom copies into the writer, as http.ServeContent does, by its method ReadFrom: the status is sent with the
// first byte, for the handler's response and for a denial.
func writerReadsFrom(b *testbed) {
	copies := func(w http.ResponseWriter) string {
		n, err := io.Copy(w, io.LimitReader(strings.NewReader("copied, but not all"), 6))
		return fmt.Sprintf(" %d %v", n, err)
	}
	limit := b.fixed(1)
	limit.Options = []guard.Option{guard.CountIf(func(int) bool { return true })}
	limit.OnDenied = &Handler{Do: Inspect, Probe: copies}
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: Inspect, Probe: copies}})
	s.get("/a").want(http.StatusOK, "copied 6 <nil>")
	s.get("/a").want(http.StatusTooManyRequests, "copied 6 <nil>")
}

// writerInforms sends an interim response, whose status must not be mistaken for the final one.
func writerInforms(b *testbed) {
	var saw statusLog
	s := b.inspected(false, &saw, func(w http.ResponseWriter) string {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusNotFound)
		w.WriteHeader(http.StatusOK) // too late
		return "final"
	})
	s.get("/a").want(http.StatusNotFound, "final")
	s.close()
	saw.want(b, http.StatusNotFound)
}
