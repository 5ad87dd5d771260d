package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	// patience is how long these tests wait for what must come, also on a busy machine.
	patience = 10 * time.Second
	// quiet is how long they wait for what must not come.
	quiet = 500 * time.Millisecond
	// timeout is how long the clients of TestFaults wait, in vain during a fault, and for a reply after it.
	timeout = 2 * time.Second
)

// setup returns a proxy, a client through it that does not retry, and a client that bypasses it. wait is how long the
// client through the proxy waits for a connection and for a reply.
func setup(t *testing.T, wait time.Duration) (p *Proxy, through, direct *redis.Client) {
	s := redistest.Server(t)
	p = New(t, s.Addr)
	through = redisclient.New(t, &redis.Options{Addr: p.Addr(), MaxRetries: -1, DialTimeout: wait, ReadTimeout: wait, DialerRetries: 1})
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return p, through, s.Client(t)
}

func incr(t *testing.T, c *redis.Client) error { return c.Incr(t.Context(), "n").Err() }

func value(t *testing.T, c *redis.Client) int {
	n, err := c.Get(t.Context(), "n").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Error(err)
	}
	return n
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// mends checks that the client works again after Pass: soon, and then without another error.
func mends(t *testing.T, p *Proxy, c *redis.Client) {
	p.Pass()
	err := c.Ping(t.Context()).Err()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); err = c.Ping(t.Context()).Err() {
		t.Logf("not yet: %v", err) // on a busy machine this may take some attempts
	}
	for range 3 {
		err = errors.Join(err, c.Ping(t.Context()).Err())
	}
	if err != nil {
		t.Errorf("after Pass: got error %v, want nil", err)
	}
}

func dial(t *testing.T, p *Proxy) net.Conn {
	conn, err := connect(t, p, patience)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func connect(t *testing.T, p *Proxy, limit time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: limit}
	conn, err := d.DialContext(t.Context(), "tcp", p.Addr())
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// exchange writes a request, reads the bytes that must come, and checks that no more bytes come. The connection must stay
// open.
func exchange(t *testing.T, conn net.Conn, request, want string) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Error(err)
	}
	got := make([]byte, len(want))
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	n, err := io.ReadFull(conn, got)
	_ = conn.SetReadDeadline(time.Now().Add(quiet))
	more, end := io.ReadAll(conn)
	_ = conn.SetReadDeadline(time.Time{})
	if string(got) != want || err != nil || len(more) > 0 || !timedOut(end) {
		t.Errorf("after %q: got %q, %v, and then %q, %v; want %q, and then silence", request, got[:n], err, more, end, want)
	}
}

// TestPassCountsCommands checks that Pass forwards everything and that the proxy counts the commands.
func TestPassCountsCommands(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t, patience)
	before := p.Requests()
	script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	for range 3 { // the first call is EVALSHA, which fails by NOSCRIPT, and EVAL
		if err := script.Run(t.Context(), through, []string{"n"}, 5).Err(); err != nil {
			t.Fatal(err)
		}
	}
	conn := through.Conn() // a pipeline of the client may make a connection of its own, with a HELLO that would be counted
	defer func() { _ = conn.Close() }()
	_, err := conn.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range 1000 {
			pipe.Set(t.Context(), fmt.Sprint("key:", i), strings.Repeat("*1\r\n$4\r\nINCR\r\n", i), 0)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"evalsha": 3, "EVAL": 1, "Set": 1000, "INCR": 0, "GET": 0} {
		if got := p.Count(name); got != want {
			t.Errorf("Count(%q) = %d, want %d", name, got, want)
		}
	}
	if got := p.Requests() - before; got != 1004 || value(t, direct) != 15 {
		t.Errorf("%d requests were counted and the value is %d, want 1004 and 15", got, value(t, direct))
	}
}

