package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
)

// What looks like one server may be a proxy before several, which routes a script by its first key
// and does not look at the others (twemproxy, Envoy in ring-hash mode). The other keys of a batch
// would then be counted on the wrong server, without any error. So before the first script with the
// keys of several decisions it is found out whether the server would see them.
//
// A server of a Cluster refuses a script whose keys are of several hash slots. It runs one that
// does not declare its keys, and gets them as arguments: so do Redis 6.0 to 8.0 and Valkey 8.1,
// where the script has no line with flags. It checks each command of the script as if it were sent
// alone, so that a decision on a key that has moved fails by itself, and charges nothing. Other
// servers may refuse this, or run the script on one of several parts; they get a pipeline of
// scripts.
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
	// shardingKeys is how many temporary keys the check has. A proxy before two servers, one of
	// which has a tenth of the keys, has all of them on one in 1 of 800 checks.
	shardingKeys = 64
	// shardingTries is how many keys are tried to find those of one server of a Cluster.
	shardingTries = 100 * shardingKeys
	// shardingTTL is how long the keys last that could not be deleted.
	shardingTTL = 10 * time.Second
	// shardingPause is the time until the next attempt, after one that failed.
	shardingPause = time.Second
)

// apart reports whether it is known that no script may have the keys of several decisions.
func (sv *Server) apart() bool { return sv.sharding.state.Load() == keysApart }

func (sv *Server) setApart() { sv.sharding.state.Store(keysApart) }

// knownTogether reports whether it is known that one script may have them.
func (sv *Server) knownTogether() bool { return sv.sharding.state.Load() == keysTogether }

// awaitSharding reports whether one script may have the keys of several decisions. If that is not
// known yet it waits for the check. It is false after a check to which the server replied with an
// error; the error is that of a server that did not reply.
func (sv *Server) awaitSharding(ctx context.Context, st *Store) (bool, error) {
	check := sv.checkSharding(ctx, st)
	if check != nil {
		select {
		case <-check.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	state := sv.sharding.state.Load()
	if reply := redis.Error(nil); state != shardingUnknown || check == nil || errors.As(check.err, &reply) {
		return state == keysTogether, nil
	}
	return false, check.err
}

// checkSharding returns the check that is in flight, if there is one. If it is not known where a
// script's keys may be, and no attempt has just failed, it starts one. That is done as soon as a
// decision waits for a batch, so that the batch need not wait for another round trip.
func (sv *Server) checkSharding(ctx context.Context, st *Store) *shardingCheck {
	if sv.sharding.state.Load() != shardingUnknown {
		return nil
	}
	client, ok := sv.servers.client.(pipeliner)
	if !ok || sv.servers.ring != nil {
		return nil
	}
	sv.sharding.mu.Lock()
	defer sv.sharding.mu.Unlock()
	if last := sv.sharding.check; last != nil {
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
	sv.sharding.check = check
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(check.done)
		check.err = batch.Catch(func() error { // a hook of the client may panic: here nobody else would recover
			return st.call(ctx, sv.health.CallTimeout(), func(ctx context.Context) error {
				state, err := sv.seenTogether(ctx, client, st.head)
				sv.sharding.state.CompareAndSwap(shardingUnknown, state)
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

// changeKeys does so with keys that are not declared, and changes them to 2.
const changeKeys = `
local seen = 0
for _, key in ipairs(ARGV) do
	local here = redis.call('GET', key) == '1'
	seen = seen + (here and redis.call('SET', key, 2, 'PX', 10000) and 1 or 0)
end
return seen`

// seenTogether writes keys of several hash slots of the server, each by a command of its own, looks
// whether one script sees all of them, and deletes them: all in one round trip, with no command
// that a decision does not need.
func (sv *Server) seenTogether(ctx context.Context, client pipeliner, head string) (int32, error) {
	keys := sv.shardingCheckKeys(ctx, head)
	if len(keys) < 2 {
		return shardingUnknown, nil // a server with few slots
	}
	var eval *redis.Cmd
	gets := make([]*redis.StringCmd, len(keys))
	err := pipelined(ctx, client, func(pipe redis.Pipeliner) {
		for _, k := range keys {
			pipe.Set(ctx, k, 1, shardingTTL)
		}
		if sv.servers.cluster != nil {
			args := make([]any, len(keys))
			for i, k := range keys {
				args[i] = k
			}
			eval = pipe.Eval(ctx, changeKeys, nil, args...)
			eval.SetFirstKeyPos(scriptArgs)
		} else {
			eval = pipe.Eval(ctx, countKeys, keys)
		}
		for i, k := range keys { // they could also have been evicted before the script
			gets[i] = pipe.Get(ctx, k)
			pipe.Del(ctx, k)
		}
	})
	seen, evalErr := eval.Int()
	switch {
	case diagnose.HasCode(evalErr, "CROSSSLOT"), sv.servers.cluster != nil && refusesUndeclared(evalErr):
		return keysApart, nil
	case evalErr == nil && seen == len(keys) && (sv.servers.cluster == nil || allChanged(gets)):
		return keysTogether, nil
	case err != nil:
		return shardingUnknown, err
	}
	return keysApart, nil
}

// allChanged reports whether commands of their own see what changeKeys wrote.
func allChanged(gets []*redis.StringCmd) bool {
	return !slices.ContainsFunc(gets, func(get *redis.StringCmd) bool { return get.Val() != "2" })
}

// refusesUndeclared reports whether err is of a server that does not run scripts with undeclared
// keys of several slots, and not only of one key that has just moved.
func refusesUndeclared(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR ") && !strings.Contains(reply.Error(), "non local key")
}

// shardingCheckKeys returns keys of the server that no decision has: theirs go on after the brace.
// Each has a random text of its own: hashes that proxies use (fnv1a_64) are nearly the same for
// texts that differ in the last characters only.
func (sv *Server) shardingCheckKeys(ctx context.Context, head string) []string {
	keys := make([]string, 0, shardingKeys)
	for range shardingTries {
		key := head + "~shard-" + strconv.FormatUint(rand.Uint64(), 36) + "}"
		if c := sv.servers.cluster; c != nil {
			if node, err := c.MasterForKey(ctx, key); err != nil || node.Options().Addr != sv.addr {
				continue
			}
		}
		if keys = append(keys, key); len(keys) == shardingKeys {
			break
		}
	}
	return keys
}
