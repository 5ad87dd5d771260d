package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/key"
)

// A Config says what a [Store] decides, and how.
type Config struct {
	Prefix, Limiter string             // what the Redis keys begin with
	Limits          []algorithm.Member // all must admit a decision
	LimitNames      []string           // what the Redis keys end with, one for each limit
	Timeout         time.Duration      // for one decision, all in all
	MaxBatch        int                // decisions in one round trip; 1: none share
	Hooks           Hooks
}

// Hooks are called when something happens, in the goroutine of whoever noticed.
type Hooks struct {
	ScriptLoaded  func(ctx context.Context)            // Redis did not have a script
	CallFailed    func(ctx context.Context, err error) // Redis did not answer a call that was made
	BreakerChange func(ctx context.Context, from, to BreakerState, cause error)
}

// A Store decides for the keys of one limiter. What it does is atomic for each
// key, and the server's clock decides. It is safe for concurrent use.
type Store struct {
	client  Client
	limits  []algorithm.Member
	decide  script
	refund  script
	breaker *breaker
	groups  *groups
	hooks   Hooks

	head      string   // a Redis key up to the user's key: "rl:api:{"
	tails     []string // and what follows it, for each limit: "}:token-1m"
	constants []any    // of all limits, as text
	unitCost  []any    // of all limits, as text
}

// NewStore returns the Store of one limiter over client. It sends nothing.
func NewStore(client Client, c Config) *Store {
	s := &Store{
		client:  client,
		limits:  c.Limits,
		decide:  newScript(algorithm.DecideScript(c.Limits)),
		refund:  newScript(algorithm.RefundScript(c.Limits)),
		breaker: newBreaker(client, c),
		hooks:   c.Hooks,
		head:    c.Prefix + ":" + c.Limiter + ":{",
	}
	for _, name := range c.LimitNames {
		s.tails = append(s.tails, "}:"+name)
	}
	for _, l := range c.Limits {
		for _, constant := range l.Constants() {
			s.constants = append(s.constants, fmt.Sprint(constant))
		}
		for _, cost := range l.Cost(nil, 1) {
			s.unitCost = append(s.unitCost, fmt.Sprint(cost))
		}
	}
	s.groups = newGroups(s, client, c.MaxBatch)
	return s
}

// A decision is what one caller asks.
type decision struct {
	key     string
	n       int64
	charge  bool
	answers []algorithm.Answer // where the reply is written
}

// Decide evaluates each limit for n units of the user's key k, and writes its answer
// to answers. If all limits admit n and charge is set, it charges n.
// While the circuit breaker is open the error is [ErrBreakerOpen].
func (s *Store) Decide(ctx context.Context, k string, n int64, charge bool, answers []algorithm.Answer) error {
	d := decision{k, n, charge, answers}
	if !s.breaker.closed() {
		return s.decideWithin(ctx, s.breaker.timeout, d) // while Redis fails nobody waits for others
	}
	batcher := s.groups.batcher(ctx, d)
	if batcher == nil {
		err := s.decideAlone(ctx, d)
		if err == nil {
			s.groups.markTopologyKnown()
		}
		return err
	}
	place, alone := batcher.Acquire(ctx, d)
	if alone {
		defer batcher.Release()
		return s.decideAlone(ctx, d)
	}
	err := place.Wait(ctx)
	if errors.Is(err, batch.ErrRetryAlone) {
		return s.decideWithin(ctx, s.breaker.timeout-time.Since(place.Since()), d)
	}
	return err
}

// decideAlone takes a fast path where it can: with a closed breaker, and a client
// that honors deadlines, a call needs neither a goroutine nor a lock.
func (s *Store) decideAlone(ctx context.Context, d decision) error {
	if !s.breaker.bareCallAllowed() {
		return s.decideWithin(ctx, s.breaker.timeout, d)
	}
	err := s.evaluate(s.breaker.deadlines.with(ctx), d)
	return s.breaker.recordBareCall(ctx, err)
}

func (s *Store) decideWithin(ctx context.Context, timeout time.Duration, d decision) error {
	return s.breaker.call(ctx, timeout, func(ctx context.Context) error { return s.evaluate(ctx, d) })
}

// evaluate runs the script for one decision.
func (s *Store) evaluate(ctx context.Context, d decision) error {
	reply, err := s.decide.run(ctx, s.client, s.args(d), len(s.tails), s.hooks.ScriptLoaded)
	if err != nil {
		return err
	}
	return algorithm.DecodeReply(reply, s.limits, d.answers)
}

// Refund takes back n units that were charged to k; ids are the ChargeIDs, one for
// each limit.
func (s *Store) Refund(ctx context.Context, k string, n int64, ids []int64) error {
	args := s.args(decision{key: k, n: n, charge: true})
	for _, id := range ids {
		args = append(args, id)
	}
	return s.breaker.call(ctx, s.breaker.timeout, func(ctx context.Context) error {
		_, err := s.refund.run(ctx, s.client, args, len(s.tails), s.hooks.ScriptLoaded)
		return err
	})
}

// Reset forgets k.
func (s *Store) Reset(ctx context.Context, k string) error {
	return s.breaker.call(ctx, s.breaker.timeout, func(ctx context.Context) error {
		return s.client.Process(ctx, redis.NewIntCmd(ctx, s.appendKeys([]any{"del"}, k)...))
	})
}

// args returns the arguments of a script for one decision.
func (s *Store) args(d decision) []any {
	args := s.appendKeys(make([]any, scriptArgs, 16), d.key)
	args = append(args, s.constants...)
	return s.appendCost(args, d)
}

// appendKeys appends the Redis key of each limit. They differ only outside the
// braces, so a Cluster keeps them in one hash slot.
func (s *Store) appendKeys(dst []any, k string) []any {
	k = s.head + key.Encode(k)
	for _, tail := range s.tails {
		dst = append(dst, k+tail)
	}
	return dst
}

// slotKey returns a text with the hash slot of k's Redis keys.
func (s *Store) slotKey(k string) string { return s.head + key.Encode(k) + "}" }

// appendCost appends whether to charge, and the cost for each limit.
func (s *Store) appendCost(dst []any, d decision) []any {
	if d.charge {
		dst = append(dst, "1")
	} else {
		dst = append(dst, "0")
	}
	if d.n == 1 {
		return append(dst, s.unitCost...)
	}
	for _, l := range s.limits {
		dst = l.Cost(dst, d.n)
	}
	return dst
}
