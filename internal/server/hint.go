package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrUnsupported is the error of a server that answers, and cannot run the scripts: waiting does
// not help.
var ErrUnsupported = errors.New("the server cannot run the scripts of redislimit, which need Redis 6.0 or newer, or Valkey")

// explain returns an ErrUnsupported with the server's version for an error that no retry will make
// go away, and any other with a hint, if there is one for it.
func (s *Store) explain(ctx context.Context, err error) error {
	if !permanent(err) {
		if hint := s.hint(err); hint != "" {
			return fmt.Errorf("%w (%s)", err, hint)
		}
		return err
	}
	version := "of unknown version"
	info := redis.NewStringCmd(ctx, "info", "server")
	if s.call(ctx, s.Timeout, func(ctx context.Context) error { return s.servers.client.Process(ctx, info) }) == nil {
		version = serverVersion(info.Val())
	}
	return fmt.Errorf("%w; this server is %s: %w", ErrUnsupported, version, err)
}

// A refusal is the reply of a server that decides nothing now: how it begins, and what a person can
// do about it, if it does not say so.
type refusal struct{ begins, hint string }

var refusals = []refusal{
	{"LOADING", ""},
	{"READONLY", "a replica: connect to the master"},
	{"OOM", ""},
	{"MISCONF", ""},
	{"NOREPLICAS", ""},
	{"MASTERDOWN", "a replica: connect to the master"},
	{"BUSY", ""},
	{"CLUSTERDOWN The cluster is down", ""},
	{"NOAUTH", needsPassword},
	{"Protocol error: unauthenticated", needsPassword},
	{"WRONGPASS", wrongPassword},
	{"invalid password", wrongPassword},
	{"invalid username-password pair", wrongPassword},
	{"max number of clients reached", noRoom},
	{"DB index is out of range", "the server has fewer databases: see Options.DB"},
	{"This instance has cluster support disabled", "one server, no Cluster: use redis.NewClient"},
	{"SELECT is not allowed in cluster mode", "a node of a Cluster has database 0 only: see Options.DB"},
	{"DENIED", ""},
	{"bad lua script for redis cluster", "the proxy of a Tair: set its script_check_enable to 0, or connect to the nodes by redis.NewClusterClient"},
}

const (
	needsPassword = "the server wants a password: set Options.Password"
	wrongPassword = "the server does not take this Options.Username and Options.Password"
	rightHint     = "the Redis user lacks a right: docs/operating.md lists what it must be allowed"
	ofCluster     = "a node of a Cluster: use redis.NewClusterClient"
	noTLS         = "perhaps the server does not speak TLS at this port: take its TLS port, or leave out Options.TLSConfig"
	noAddress     = "Options.Addr is host:port: redis.ParseURL takes a URL"
	noRedis       = "no Redis, but another service, answers at this address: see Options.Addr"
	noSlot        = "a hash slot is on no node, or its move has stopped: redis-cli --cluster check says which"
	noRoom        = "the server takes no more connections: see its maxclients, and Options.PoolSize of all processes"
	endedAtOnce   = "the server ended the connection as soon as it was made: it may have reached its maxclients, or want TLS"
	nobody        = "nothing listens at this address: see Options.Addr, and whether Redis runs"
)

// rightReplies are what servers reply who do not allow a command, also where a script wanted it:
// those do not say which.
var rightReplies = []string{"noperm", "the user executing the script can't", "no permission"}

// decidesNothing reports whether err is of a server that decides nothing, whatever it is asked.
func decidesNothing(err error) bool {
	return slices.ContainsFunc(refusals, func(r refusal) bool { return redis.HasErrorPrefix(err, r.begins) }) ||
		hasCode(err, "NOPERM") && strings.Contains(err.Error(), "'eval")
}

// hint returns what a person can do about err, or "".
func (s *Store) hint(err error) string {
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.begins) {
			return r.hint
		}
	}
	switch {
	case replies(err, rightReplies):
		return rightHint
	case moving(err):
		return noSlot
	case s.servers.cluster == nil && hasCode(err, "MOVED"):
		return ofCluster
	case errors.As(err, new(tls.RecordHeaderError)):
		return noTLS
	case errors.Is(err, syscall.EPIPE) && !isBroken(err): // while go-redis set up a new connection
		return endedAtOnce
	case errors.Is(err, syscall.ECONNREFUSED):
		return nobody
	case errors.As(err, new(*net.AddrError)), strings.Contains(err.Error(), "unknown port"):
		return noAddress
	case strings.Contains(err.Error(), "HTTP/1."):
		return noRedis
	}
	return ""
}

// unsupported is what servers reply to a script or an option that they do not know.
var unsupported = []string{
	"syntax error", "unknown command", "unknown redis command", "wrong number of arg", "non deterministic", "not allowed from script",
}

// faults is what servers reply where a script met a value that it does not understand, or is wrong
// itself. The scripts allow for any value, and all compile: such a reply is of one limiter's calls,
// and says nothing about the server.
var faults = []string{"wrongtype", "attempt to ", "not an integer", "not a valid float", "invalid expire", "compiling script"}

// permanent reports whether err is of a server that lacks what the scripts need. What it replies
// while it is loading, read-only, busy or out of memory is none of unsupported. The syntax error of
// a script that does not compile is none of the server.
func permanent(err error) bool { return replies(err, unsupported) && !replies(err, faults) }

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
	fields := infoFields(info)
	switch {
	case fields["valkey_version"] != "":
		return "valkey " + fields["valkey_version"]
	case fields["redis_version"] != "":
		return "redis " + fields["redis_version"]
	}
	return "of unknown version"
}

// infoFields returns the fields of the reply to INFO.
func infoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields
}
