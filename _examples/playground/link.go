package main

import (
	"context"
	"errors"
	"net"
	"sync"
)

var errCut = errors.New("redis is stopped for this page")

// A dialer opens a connection.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// A link contains the connections of a session to its Redis. When the link is cut, they break, and
// no new ones are made: for the limiters of this session, Redis has stopped, but not for others.
type link struct {
	mu    sync.Mutex
	cut   bool
	conns map[*conn]struct{}
}

// A conn is a connection of a link.
type conn struct {
	net.Conn

	link *link
}

func newLink() *link { return &link{conns: make(map[*conn]struct{})} }

// through returns a dialer like dial whose connections belong to the link.
func (l *link) through(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.isCut() {
			return nil, errCut
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cut { // it was cut while dial ran
			return nil, errors.Join(errCut, c.Close())
		}
		made := &conn{c, l}
		l.conns[made] = struct{}{}
		return made, nil
	}
}

func (l *link) isCut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

// set cuts the link, or repairs it.
func (l *link) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for c := range l.conns {
			_ = c.Conn.Close() // the user of the connection gets an error
		}
	}
}

func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
