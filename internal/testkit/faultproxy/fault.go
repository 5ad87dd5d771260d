package faultproxy

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"
)

// fault is a fault of a Proxy, with its parameters.
type fault struct {
	kind  kind
	delay time.Duration
	only  []string // the commands whose replies are affected; empty: all
}

type kind int

const (
	pass kind = iota
	silence
	blackhole
	halfReply
	dropReply
	reset
	refuse
)

// Pass forwards everything, without a fault. A connection that lost bytes to an earlier fault stays silent until its client
// closes it, because the bytes that follow would be garbage.
func (p *Proxy) Pass() { p.set(fault{}) }

// Latency delays each chunk by d in both directions, so that an exchange takes 2d longer. It does not delay connecting
// itself, but it delays the commands that a client sends on a new connection, such as HELLO. The bytes wait in the proxy: a
// request reaches the server even if its client has left meanwhile, as on a slow network.
func (p *Proxy) Latency(d time.Duration) { p.set(fault{delay: d}) }

// Silence swallows all bytes in both directions: connections are accepted, but requests do not reach the server, and the
// client gets neither a reply nor the end of the connection.
func (p *Proxy) Silence() { p.set(fault{kind: silence}) }

// Blackhole is Silence for open connections, and makes new ones hang while they connect. The port then listens with a
// backlog that is already full, so Linux ignores requests to connect. On systems where a full backlog works differently,
// connecting succeeds or is refused, but no reply ever comes. After Pass, the client's system tries again on its own one,
// two and four seconds after earlier attempts.
func (p *Proxy) Blackhole() { p.set(fault{kind: blackhole}) }

// HalfReply forwards requests, and the first half of the bytes of the next reply. After that the connection is silent. With
// commands, only the replies to requests that contain one of these commands are affected, which is decided when the request
// arrives.
func (p *Proxy) HalfReply(commands ...string) { p.set(fault{kind: halfReply, only: upper(commands)}) }

// DropReply forwards requests and lets the server run them, but swallows the reply and closes the connection. When the
// client notices that, the request has run. With commands, only requests that contain one of these commands are affected.
// Without commands, a new connection fails at the client's HELLO, before the request is sent.
func (p *Proxy) DropReply(commands ...string) { p.set(fault{kind: dropReply, only: upper(commands)}) }

// Reset resets the open connections (RST) at once, and each new connection when its client has sent bytes, which the server
// does not receive.
func (p *Proxy) Reset() { p.set(fault{kind: reset}) }

// Refuse closes the open connections and the port, as if the server had ended: connecting is refused. Any other fault opens
// the same port again.
func (p *Proxy) Refuse() { p.set(fault{kind: refuse}) }

func (p *Proxy) set(f fault) {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.fault = f
	switch f.kind {
	case blackhole:
		p.to(hole)
	case refuse:
		p.to(wall)
		for l := range p.links {
			l.end()
		}
	case reset:
		p.to(open)
		for l := range p.links {
			abort(l.client)
			l.end()
		}
	default:
		p.to(open)
	}
}

// to changes how the proxy treats new connections. The caller must hold mu.
func (p *Proxy) to(d door) {
	p.tb.Helper()
	if p.door == d {
		return
	}
	if p.door != wall {
		p.close()
	}
	p.door, p.close = wall, nil
	if d == wall {
		return
	}
	l, err := bind(p.addr)
	for end := time.Now().Add(portLimit); err != nil && time.Now().Before(end); l, err = bind(p.addr) {
		time.Sleep(pollEvery) // the goroutine that accepts may still hold the old listener
	}
	if err != nil {
		p.tb.Errorf("faultproxy: %v", err)
		return
	}
	if d == open {
		p.accept(l)
		return
	}
	p.door, p.close = hole, clog(l)
}

// clog fills the backlog of l, and returns a function that closes l and the connections that fill it.
func clog(l *net.TCPListener) func() {
	fill := make([]net.Conn, 0, shrink(l))
	for range cap(fill) {
		// If connecting times out, the backlog is full already.
		d := net.Dialer{Timeout: fillLimit}
		if c, err := d.DialContext(context.Background(), "tcp", l.Addr().String()); err == nil {
			fill = append(fill, c)
		}
	}
	return func() {
		_ = l.Close()
		for _, c := range fill {
			_ = c.Close()
		}
	}
}

func (f fault) silent() bool { return f.kind == silence || f.kind == blackhole }

// strikes reports whether the fault affects the reply to these commands.
func (f fault) strikes(commands []string) bool {
	if f.kind != halfReply && f.kind != dropReply {
		return false
	}
	return len(f.only) == 0 || slices.ContainsFunc(commands, func(c string) bool { return slices.Contains(f.only, c) })
}

// upper returns the commands in upper case.
func upper(commands []string) []string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = strings.ToUpper(c)
	}
	return names
}
