package diagnose_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/diagnose"
	"github.com/redislimit/redislimit/internal/health"
)

// A reply is an error that a server replied.
type reply string

func (r reply) Error() string { return string(r) }

// RedisError makes a reply implement redis.Error.
func (reply) RedisError() {}

// TestOutcome checks what errors say about the server.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want health.Outcome
	}{
		{nil, health.Answered},
		{context.DeadlineExceeded, health.TimedOut},
		{redis.ErrPoolTimeout, health.TimedOut},
		{redis.ErrPoolExhausted, health.Inconclusive},
		{io.EOF, health.ConnectionLost},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, health.ConnectionLost},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, health.Unavailable},
		{reply("LOADING dataset"), health.Unavailable},
		{fmt.Errorf("of a version: %w", diagnose.ErrUnsupported), health.Unavailable},
		{reply("WRONGTYPE Operation against a key"), health.Rejected},
		{reply("NOPERM no permission for this key"), health.Rejected},
		{reply("NOPERM no permission to run the 'evalsha' command"), health.Unavailable},
		{errors.New("something else"), health.Unavailable},
	} {
		if got := diagnose.Outcome(c.err); got != c.want {
			t.Errorf("%v: outcome %d, want %d", c.err, got, c.want)
		}
	}
}

// TestExplain checks that errors get a hint, and that Explain reads the server's version only if the server
// cannot run the scripts.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		cluster bool
		want    string // part of the message
		reads   bool   // whether Explain reads the version
	}{
		{reply("READONLY You can't write"), false, "connect to the master", false},
		{reply("MOVED 1 127.0.0.1:7000"), false, "redis.NewClusterClient", false},
		{reply("NOPERM no permission for this key"), false, "lacks a right", false},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false, "nothing listens", false},
		{reply("ERR unknown command 'evalsha'"), false, "this server is valkey 8.1.1", true},
		{reply("ERR user_script:1: attempt to call a nil value, unknown command"), false, "attempt to", false},
	} {
		read := false
		got := diagnose.Explain(c.err, c.cluster, func() string {
			read = true
			return "redis_version:7.2.4\r\nvalkey_version:8.1.1\r\n"
		})
		if !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) || read != c.reads {
			t.Errorf("%v: %v, want %q; read the version: %v", c.err, got, c.want, read)
		}
	}
	if moved := reply("MOVED 1 127.0.0.1:7000"); !errors.Is(diagnose.Explain(moved, true, nil), moved) {
		t.Error("a hint for a Cluster's client to use a Cluster's client")
	}
}

// TestTimeout checks that the error names the option of the client that ended a call too soon.
func TestTimeout(t *testing.T) {
	t.Parallel()
	options := &redis.Options{ReadTimeout: 100 * time.Millisecond}
	read := &net.OpError{Op: "read", Err: context.DeadlineExceeded}
	for took, names := range map[time.Duration]bool{100 * time.Millisecond: true, time.Second: false} {
		err := diagnose.Timeout(nil, options, read, took, time.Second)
		if got := strings.Contains(err.Error(), "the client's ReadTimeout of 100ms"); got != names || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
	}
	if err := diagnose.Timeout(nil, nil, read, 0, time.Second); !strings.HasPrefix(err.Error(), "no answer from redis within 1s:") {
		t.Error(err)
	}
}
