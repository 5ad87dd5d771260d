package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"

	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/core/guard/adapter"
)

// serveAndFinish serves the request and passes the final status to g. This is the status that the handler
// wrote, or 200 if it wrote nothing. It is 101 if the handler took over the connection before it wrote, and
// 500 if the handler panicked before it wrote, because recovering middleware further out then answers 500.
func serveAndFinish(g *adapter.Guard, v adapter.Verdict, next http.Handler, w http.ResponseWriter, r *http.Request) {
	status := 0
	panicked := true
	defer func() {
		switch {
		case status != 0:
		case panicked:
			status = http.StatusInternalServerError
		default:
			status = http.StatusOK
		}
		g.Finish(r.Context(), v, status)
	}()
	next.ServeHTTP(watch(w, 0, &status), r)
	panicked = false
}

// refuse answers a request that is not served because of the Verdict v.
func refuse(w http.ResponseWriter, r *http.Request, v adapter.Verdict, handlers adapter.Handlers[http.Handler]) {
	if handler, ok := handlers.For(v); ok {
		serveWithStatus(handler, w, r, v.Status)
		return
	}
	w.Header().Set("Content-Type", guard.ProblemType)
	w.WriteHeader(v.Status)
	_, _ = w.Write(guard.Problem(v.Status, v.Err)) // fails only if the client has left
}

// serveWithStatus calls h, and sends status if h sends none.
func serveWithStatus(h http.Handler, w http.ResponseWriter, r *http.Request, status int) {
	written := 0
	h.ServeHTTP(watch(w, status, &written), r)
	if written == 0 {
		w.WriteHeader(status)
	}
}

// watch returns w with all the interfaces that it has, and records in *status the status that is sent.
// A write or a flush without a status sends the status 200, or implied if implied is not 0. If a handler
// takes over the connection before it sends a status, the status is 101.
func watch(w http.ResponseWriter, implied int, status *int) http.ResponseWriter {
	sending := func() {
		if *status != 0 {
			return
		}
		*status = http.StatusOK
		if implied != 0 {
			*status = implied
			w.WriteHeader(implied)
		}
	}
	return httpsnoop.Wrap(withHijack(w), httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(code int) {
				if *status == 0 && (code >= http.StatusOK || code == http.StatusSwitchingProtocols) {
					*status = code
				}
				next(code)
			}
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { sending(); return next(b) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) { sending(); return next(src) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { sending(); next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil && *status == 0 {
					*status = http.StatusSwitchingProtocols
				}
				return conn, rw, err
			}
		},
	})
}

// withHijack returns a writer with the method Hijack if http.ResponseController finds one only in a writer inside
// w. Such a w is the usual writer of a middleware that embeds an http.ResponseWriter and has Unwrap. Without the
// method, http.ResponseController would go past watch, which would record 200.
func withHijack(w http.ResponseWriter) http.ResponseWriter {
	if _, ok := w.(http.Hijacker); ok || !hijackable(w) {
		return w
	}
	if f, ok := w.(http.Flusher); ok {
		return struct {
			hijacker
			http.Flusher
		}{hijacker{w}, f}
	}
	return hijacker{w}
}

// hijackable reports whether http.ResponseController finds the method Hijack in w or in a writer inside w.
func hijackable(w http.ResponseWriter) bool {
	for range maxWriters {
		if _, ok := w.(http.Hijacker); ok {
			return true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = outer.Unwrap()
	}
	return false
}

// A hijacker adds the method Hijack of a writer inside its ResponseWriter.
type hijacker struct{ http.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController, which looks for further methods in the writer inside.
func (h hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }
