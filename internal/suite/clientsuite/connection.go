package clientsuite

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// AnswerLimit is how long a server may take to respond on a busy machine.
const AnswerLimit = 10 * time.Second

// ReadTimeout is how long the server of an impatient application waits for a request.
const ReadTimeout = time.Second

// A Server is a running application that parses the requests that arrive over its connections.
type Server struct {
	keySwitch

	peers chan net.Conn
}

// Serve serves the application of an adapter until the test ends.
func Serve(tb testing.TB, newApp NewApp, lim *core.Limiter) *Server {
	tb.Helper()
	l := newPeerListener()
	s := &Server{peers: l.peers}
	listen(tb, newApp(lim, s.key), l)
	return s
}

// A keySwitch is a key function that can be changed between requests.
type keySwitch struct{ f atomic.Pointer[keyfunc.Func] }

func (s *keySwitch) use(f keyfunc.Func)                    { s.f.Store(&f) }
func (s *keySwitch) key(r keyfunc.Request) (string, error) { return (*s.f.Load())(r) }

// listen serves a until the test ends.
func listen(tb testing.TB, a App, l net.Listener) {
	tb.Helper()
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	tb.Cleanup(func() {
		err := errors.Join(a.Shutdown(), l.Close())
		if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
			err = errors.Join(err, serveErr)
		}
		if err != nil && !errors.Is(err, net.ErrClosed) {
			tb.Errorf("the server ended with error %v, want nil", err)
		}
	})
}

// Dial returns a connection to the server that seems to come from peer, in the form of [Request].
func (s *Server) Dial(peer string) *Conn {
	client, server := net.Pipe()
	conn := newConn(client)
	served := make(chan struct{})
	conn.served = served
	s.peers <- &peerConn{server, peerAddr(peer), sync.OnceFunc(func() { close(served) })}
	return conn
}

// A peerListener accepts the connections that are sent to its channel.
type peerListener struct {
	peers  chan net.Conn
	closed chan struct{}
	close  func() // closes closed, once
}

func newPeerListener() *peerListener {
	closed := make(chan struct{})
	return &peerListener{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

func (l *peerListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.peers:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *peerListener) Close() error {
	l.close()
	return nil
}

func (l *peerListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// A peerConn is a connection that seems to come from an address of the test's choice.
type peerConn struct {
	net.Conn

	peer  net.Addr
	ended func()
}

func (c *peerConn) RemoteAddr() net.Addr { return c.peer }

func (c *peerConn) Close() error {
	c.ended()
	return c.Conn.Close()
}

// A Conn is a client's connection.
type Conn struct {
	conn   net.Conn
	reader *bufio.Reader
	served <-chan struct{} // closed when the server closes its end; nil for a connection to a proxy
}

func newConn(conn net.Conn) *Conn {
	_ = conn.SetDeadline(time.Now().Add(AnswerLimit)) // cannot fail on a new connection
	return &Conn{conn: conn, reader: bufio.NewReader(conn)}
}

// Close closes the connection.
func (c *Conn) Close() { _ = c.conn.Close() }

// Send sends the text of one request, and returns the status of the response, or 0 if there is none.
func (c *Conn) Send(raw string) int {
	written := make(chan struct{})
	go func() { // a server may respond, or hang up, before it has read everything
		defer close(written)
		_, _ = io.WriteString(c.conn, raw)
	}()
	defer func() { <-written }()
	for {
		answer, err := http.ReadResponse(c.reader, nil)
		if err != nil {
			c.Close()
			return 0
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode >= http.StatusOK {
			if answer.Close {
				c.Close()
			}
			return answer.StatusCode
		}
	}
}

// raw returns the text of the request.
func (r Request) raw() string {
	return plainRequest(r.method()+" "+r.target(), r.Header...)
}

// plainRequest returns the text of a request without a body.
func plainRequest(start string, header ...string) string {
	return start + " HTTP/1.1\r\n" + strings.Join(append([]string{"Host: example.com"}, header...), "\r\n") + "\r\n\r\n"
}

// chunked returns the text of a request with a chunked body and a trailer.
func chunked(body string, header, trailer []string) string {
	lines := append([]string{"POST /a HTTP/1.1", "Host: example.com", "Transfer-Encoding: chunked"}, header...)
	lines = append(lines, "")
	if body != "" {
		lines = append(lines, strconv.FormatInt(int64(len(body)), 16), body)
	}
	lines = append(lines, "0")
	lines = append(lines, trailer...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}
