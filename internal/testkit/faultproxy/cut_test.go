package faultproxy

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

func TestDropReply(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	p.DropReply()
	if err := incr(t, through); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
	if value(t, direct) != 1 || p.Count("incr") != 1 {
		t.Errorf("value %d, %d passed, want 1", value(t, direct), p.Count("incr"))
	}
	if err := incr(t, through); err == nil || p.Count("incr") != 1 {
		t.Errorf("a new connection: %v, %d passed; it must fail before the request", err, p.Count("incr"))
	}
	p.DropReply("Incr")
	for n := 2; n <= 5; n++ {
		if err := incr(t, through); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want EOF", err)
		}
		if value(t, direct) != n || p.Count("incr") != int64(n) {
			t.Errorf("value %d, %d passed, want %d", value(t, direct), p.Count("incr"), n)
		}
	}
	mends(t, p, through)
}

// Everything of a long pipeline that was passed on runs before the client learns of the loss.
func TestDropReplyRunsAll(t *testing.T) {
	t.Parallel()
	p, _, direct := setup(t)
	conn := dial(t, p)
	p.DropReply()
	if _, err := io.WriteString(conn, strings.Repeat("INCR n\r\n", 2500)); err != nil { // 20 KB: one chunk, and more than Redis reads at once
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); len(got) > 0 || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("read %q, %v", got, err)
	}
	if got := value(t, direct); int64(got) != p.Count("incr") || got == 0 {
		t.Errorf("%d ran of %d passed", got, p.Count("incr"))
	}
}

// A retrying client shows why the count matters: go-redis by itself sends it again.
func TestDropReplyToDefaultClient(t *testing.T) {
	t.Parallel()
	s := redistest.Server(t)
	p := New(t, s.Addr)
	p.DropReply("incr")
	through := redis.NewClient(&redis.Options{Addr: p.Addr()})
	defer func() { _ = through.Close() }()
	if err := incr(t, through); err == nil {
		t.Error("no error")
	}
	if got := value(t, s.Client(t)); got != 4 || p.Count("incr") != 4 {
		t.Errorf("value %d, %d passed, want 4: one call and three retries", got, p.Count("incr"))
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	conn := dial(t, p)
	ask(t, conn, "PING\r\n", "+PONG\r\n")
	p.Reset()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("open: %v, want a reset", err)
	}
	conn = dial(t, p)
	if _, err := io.WriteString(conn, "INCR n\r\n"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("new: %v, want a reset", err)
	}
	if err := incr(t, through); err == nil {
		t.Error("no error")
	}
	mends(t, p, through)
	if value(t, direct) != 0 {
		t.Error("a request came through")
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p, through, direct := setup(t)
	conn := dial(t, p)
	ask(t, conn, "PING\r\n", "+PONG\r\n")
	for range 3 {
		p.Refuse()
		if _, err := io.ReadAll(conn); err != nil {
			t.Errorf("open: %v, want its end", err)
		}
		if err := incr(t, through); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want a refusal", err)
		}
		mends(t, p, through)
		conn = dial(t, p)
	}
	if value(t, direct) != 0 {
		t.Error("a request came through")
	}
}
