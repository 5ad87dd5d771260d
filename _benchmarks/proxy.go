package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// If the environment variable proxyEnv has "host:port latency", this program is the proxy. It is a process of its
// own, so that its CPU time is not attributed to a contender.
const proxyEnv = "REDISLIMIT_BENCH_PROXY"

// A proxy delays the replies of Redis and changes nothing else.
type proxy struct {
	*child

	addr    string
	latency time.Duration
}

func startProxy(ctx context.Context, target string, latency time.Duration) (*proxy, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", proxyEnv, target, latency))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.kill()
		return nil, fmt.Errorf("the proxy does not start: %w", err)
	}
	return &proxy{c, strings.TrimSpace(addr), latency}, nil
}

// serveProxy is the main function of the proxy's process. It prints its address, and serves until the process is
// killed.
func serveProxy(order string) error {
	target, wait, _ := strings.Cut(order, " ")
	latency, err := time.ParseDuration(wait)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(os.Stdout, l.Addr()); err != nil {
		return err
	}
	late := make(chan chunk, 1<<16)
	go deliver(late)
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		server, err := new(net.Dialer).DialContext(context.Background(), "tcp", target)
		if err != nil {
			return err
		}
		go func() {
			pump(client, func(b []byte) error { _, err := server.Write(b); return err })
			_ = server.Close()
		}()
		go func() {
			pump(server, func(b []byte) error {
				late <- chunk{client, append([]byte(nil), b...), time.Now().Add(latency)}
				return nil
			})
			_ = client.Close()
		}()
	}
}

// A chunk has the bytes of one read from Redis.
type chunk struct {
	to   net.Conn
	data []byte
	due  time.Time
}

// deliver writes each chunk when it is due. The delay is the same for all chunks, so they are due in the order
// in which they arrived, and one queue is enough.
func deliver(late <-chan chunk) {
	for c := range late {
		for left := time.Until(c.due); left > 0; left = time.Until(c.due) {
			sleep(left.Nanoseconds())
		}
		_, _ = c.to.Write(c.data) // the client may have disconnected
	}
}

// pump forwards the bytes that it reads until the stream ends.
func pump(from net.Conn, to func([]byte) error) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && to(buffer[:n]) != nil || err != nil {
			return
		}
	}
}