// TestFaults checks, twice for each fault, the error that a client gets, whether its request has run, and that the client
// works again afterwards.
func TestFaults(t *testing.T) {
	t.Parallel()
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	failed := func(err error) bool { return err != nil }
	for name, c := range map[string]struct {
		on   func(p *Proxy)
		got  func(err error) bool
		runs bool
	}{
		"silence":           {(*Proxy).Silence, timedOut, false},
		"blackhole":         {(*Proxy).Blackhole, timedOut, false},
		"latency":           {func(p *Proxy) { p.Latency(time.Hour) }, timedOut, false},
		"half a reply":      {func(p *Proxy) { p.HalfReply("incr") }, timedOut, true},
		"reply dropped":     {func(p *Proxy) { p.DropReply("Incr") }, is(io.EOF), true},
		"any reply dropped": {func(p *Proxy) { p.DropReply() }, is(io.EOF), true},
		"reset":             {(*Proxy).Reset, failed, false},
		"refused":           {(*Proxy).Refuse, is(syscall.ECONNREFUSED), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, through, direct := setup(t, timeout)
			for round := 1; round <= 2; round++ {
				c.on(p)
				if err := incr(t, through); !c.got(err) {
					t.Errorf("got error %v, want the one of this fault", err)
				}
				want := 0
				if c.runs {
					want = round
				}
				if n := value(t, direct); n != want || p.Count("incr") != int64(want) {
					t.Errorf("the value is %d and %d commands were forwarded, want %d of both", n, p.Count("incr"), want)
				}
				mends(t, p, through)
			}
		})
	}
}

// TestLatency checks that an exchange takes twice the latency longer.
func TestLatency(t *testing.T) {
	t.Parallel()
	p, through, _ := setup(t, patience)
	const d = 40 * time.Millisecond
	p.Latency(d)
	start := time.Now()
	if err := incr(t, through); err != nil || time.Since(start) < 2*d {
		t.Errorf("got error %v after %v, want nil after at least %v", err, time.Since(start), 2*d)
	}
}

// TestConnections checks each fault as one connection sees it. A connection that has lost bytes neither forwards later
// bytes nor closes when the server does.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	p := New(t, s.Addr)
	ended := func(conn net.Conn, want error) {
		t.Helper()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(conn); !errors.Is(err, want) {
			t.Errorf("the connection ended with error %v, want %v", err, want)
		}
	}
	conn := dial(t, p)
	exchange(t, conn, "PING\r\n", "+PONG\r\n") // the proxy has accepted the connection
	p.Reset()
	ended(conn, syscall.ECONNRESET)
	p.Pass()
	conn = dial(t, p)
	exchange(t, conn, "PING\r\n", "+PONG\r\n")
	p.Refuse()
	ended(conn, nil)
	p.HalfReply()
	conn = dial(t, p)
	exchange(t, conn, "SET s 12345678\r\n", "+O") // half of "+OK\r\n"
	exchange(t, conn, "GET s\r\n", "")
	p.Blackhole()
	if c, err := connect(t, p, quiet); err == nil && runtime.GOOS == "linux" {
		t.Errorf("connecting succeeded: got %v, want it to hang", c)
	}
	p.Silence()
	conn = dial(t, p)
	exchange(t, conn, "PING\r\n", "")
	p.Pass()
	s.Stop()
	exchange(t, conn, "PING\r\n", "")
}

// TestDropReplyRunsAll checks that all forwarded commands of a long pipeline have run when the client notices that the
// connection was closed.
func TestDropReplyRunsAll(t *testing.T) {
	t.Parallel()
	p, _, direct := setup(t, patience)
	conn := dial(t, p)
	p.DropReply()
	if _, err := io.WriteString(conn, strings.Repeat("INCR n\r\n", 2500)); err != nil { // 20 KB is one chunk, but more than Redis reads at once
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("read %q, %v; want nothing and the end of the connection", got, err)
	}
	if got := value(t, direct); int64(got) != p.Count("incr") || got == 0 {
		t.Errorf("%d commands ran of %d that were forwarded, want all of them", got, p.Count("incr"))
	}
}
