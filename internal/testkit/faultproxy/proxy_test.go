package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// timeout is the patience of the clients here: short where nothing will come, and enough for a loaded machine where
// something will.
const timeout = 500 * time.Millisecond

// setup returns a proxy, a client through it that tries once, and one past it.
func setup(t *testing.T) (p *Proxy, through, direct *redis.Client) {
	s := redistest.Server(t)
	p = New(t, s.Addr)
	through = redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: timeout, DialerRetries: 1})
	t.Cleanup(func() { _ = through.Close() })
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
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); err = c.Ping(t.Context()).Err() {
		t.Logf("not yet: %v", err) // a loaded machine
	}
	for range 3 {
		err = errors.Join(err, c.Ping(t.Context()).Err())
	}
	if err != nil {
		t.Errorf("after Pass: %v", err)
	}
}

func dial(t *testing.T, p *Proxy) net.Conn {
	conn, err := connect(t, p, 5*time.Second)
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

// ask writes a request and checks all that comes back, until nothing does, on a connection that stays open.
func ask(t *testing.T, conn net.Conn, request, want string) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Error(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	got, err := io.ReadAll(conn)
	_ = conn.SetReadDeadline(time.Time{})
	if string(got) != want || !timedOut(err) {
		t.Errorf("%q: got %q, %v; want %q, and then nothing", request, got, err, want)
	}
}

func TestPassCountsCommands(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	before := p.Requests()
	script := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")
	for range 3 { // the first is EVALSHA, NOSCRIPT, EVAL
		if err := script.Run(t.Context(), through, []string{"n"}, 5).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := through.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
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
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if got := p.Requests() - before; got != 1004 || value(t, direct) != 15 {
		t.Errorf("%d requests, value %d; want 1004, 15", got, value(t, direct))
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	p, through, _ := setup(t)
	const d = 40 * time.Millisecond
	p.Latency(d)
	patient := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: time.Minute}) // a busy machine is slow
	defer func() { _ = patient.Close() }()
	for range 3 {
		start := time.Now()
		if err := incr(t, patient); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < 2*d {
			t.Errorf("took %v, want at least %v", took, 2*d)
		}
	}
	p.Latency(time.Hour)
	if err := incr(t, through); !timedOut(err) {
		t.Errorf("got %v, want a timeout", err)
	}
	mends(t, p, through)
}

// Under Latency the request is on its way already: a fault switched on meanwhile still takes it.
func TestSwitchOverridesLatency(t *testing.T) {
	t.Parallel()
	p, _, direct := setup(t)
	p.Latency(50 * time.Millisecond)
	conn := dial(t, p)
	if _, err := io.WriteString(conn, "INCR n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.Silence()
	ask(t, conn, "", "")
	if value(t, direct) != 0 {
		t.Error("the request came through")
	}
}
