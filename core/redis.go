package core

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

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

// A redisStore keeps the state of a Limiter's keys in Redis. What it does is
// atomic for each key, and the server's clock decides.
type redisStore struct {
	client   Client
	decide   script
	giveBack script
	deciders []decider
	events   *emitter
	head     string   // a Redis key up to the user's key: "rl:api:{"
	tails    []string // and what follows it, for each limit: "}:token-1m"

	constants []any // of all limits
	unit      []any // the price of one unit, for each limit

	apart atomic.Bool // decisions cannot share a script: their keys are on several servers
}

func newRedisStore(client Client, name string, c *config, deciders []decider, events *emitter) *redisStore {
	s := &redisStore{
		client:   client,
		decide:   newScript(decideSource(c.limits, deciders)),
		giveBack: newScript(refundSource(c.limits, deciders)),
		deciders: deciders,
		events:   events,
		head:     c.prefix + ":" + name + ":{",
	}
	for _, l := range c.limits {
		s.tails = append(s.tails, "}:"+l.Name())
	}
	for _, d := range deciders {
		for _, constant := range d.constants() {
			s.constants = append(s.constants, fmt.Sprint(constant))
		}
		s.unit = append(s.unit, fmt.Sprint(d.price(1)))
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

// cost appends what one decision costs.
func (s *redisStore) cost(dst []any, n int64, charge bool) []any {
	if charge {
		dst = append(dst, "1")
	} else {
		dst = append(dst, "0")
	}
	if n == 1 {
		return append(dst, s.unit...)
	}
	for _, d := range s.deciders {
		dst = append(dst, d.price(n))
	}
	return dst
}

// args returns the arguments of a script about one decision.
func (s *redisStore) args(key string, n int64, charge bool) []any {
	args := s.keys(make([]any, scriptArgs, 12), key)
	args = append(args, s.constants...)
	return s.cost(args, n, charge)
}

// read decides on n units and writes what it found to into, one reading for each
// limit; if all of them admit and charge is set, it charges n.
func (s *redisStore) read(ctx context.Context, key string, n int64, charge bool, into []reading) error {
	reply, err := s.decide.run(ctx, s, s.args(key, n, charge), len(s.tails))
	if err != nil {
		return err
	}
	return decodeReply(reply, s.deciders, into)
}

// refund gives n units back that were charged on top of the readings.
func (s *redisStore) refund(ctx context.Context, key string, n int64, readings []reading) error {
	args := s.args(key, n, true)
	for i, d := range s.deciders {
		args = append(args, d.mark(readings[i]))
	}
	_, err := s.giveBack.run(ctx, s, args, len(s.tails))
	return err
}

// reset forgets key.
func (s *redisStore) reset(ctx context.Context, key string) error {
	cmd := redis.NewIntCmd(ctx, s.keys([]any{"del"}, key)...)
	return s.client.Process(ctx, cmd)
}

// slot returns a text that has the hash slot of key's state.
func (s *redisStore) slot(key string) string { return s.head + encodeKey(key) + "}" }

// decodeReply reads a script's answer. What answers may be a proxy, another
// version of this library or a fault, so nothing is believed that the script
// cannot have said.
func decodeReply(reply []int64, deciders []decider, into []reading) error {
	if len(reply) != readingLen*len(deciders) {
		return unexpected(len(reply), readingLen*len(deciders))
	}
	for i, d := range deciders {
		n := reply[i*readingLen : (i+1)*readingLen]
		r := reading{admits: n[0] == 1, t: n[1], x: n[2], y: n[3], z: n[4]}
		if n[0]>>1 != 0 || r.t < 0 || r.t >= maxInstant || !d.plausible(r) {
			return fmt.Errorf("unexpected answer from redis: %v", n)
		}
		into[i] = r
	}
	return nil
}

func unexpected(got, want int) error {
	return fmt.Errorf("unexpected answer of %d numbers from redis, want %d", got, want)
}
