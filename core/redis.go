package core

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Client is what a [Limiter] needs of Redis. *redis.Client,
// *redis.ClusterClient, *redis.Ring and redis.UniversalClient of go-redis v9 all
// are one. Redis must be 6.2 or newer.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

func isNil(client Client) bool {
	if client == nil {
		return true
	}
	v := reflect.ValueOf(client)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// A redisStore keeps the state of a Limiter's keys in Redis.
type redisStore struct {
	client   Client
	decide   script
	deciders []decider
	head     string   // a Redis key up to the user's key: "rl:api:{"
	tails    []string // and what follows it, for each limit: "}:token-1m"
}

func newRedisStore(client Client, name string, c *config, deciders []decider) *redisStore {
	s := &redisStore{
		client:   client,
		decide:   newScript(decideSource(c.limits)),
		deciders: deciders,
		head:     c.prefix + ":" + name + ":{",
	}
	for _, l := range c.limits {
		s.tails = append(s.tails, "}:"+l.Name())
	}
	return s
}

// keys appends the Redis key of each limit. They differ only outside the braces,
// so a Cluster keeps them in one hash slot.
func (s *redisStore) keys(dst []any, key string) []any {
	key = s.head + encodeKey(key)
	for _, tail := range s.tails {
		dst = append(dst, key+tail)
	}
	return dst
}

// read runs the decision on n units and returns what it found.
func (s *redisStore) read(ctx context.Context, key string, n int64, charge bool) ([]reading, error) {
	args := make([]any, 3, 16)
	args = s.keys(args, key)
	if charge {
		args = append(args, "1")
	} else {
		args = append(args, "0")
	}
	for _, d := range s.deciders {
		args = d.args(args, n)
	}
	reply, err := s.decide.run(ctx, s.client, len(s.tails), args)
	if err != nil {
		return nil, err
	}
	return decodeReply(reply, s.deciders)
}

func (s *redisStore) reset(ctx context.Context, key string) error {
	cmd := redis.NewIntCmd(ctx, s.keys([]any{"del"}, key)...)
	return s.client.Process(ctx, cmd)
}

// decodeReply reads a script's answer. What answers may be a proxy, another
// version of this library or a fault, so nothing is believed that the script
// cannot have said.
func decodeReply(reply []int64, deciders []decider) ([]reading, error) {
	if len(reply) != readingLen*len(deciders) {
		return nil, fmt.Errorf("unexpected answer of %d numbers from redis, want %d", len(reply), readingLen*len(deciders))
	}
	readings := make([]reading, len(deciders))
	for i, d := range deciders {
		n := reply[i*readingLen : (i+1)*readingLen]
		r := reading{admits: n[0] == 1, t: n[1], x: n[2], y: n[3], z: n[4]}
		if n[0]>>1 != 0 || r.t < 0 || r.t >= maxInstant || !d.plausible(r) {
			return nil, fmt.Errorf("unexpected answer from redis: %v", n)
		}
		readings[i] = r
	}
	return readings, nil
}

// A script is a Lua script and the digest by which Redis knows it.
type script struct{ source, sha string }

func newScript(source string) script {
	sum := sha1.Sum([]byte(source))
	return script{source, hex.EncodeToString(sum[:])}
}

// run runs the script with args, whose first three places it fills in itself.
// EVAL follows only where Redis said that it does not have the script, so that a
// decision is never run twice.
func (s script) run(ctx context.Context, client Client, keys int, args []any) ([]int64, error) {
	args[0], args[1], args[2] = "evalsha", s.sha, keys
	cmd := onceCmd{redis.NewIntSliceCmd(ctx, args...)}
	err := client.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = "eval", s.source
		cmd = onceCmd{redis.NewIntSliceCmd(ctx, args...)}
		err = client.Process(ctx, cmd)
	}
	return cmd.Val(), err
}

// A onceCmd is sent once. go-redis repeats other commands when their reply is
// lost, and each repetition would charge again.
type onceCmd struct{ *redis.IntSliceCmd }

// NoRetry tells go-redis not to send the command again.
func (onceCmd) NoRetry() bool { return true }

// decideSource composes the Lua of a decision on limits: the files of their
// algorithms, each once, and the one that puts them to use.
func decideSource(limits []Limit) string {
	var b strings.Builder
	b.WriteString(stateLibrary)
	seen := make(map[string]bool)
	names := make([]string, len(limits))
	for i, l := range limits {
		names[i] = l.algorithm.name
		for _, part := range []string{l.algorithm.library, l.algorithm.script} {
			if !seen[part] {
				seen[part] = true
				b.WriteString(part)
			}
		}
	}
	if len(names) == 1 {
		fmt.Fprintf(&b, "\nlocal algorithm = %s\n%s", names[0], decideScript)
	} else {
		fmt.Fprintf(&b, "\nlocal algorithms = { %s }\n%s", strings.Join(names, ", "), decideAllScript)
	}
	return b.String()
}
