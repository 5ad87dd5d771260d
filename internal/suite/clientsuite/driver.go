package clientsuite

import (
	"cmp"
	"context"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// A Request is a client's request, and the address from which it comes.
type Request struct {
	Peer   string   // the address of the connection's other end; "@" is a unix socket
	Header []string // lines such as "X-Forwarded-For: 192.0.2.1"
	Method string   // GET if empty
	Target string   // "/a" if empty
}

// A Send handles a request by an application, through the middleware, and returns the status.
type Send func(r Request) int

// An App is an application of a framework, with a route /a behind a middleware that is mounted on the route.
type App interface {
	// Send handles requests that do not come over a connection. Their Method and Target are not empty.
	Send() Send
	// Serve parses the requests that come over connections, until the listener is closed.
	Serve(l net.Listener) error
	// Shutdown waits until requests in flight have ended.
	Shutdown() error
}

// A NewApp makes an App whose middleware uses this limiter and key function.
type NewApp func(*core.Limiter, keyfunc.Func) App

// Apps are applications of frameworks, by name.
type Apps struct {
	// Default has the adapters in their framework's default configuration.
	Default map[string]NewApp
	// Configured has the adapters in a configuration that changes how requests are parsed.
	Configured map[string]NewApp
	// Impatient has the adapters as a middleware of every request that the framework shows to any middleware, on a server
	// that waits for a request no longer than ReadTimeout.
	Impatient map[string]NewApp
	// Lacks has the reason for each ability that the framework does not have.
	Lacks map[Ability]string
	// Method is the only method that requests can have, or "" if they can have any.
	Method string
}

// An Ability is something that not all frameworks can do.
type Ability string

// HTTP1 is the ability to serve any request of HTTP/1.1.
const HTTP1 Ability = "HTTP/1.1"

// Trailer is the ability to accept a trailer of this name, in lower case. A framework without it may answer a request with
// such a trailer by the status 400.
func Trailer(name string) Ability { return Ability("the trailer " + name) }

// refuse reports whether a request with this trailer may be answered by the status 400.
func (a Apps) refuse(trailer []string) bool {
	return slices.ContainsFunc(trailer, func(line string) bool { return a.Lacks[Trailer(strings.ToLower(name([]string{line})))] != "" })
}

// all returns the applications in all configurations.
func (a Apps) all() map[string]NewApp {
	all := maps.Clone(a.Default)
	maps.Copy(all, a.Configured)
	return all
}

// send returns the Send of an application. It uses no connection: see [Serve].
func (n NewApp) send(lim *core.Limiter, key keyfunc.Func) Send {
	send := n(lim, key).Send()
	return func(r Request) int {
		r.Method, r.Target = r.method(), r.target()
		return send(r)
	}
}

// HTTPApp returns the App of a framework that is based on net/http.
func HTTPApp(h http.Handler) App {
	return &httpApp{http.Server{Handler: h, ReadHeaderTimeout: AnswerLimit}}
}

// ImpatientHTTPApp is HTTPApp for [Apps].Impatient.
func ImpatientHTTPApp(h http.Handler) App {
	return &httpApp{http.Server{Handler: h, ReadTimeout: ReadTimeout}}
}

type httpApp struct{ http.Server }

func (a *httpApp) Shutdown() error { return a.Close() }

func (a *httpApp) Send() Send {
	return func(r Request) int {
		req := httptest.NewRequestWithContext(context.Background(), r.Method, r.Target, nil)
		req.RemoteAddr = r.Peer
		r.AddHeader(req.Header.Add)
		rec := httptest.NewRecorder()
		a.Handler.ServeHTTP(rec, req)
		return rec.Code
	}
}

func (r Request) target() string { return cmp.Or(r.Target, "/a") }
func (r Request) method() string { return cmp.Or(r.Method, http.MethodGet) }

// AddHeader calls add for each header.
func (r Request) AddHeader(add func(name, value string)) {
	for _, line := range r.Header {
		name, value, _ := strings.Cut(line, ": ")
		add(name, value)
	}
}

// PeerAddr returns the address of the Peer.
func (r Request) PeerAddr() net.Addr { return peerAddr(r.Peer) }

func peerAddr(peer string) net.Addr {
	addr, err := net.ResolveTCPAddr("tcp", peer)
	if err != nil {
		return &net.UnixAddr{Name: peer, Net: "unix"}
	}
	return addr
}
