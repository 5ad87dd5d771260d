package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrUnsupported is the error of a server that answers, and cannot run the
// scripts: waiting does not help.
var ErrUnsupported = errors.New("the server cannot run the scripts of redislimit, which need Redis 6.0 or newer, or Valkey")

// explain returns an ErrUnsupported with the server's version for an error that no
// retry will make go away, and err for any other.
func (s *Store) explain(ctx context.Context, err error) error {
	if !permanent(err) {
		return err
	}
	version := "of unknown version"
	info := redis.NewStringCmd(ctx, "info", "server")
	if s.call(ctx, s.timeout, func(ctx context.Context) error { return s.servers.client.Process(ctx, info) }) == nil {
		version = serverVersion(info.Val())
	}
	return fmt.Errorf("%w; this server is %s: %w", ErrUnsupported, version, err)
}

// unsupported is what servers reply to a script or an option that they do not know.
var unsupported = []string{
	"syntax error", "unknown command", "unknown redis command", "wrong number of arg", "compiling script",
	"non deterministic",
}

// faults is what servers reply where a script met a value that it does not understand. The scripts allow for any value: such
// a reply is of one call, and says nothing about the server.
var faults = []string{"wrongtype", "attempt to ", "not an integer", "not a valid float", "invalid expire"}

// permanent reports whether err is of a server that lacks what the scripts need.
// What it replies while it is loading, read-only, busy or out of memory is none of
// unsupported.
func permanent(err error) bool { return replies(err, unsupported) }

// replies reports whether err is a server's, and has one of the phrases.
func replies(err error, phrases []string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(text, phrase) })
}

// serverVersion returns "valkey 8.1.1" or "redis 6.0.16" from the reply to INFO.
func serverVersion(info string) string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	switch {
	case fields["valkey_version"] != "":
		return "valkey " + fields["valkey_version"]
	case fields["redis_version"] != "":
		return "redis " + fields["redis_version"]
	}
	return "of unknown version"
}
