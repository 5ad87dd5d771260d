package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
)

// What looks like one server may be a proxy before several, which routes a script by
// its first key and does not look at the others (twemproxy, Envoy in ring-hash mode).
// The other keys of a batch would then be counted on the wrong server, without any
// error. So before the first script with the keys of several decisions, Servers find
// out whether it would see them.
type sharding struct {
	state atomic.Int32
	mu    sync.Mutex
	check *shardingCheck // in flight, or the last one
}

// A shardingCheck finds out what is not known yet.
type shardingCheck struct {
	done  chan struct{} // closed when it has ended
	ended time.Time
	err   error
}

// What is known of the keys of several decisions.
const (
	shardingUnknown int32 = iota
	keysTogether          // one script may have them
	keysApart             // no script may
)

const (
	// shardingKeys is how many temporary keys the check has. A proxy before two servers,
	// one of which has a tenth of the keys, has all of them on one in 1 of 800 checks.
	shardingKeys = 64
	// shardingTTL is how long the keys last that could not be deleted.
	shardingTTL = 10 * time.Second
	// shardingPause is the time until the next attempt, after one that failed.
	shardingPause = time.Second
)

// apart reports whether it is known that no script may have the keys of several
// decisions.
func (s *Servers) apart() bool { return s.sharding.state.Load() == keysApart }

func (s *Servers) setApart() { s.sharding.state.Store(keysApart) }

// together reports whether one script may have the keys of several decisions. If that
// is not known yet it waits for the check. It is false after a check to which the
// server replied with an error; the error is that of a server that did not reply.
func (s *Servers) together(ctx context.Context, st *Store) (bool, error) {
	check := s.checkSharding(ctx, st)
	if check != nil {
		select {
		case <-check.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	state := s.sharding.state.Load()
	if reply := redis.Error(nil); state != shardingUnknown || check == nil || errors.As(check.err, &reply) {
		return state == keysTogether, nil
	}
	return false, check.err
}

// checkSharding returns the check that is in flight, if there is one. If it is not
// known where a script's keys may be, and no attempt has just failed, it starts one.
// That is done as soon as a decision waits for a batch, so that the batch need not
// wait for another round trip.
func (s *Servers) checkSharding(ctx context.Context, st *Store) *shardingCheck {
	if s.sharding.state.Load() != shardingUnknown {
		return nil
	}
	client, ok := s.client.(*redis.Client)
	if !ok {
		return nil
	}
	s.sharding.mu.Lock()
	defer s.sharding.mu.Unlock()
	if last := s.sharding.check; last != nil {
		select {
		case <-last.done:
			if time.Since(last.ended) < shardingPause {
				return nil
			}
		default:
			return last
		}
	}
	check := &shardingCheck{done: make(chan struct{})}
	s.sharding.check = check
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(check.done)
		check.err = batch.Catch(func() error { // a hook of the client may panic: here nobody else would recover
			return st.call(ctx, st.timeout, func(ctx context.Context) error {
				state, err := seenTogether(ctx, client, st.head)
				s.sharding.state.CompareAndSwap(shardingUnknown, state)
				return err
			})
		})
		check.ended = time.Now()
	}()
	return check
}

// countKeys returns how many of its keys a script sees.
const countKeys = `
local seen = 0
for _, key in ipairs(KEYS) do
	seen = seen + (redis.call('GET', key) and 1 or 0)
end
return seen`

// seenTogether writes keys of several hash slots, each by a command of its own, looks
// whether one script sees all of them, and deletes them: all in one round trip, with
// no command that a decision does not need.
func seenTogether(ctx context.Context, client *redis.Client, head string) (int32, error) {
	keys := shardingCheckKeys(head)
	pipe := client.Pipeline()
	for _, k := range keys {
		pipe.Set(ctx, k, 1, shardingTTL)
	}
	eval := pipe.Eval(ctx, countKeys, keys)
	for _, k := range keys { // they could also have been evicted before the script
		pipe.Get(ctx, k)
	}
	for _, k := range keys {
		pipe.Del(ctx, k)
	}
	_, err := pipe.Exec(ctx)
	seen, evalErr := eval.Int()
	switch {
	case hasCode(evalErr, "CROSSSLOT"):
		return keysApart, nil
	case evalErr == nil && seen == len(keys):
		return keysTogether, nil
	case err != nil:
		return shardingUnknown, err
	}
	return keysApart, nil
}

// shardingCheckKeys returns keys that no decision has: theirs go on after the brace.
// Each has a random text of its own: hashes that proxies use (fnv1a_64) are nearly the
// same for texts that differ in the last characters only.
func shardingCheckKeys(head string) []string {
	keys := make([]string, shardingKeys)
	for i := range keys {
		keys[i] = head + "~shard-" + strconv.FormatUint(rand.Uint64(), 36) + "}"
	}
	return keys
}
