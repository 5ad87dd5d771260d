package faultproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	chunkSize  = 64 << 10        // above the 32 KiB that go-redis writes at once
	onTheWay   = 64              // chunks of one direction, with a latency
	drainLimit = 5 * time.Second // for the server to finish what it was sent
)

// link is one connection through the proxy. Two goroutines pump it, one each way.
type link struct {
	proxy    *Proxy
	ctx      context.Context // until the link ends
	cancel   context.CancelFunc
	client   *net.TCPConn
	commands scanner // of the client's stream

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
	dead   bool         // bytes were swallowed, and nothing may follow them
	due    kind         // the fault of the next reply
}

func (l *link) run() {
	defer l.end()
	conn, err := new(net.Dialer).DialContext(l.ctx, "tcp", l.proxy.target)
	if err != nil {
		abort(l.client) // a connect cannot be refused after the fact; this comes nearest
		return
	}
	server := conn.(*net.TCPConn)
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	if l.ctx.Err() != nil { // ended before it had this one to close
		_ = server.Close()
		return
	}
	var replies sync.WaitGroup
	replies.Go(func() {
		l.pump(server, l.reply)
		if !l.swallows(l.proxy.current()) { // else the client must not notice even that the server has gone
			l.end()
		}
	})
	l.pump(l.client, l.request)
	l.end()
	replies.Wait()
}

// pump hands on what arrives, each chunk once the latency has passed since it did, until the stream ends or handle returns
// false.
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
	l.proxy.count(commands) // first: a client that has the reply must find it counted
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
	l.dead = l.dead || due != pass // the client's bytes from here on were never passed
	l.mu.Unlock()
	switch due {
	case dropReply:
		// Commands that were sent are carried out: the server reads it all before it sees the end of the
		// stream.
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

// hold waits for the latency since an instant and returns the fault after it: one switched on meanwhile applies already.
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

// swallows reports whether bytes vanish under f, and remembers that they did.
func (l *link) swallows(f fault) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = l.dead || f.silent()
	return l.dead
}

// end closes both connections. Ending an ended link does nothing.
func (l *link) end() {
	l.cancel() // before the look at server: run looks in the other order
	_ = l.client.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// abort closes c with a RST.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
