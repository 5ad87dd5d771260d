package faultproxy

import (
	"errors"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func TestSilence(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.Silence()
	for range 3 { // the open connection, then new ones
		if err := incr(t, through); !timedOut(err) {
			t.Errorf("got %v, want a timeout", err)
		}
	}
	mends(t, p, through)
	if value(t, direct) != 0 || p.Count("incr") != 0 {
		t.Errorf("value %d, %d passed, want none", value(t, direct), p.Count("incr"))
	}
}

// A connection that lost a request must not pass the next one, nor close when the server does.
func TestSilenceStays(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	p := New(t, s.Addr)
	conn := dial(t, p)
	p.Silence()
	ask(t, conn, "PING\r\n", "")
	p.Pass()
	ask(t, conn, "PING\r\n", "")
	s.Stop()
	ask(t, conn, "PING\r\n", "")
	conn, err := connect(t, p, time.Second) // the reset may be as fast as the connect
	if err == nil {
		_, err = io.ReadAll(conn)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without a server: %v, want a reset", err)
	}
}

func TestBlackhole(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	for range 2 {
		p.Blackhole()
		if err := incr(t, through); !timedOut(err) {
			t.Errorf("an open connection: %v, want a timeout", err)
		}
		start := time.Now()
		conn, err := connect(t, p, timeout)
		switch {
		case err == nil:
			ask(t, conn, "PING\r\n", "")
			_ = conn.Close()
			if runtime.GOOS == "linux" {
				t.Error("a connect succeeded")
			}
		case !timedOut(err) || time.Since(start) < timeout:
			t.Errorf("connect: %v after %v, want a timeout", err, time.Since(start))
		}
		mends(t, p, through)
	}
	if value(t, direct) != 0 {
		t.Error("a request came through")
	}
}

func TestBlackholeEnds(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("connects hang on Linux only")
	}
	p := New(t, redistest.Server(t).Addr)
	p.Blackhole()
	connected := make(chan error, 1)
	go func() {
		conn, err := connect(t, p, 10*time.Second)
		if err == nil {
			ask(t, conn, "PING\r\n", "+PONG\r\n")
			_ = conn.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		t.Fatalf("a connect ended: %v", err)
	case <-time.After(timeout):
	}
	p.Pass()
	if err := <-connected; err != nil {
		t.Errorf("the connect that hung: %v", err)
	}
}

func TestHalfReply(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	conn := dial(t, p)
	p.HalfReply()
	ask(t, conn, "SET s 12345678\r\n", "+O") // of "+OK\r\n"
	ask(t, conn, "GET s\r\n", "")
	if err := incr(t, through); !timedOut(err) {
		t.Errorf("got %v, want a timeout", err)
	}
	if value(t, direct) != 1 {
		t.Errorf("value %d, want 1", value(t, direct))
	}
	p.HalfReply("incr") // a new connection gets through its HELLO
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Errorf("another command: %v", err)
	}
	if err := incr(t, through); !timedOut(err) {
		t.Errorf("got %v, want a timeout", err)
	}
	if value(t, direct) != 2 || p.Count("incr") != 2 {
		t.Errorf("value %d, %d passed, want 2", value(t, direct), p.Count("incr"))
	}
	mends(t, p, through)
}
