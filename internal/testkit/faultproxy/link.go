package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize  = 64 << 10        // more than the 32 KiB that go-redis writes at once
	onTheWay   = 64              // how many chunks of one direction may wait for their latency
	drainLimit = 5 * time.Second // how long the server may take to run the commands that it was sent
)

// link is one connection through the proxy. Two goroutines forward its bytes, one for each direction.
type link struct {
	proxy    *Proxy
	ctx      context.Context // ends with the link
	cancel   context.CancelFunc
	client   *net.TCPConn
	commands scanner // finds the commands in the client's stream

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	dead   bool         // bytes were swallowed, so later bytes must not be forwarded
	due    kind         // the fault of the next reply
}

// run connects to the server, and forwards bytes until one side ends.
func (l *link) run() {
	defer l.end()
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		abort(l.client) // connecting cannot be refused any more; a reset is the nearest
		return
	}
	server := conn.(*net.TCPConn)
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	if l.ctx.Err() != nil { // the link ended before end could close this connection
		_ = server.Close()
		return
	}
	var replies sync.WaitGroup
	replies.Go(func() {
		l.pump(server, l.reply)
		if !l.swallows(l.proxy.current()) { // otherwise the client must not even notice that the server has gone
			l.end()
		}
	})
	l.pump(l.client, l.request)
	l.end()
	replies.Wait()
}

// pump passes each chunk that arrives to handle, once the latency has passed since its arrival, until the stream ends or
// handle returns false.
func (l *link) pump(from io.Reader, handle func(chunk []byte, f fault) bool) {
	type arrival struct {
		chunk []byte
		at    time.Time
	}
	line := make(chan arrival, onTheWay)
	go func() { // until the link ends
		defer close(line)
		for {
			buf := make([]byte, chunkSize)
			n, err := from.Read(buf)
			select {
			case line <- arrival{buf[:n], time.Now()}:
			case <-l.ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for a := range line {
		if f := l.hold(a.at); len(a.chunk) > 0 && !handle(a.chunk, f) {
			return
		}
	}
}

func (l *link) request(chunk []byte, f fault) bool {
	if f.kind == reset {
		abort(l.client)
		return false
	}
	if l.swallows(f) {
		return true
	}
	commands := l.commands.feed(chunk)
	if f.strikes(commands) {
		l.mu.Lock()
		l.due = f.kind
		l.mu.Unlock()
	}
	l.proxy.count(commands) // before the command is sent, so that it is counted when the client has its reply
	_, err := l.server.Write(chunk)
	return err == nil
}

func (l *link) reply(chunk []byte, f fault) bool {
	if l.swallows(f) {
		return true
	}
	l.mu.Lock()
	due := l.due
	l.due = pass
	l.dead = l.dead || due != pass // later bytes of this connection must not be forwarded
	l.mu.Unlock()
	switch due {
	case dropReply:
		// The server runs the commands that it was sent, because it reads all of them before the end of the stream.
		_ = l.server.CloseWrite()
		_ = l.server.SetReadDeadline(time.Now().Add(drainLimit))
		_, _ = io.Copy(io.Discard, l.server)
		l.end()
		return false
	case halfReply:
		chunk = chunk[:len(chunk)/2]
	default:
	}
	_, err := l.client.Write(chunk)
	return err == nil
}

// hold waits for the latency since an instant, and returns the fault that applies after that, because it may have changed
// meanwhile.
func (l *link) hold(since time.Time) fault {
	f := l.proxy.current()
	if f.delay == 0 {
		return f
	}
	select {
	case <-time.After(time.Until(since.Add(f.delay))):
	case <-l.ctx.Done():
	}
	return l.proxy.current()
}

// swallows reports whether bytes are swallowed under f, and records that they are.
func (l *link) swallows(f fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || f.silent()
	return l.dead
}

// end closes both connections. A second call does nothing.
func (l *link) end() {
	l.cancel() // before l.server is read: run does this in the opposite order, so one of both closes the server's connection
	_ = l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// abort closes c by a RST.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
