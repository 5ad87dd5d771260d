package diagnose

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrUnsupported is the error of a server that answers but cannot run the scripts. Waiting does not help.
var ErrUnsupported = errors.New("the server cannot run the scripts of redislimit, which need Redis 6.0 or newer, or Valkey")

// Explain adds to err, which must not be nil, a hint about what a person can do. If there is no hint, it
// returns err as it is. If the server lacks what the scripts need, so that no retry can succeed, Explain
// returns an ErrUnsupported that wraps err and names the server's version. To learn the version it calls
// info, which returns the server's reply to INFO, or "" if there is none. It does not call info for any
// other error. cluster says whether the client is one for a Cluster.
func Explain(err error, cluster bool, info func() string) error {
	if isPermanent(err) {
		return fmt.Errorf("%w; this server is %s: %w", ErrUnsupported, serverVersion(info()), err)
	}
	if hint := hintFor(err, cluster); hint != "" {
		return fmt.Errorf("%w (%s)", err, hint)
	}
	return err
}

// A refusal describes a reply of a server that serves nobody at present: how the reply begins, without an
// "ERR " before it, and a hint for people. The hint is "" if the reply explains itself.
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
	{
		"bad lua script for redis cluster",
		"the proxy of a Tair: set its script_check_enable to 0, or connect to the nodes by redis.NewClusterClient",
	},
}

// NoTLS is the hint for a server that may not speak TLS.
const NoTLS = "perhaps the server does not speak TLS at this port: take its TLS port, or leave out Options.TLSConfig"

// The other hints of hintFor, and those that refusals uses by name.
const (
	needsPassword = "the server wants a password: set Options.Password"
	wrongPassword = "the server does not take this Options.Username and Options.Password"
	rightHint     = "the Redis user lacks a right: docs/operating.md lists what it must be allowed"
	ofCluster     = "a node of a Cluster: use redis.NewClusterClient"
	noAddress     = "Options.Addr is host:port: redis.ParseURL takes a URL"
	noRedis       = "no Redis, but another service, answers at this address: see Options.Addr"
	noSlot        = "a hash slot is on no node, or its move has stopped: redis-cli --cluster check says which"
	noRoom        = "the server takes no more connections: see its maxclients, and Options.PoolSize of all processes"
	endedAtOnce   = "the server ended the connection as soon as it was made: it may have reached its maxclients, or want TLS"
	nobody        = "nothing listens at this address: see Options.Addr, and whether Redis runs"
)

// rightReplies are phrases of replies that say that the Redis user may not run a command. If a script ran
// the command, the reply does not name it.
var rightReplies = []string{"noperm", "the user executing the script can't", "no permission"}

// LacksRight reports whether err is a reply that says that the Redis user may not run a command.
func LacksRight(err error) bool { return replies(err, rightReplies) }

// servesNobody reports whether err is the reply of a server that would reject every decision, not only this
// call. A user that may not run EVAL or EVALSHA gets such a reply.
func servesNobody(err error) bool {
	return slices.ContainsFunc(refusals, func(r refusal) bool { return redis.HasErrorPrefix(err, r.begins) }) ||
		HasCode(err, "NOPERM") && strings.Contains(err.Error(), "'eval")
}

// hintFor returns the hint for err, or "" if there is none.
func hintFor(err error, cluster bool) string {
	for _, r := range refusals {
		if redis.HasErrorPrefix(err, r.begins) {
			return r.hint
		}
	}
	switch {
	case LacksRight(err):
		return rightHint
	case SlotMoving(err):
		return noSlot
	case !cluster && HasCode(err, "MOVED"):
		return ofCluster
	case errors.As(err, new(tls.RecordHeaderError)):
		return NoTLS
	case errors.Is(err, syscall.EPIPE) && !IsBroken(err): // go-redis was setting up a new connection
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

// unsupported are phrases in the replies of servers that do not know a command or an option that the
// scripts need.
var unsupported = []string{
	"syntax error", "unknown command", "unknown redis command", "wrong number of arg", "non deterministic", "not allowed from script",
}

// faults are phrases in the replies to a script that has read a value that it does not understand, or that
// is itself wrong. Such a reply concerns the calls of one limiter and says nothing about the server.
var faults = []string{"wrongtype", "attempt to ", "not an integer", "not a valid float", "invalid expire", "compiling script"}

// isPermanent reports whether err is the reply of a server that lacks what the scripts need. The replies
// of a server that is loading, read-only, busy or out of memory have other phrases. A reply that contains
// one of faults does not count: for example, the reply to a script that does not compile may contain
// "syntax error", but that is not the fault of the server.
func isPermanent(err error) bool { return replies(err, unsupported) && !replies(err, faults) }

// replies reports whether err is the reply of a server and contains one of the phrases.
func replies(err error, phrases []string) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := strings.ToLower(reply.Error())
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(text, phrase) })
}

// serverVersion returns the name and version in the reply to INFO, such as "valkey 8.1.1" or "redis 6.0.16".
// If the reply has no version, it returns "of unknown version".
func serverVersion(info string) string {
	fields := InfoFields(info)
	switch {
	case fields["valkey_version"] != "":
		return "valkey " + fields["valkey_version"]
	case fields["redis_version"] != "":
		return "redis " + fields["redis_version"]
	}
	return "of unknown version"
}

// InfoFields parses the reply to INFO into its fields.
func InfoFields(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return fields
}
