package redistest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/check"
)

const (
	queryLimit = time.Second // how long one query of a server may take
	busOffset  = 10000       // the distance from a node's port to the port of its cluster bus, as Redis defines it
)

// query returns everything that the server replies to the commands, or "" if the server cannot be reached. It does not use
// go-redis, whose pool waits for up to a second after a refused connection.
func query(addr, commands string) string {
	conn, err := net.DialTimeout("tcp", addr, queryLimit)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(queryLimit))
	_, _ = io.WriteString(conn, commands+"\r\n")
	// The server replies to everything before it ends the stream, too. QUIT would do the same, but Sentinel 7.0 does not know it.
	_ = conn.(*net.TCPConn).CloseWrite()
	reply, _ := io.ReadAll(conn)
	return string(reply)
}

// freePort returns a port that is free together with its cluster bus port. Both are below 32768, where Linux begins to
// assign ports to outgoing connections: those must not take the port of a server that is stopped for a moment.
func freePort() (int, error) {
	const low, high = 10000, 32768 - busOffset
	for range 1000 {
		if port := low + rand.IntN(high-low); free(port) && free(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("no free port on 127.0.0.1")
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// untilElected waits until the condition holds, for as long as a failover may take.
func untilElected(ctx context.Context, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, electLimit)
	defer cancel()
	return check.Until(ctx, holds)
}
