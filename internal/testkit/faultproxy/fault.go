package faultproxy

import (
	"context"
	"net"
	"slices"
	"strings"
	"time"
)

type fault struct {
	kind  kind
	delay time.Duration
	only  []string // the commands whose replies suffer; empty: all
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

// Pass forwards everything: no fault. A connection that lost bytes to an earlier fault stays silent until its client
// closes it, for what went on from there would be garbage.
func (p *Proxy) Pass() { p.set(fault{}) }

// Latency holds each chunk for d, on the way there and on the way back: an exchange takes 2d longer. A connect itself is
// not delayed, but what a client sends on a new connection (HELLO) is. The bytes wait in the proxy: a request whose
// client has left meanwhile still reaches the server, as it would on a slow line.
func (p *Proxy) Latency(d time.Duration) { p.set(fault{delay: d}) }

// Silence swallows all bytes of both directions: connections are accepted, requests do not reach the server, and nothing
// answers or closes.
func (p *Proxy) Silence() { p.set(fault{kind: silence}) }

// Blackhole is Silence for the open connections, while new ones hang in connect: the port listens with a
// backlog of its own that is full already, so the system ignores what asks for a connection. That is so on
// Linux; where a full backlog behaves otherwise a connect succeeds, or is refused, and nothing is ever
// answered. After Pass the system tries again without the client's help, one second after the first
// attempt, then two, then four.
func (p *Proxy) Blackhole() { p.set(fault{kind: blackhole}) }

// HalfReply passes requests on, and of the next reply the first half of the bytes; after that the connection is silent.
// With commands, only requests that contain one of these suffer. Whose reply suffers is decided when the request
// arrives.
func (p *Proxy) HalfReply(commands ...string) { p.set(fault{kind: halfReply, only: upper(commands)}) }

// DropReply passes requests on and lets the server run them, swallows the reply and closes the connection. Once the
// client sees that, the request has run. With commands, only requests that contain one of these suffer: without, a new
// connection fails as early as in the client's HELLO, and the request is never sent.
func (p *Proxy) DropReply(commands ...string) { p.set(fault{kind: dropReply, only: upper(commands)}) }

// Reset resets (RST) the open connections now, and each new one when its client has sent something, which the server does
// not get.
func (p *Proxy) Reset() { p.set(fault{kind: reset}) }

// Refuse closes the open connections and the port, as when a server has ended: a connect is refused. Any other fault opens
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

// to changes what becomes of a new connection. It is called with mu held.
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
		time.Sleep(pollEvery) // the accepting goroutine lets go of the old listener
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

// clog fills the backlog of l, and returns what closes l and the connections that fill it.
func clog(l *net.TCPListener) func() {
	fill := make([]net.Conn, 0, shrink(l))
	for range cap(fill) {
		// One that times out did so because others have filled the backlog.
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

// strikes reports whether the fault spoils the reply to these commands.
func (f fault) strikes(commands []string) bool {
	if f.kind != halfReply && f.kind != dropReply {
		return false
	}
	return len(f.only) == 0 || slices.ContainsFunc(commands, func(c string) bool { return slices.Contains(f.only, c) })
}

func upper(commands []string) []string {
	names := make([]string, len(commands))
	for i, c := range commands {
		names[i] = strings.ToUpper(c)
	}
	return names
}
