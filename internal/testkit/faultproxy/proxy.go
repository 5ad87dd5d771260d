// Package faultproxy is a TCP proxy between a Redis client and a server that fails in the ways in which networks fail. It
// listens on 127.0.0.1 and ends with its test.
//
// A fault is switched on and off while connections are open. It applies to open connections and to new ones:
//
//	p := faultproxy.New(t, server.Addr)
//	rdb := redis.NewClient(&redis.Options{Addr: p.Addr()})
//	p.DropReply("evalsha")
//
// The proxy forwards chunks: bytes that arrive together. The bytes that the server sends after a chunk from the client
// count as the reply. Messages that the server sends on its own (pub/sub) do not.
package faultproxy

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	attempts  = 100                    // how often New tries to find a free port
	pollEvery = 5 * time.Millisecond   // how often to retry a port that the system has not freed yet
	portLimit = 2 * time.Second        // how long to retry it
	fillLimit = 100 * time.Millisecond // how long one connection that fills a backlog may take
)

// Proxy forwards connections to one server, with the fault that was switched on last. It is safe for concurrent use.
type Proxy struct {
	tb           testing.TB
	target, addr string

	mu      sync.Mutex
	fault   fault
	door    door
	close   func() // closes the door
	closed  bool
	links   map[*link]struct{}
	counts  map[string]int64
	running sync.WaitGroup // the goroutines that accept, and the links
}

// door is how the proxy treats a new connection.
type door int

const (
	wall door = iota // connecting is refused
	open             // connections are accepted
	hole             // connecting hangs
)

// New starts a proxy to target (host:port) that forwards everything. It ends with the test of tb.
func New(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p := &Proxy{tb: tb, target: target, links: map[*link]struct{}{}, counts: map[string]int64{}}
	l := listen(tb)
	p.addr = l.Addr().String()
	p.accept(l)
	tb.Cleanup(p.shut)
	return p
}

// Before starts a proxy in front of each of several servers. A client whose Dialer is dial reaches the servers through the
// proxies.
func Before(tb testing.TB, addrs ...string) (proxies []*Proxy, dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	tb.Helper()
	through := map[string]string{}
	for _, addr := range addrs {
		p := New(tb, addr)
		proxies, through[addr] = append(proxies, p), p.Addr()
	}
	return proxies, func(ctx context.Context, network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, through[addr])
	}
}

// Addr returns the address (host:port) for clients. It stays the same under every fault.
func (p *Proxy) Addr() string { return p.addr }

// Requests returns how many commands were forwarded to the server, including the client's own (HELLO, CLIENT).
func (p *Proxy) Requests() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum int64
	for _, n := range p.counts {
		sum += n
	}
	return sum
}

// Count returns how many commands of this name, in upper or lower case, were forwarded to the server. Commands that a fault
// swallowed are not counted, nor is a stream that is not RESP, as with TLS.
func (p *Proxy) Count(command string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[strings.ToUpper(command)]
}

func (p *Proxy) count(commands []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range commands {
		p.counts[c]++
	}
}

func (p *Proxy) current() fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

// accept opens the door. The caller must hold mu, unless p is not shared yet.
func (p *Proxy) accept(l *net.TCPListener) {
	p.door, p.close = open, func() { _ = l.Close() }
	p.running.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return // closed
			}
			p.admit(conn)
		}
	})
}

func (p *Proxy) admit(conn *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault.kind == refuse { // a connection that was accepted while the door closed
		_ = conn.Close()
		return
	}
	l := &link{proxy: p, client: conn}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	p.links[l] = struct{}{}
	p.running.Go(func() {
		l.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// shut ends the proxy and all its goroutines.
func (p *Proxy) shut() {
	p.mu.Lock()
	p.closed = true
	p.to(wall)
	for l := range p.links {
		l.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// listen finds a free port below 32768, where Linux begins to assign ports to outgoing connections. During Refuse, an
// outgoing connection could otherwise take the port: even the client's own, which would then be connected to itself. The
// port is also below the ports of redistest's servers.
func listen(tb testing.TB) *net.TCPListener {
	tb.Helper()
	const low, high = 5000, 10000
	var err error
	for range attempts {
		var l *net.TCPListener
		if l, err = bind(net.JoinHostPort("127.0.0.1", strconv.Itoa(low+rand.IntN(high-low)))); err == nil {
			return l
		}
	}
	tb.Fatalf("faultproxy: no free port: %v", err)
	return nil
}

func bind(addr string) (*net.TCPListener, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", at)
}
