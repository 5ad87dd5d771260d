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

// A sharding records, for one server, whether one script may have the keys of several decisions.
//
// What looks like one server may be a proxy in front of several. Some proxies (twemproxy, Envoy in
// ring-hash mode) route a script by its first key and ignore the others. The other keys of a batch
// would then be counted on the wrong server, without any error. Therefore, checkSharding finds out
// whether the server sees all keys, before the first script with the keys of several decisions is
// sent. This happens once for each client and timeout, unless the check finds nothing out.
//
// A server of a Cluster refuses a script whose declared keys have several hash slots. Redis 6.0 to 8.0 and
// Valkey 8.1 run a script that receives its keys as arguments, without declaring them, if the script does not
// begin with a line of flags (#!lua flags=...). They check each command of such a script as if the command
// were sent alone: a decision on a key that has moved fails without affecting the other decisions, and charges
// nothing. Servers of other versions may refuse such a script, or run it on a server that has only a part of
// the keys. For such versions, a batch is sent as a pipeline of scripts.
type sharding struct {
	state atomic.Int32
	mu    sync.Mutex     // guards check
	check *shardingCheck // the check in flight, or else the last one
}

// A shardingCheck is one attempt to find out the sharding of a server.
type shardingCheck struct {
	done  chan struct{} // closed when the attempt has ended; only after that may ended and err be read
	ended time.Time
	err   error
}

// The states of a sharding.
const (
	shardingUnknown int32 = iota
	oneScript             // one script may have the keys of several decisions
	separateScripts       // no script may have the keys of several decisions
)

const (
	// shardingKeys is how many temporary keys a check uses. If a proxy keeps a tenth of its keys on one
	// of two servers, 1 of 800 checks does not notice that there are two.
	shardingKeys = 64
	// shardingTries is how many keys are tried to find enough keys of one server of a Cluster.
	shardingTries = 100 * shardingKeys
	// shardingTTL is the time after which the temporary keys expire if they cannot be deleted.
	shardingTTL = 10 * time.Second
	// shardingPause is the shortest time between an attempt that found nothing out and the next one.
	shardingPause = time.Second
)

// needsSeparateScripts reports whether it is known that no script may have the keys of several
// decisions.
func (n *node) needsSeparateScripts() bool { return n.sharding.state.Load() == separateScripts }

// setSeparateScripts records that no script may have the keys of several decisions.
func (n *node) setSeparateScripts() { n.sharding.state.Store(separateScripts) }

// allowsOneScript reports whether it is known that one script may have the keys of several decisions.
func (n *node) allowsOneScript() bool { return n.sharding.state.Load() == oneScript }

// awaitSharding reports whether one script may have the keys of several decisions. If that is not known yet,
// it waits for the check, but no longer than ctx lasts. It reports false if the check found nothing out,
// because the server refused one of its commands or because it found too few keys. As long as nothing is
// known, it also reports false if checkSharding makes no check now. If the server did not reply, awaitSharding
// returns the error of the check, and if ctx ended first, the error of ctx.
func (n *node) awaitSharding(ctx context.Context, st *Store) (bool, error) {
	check := n.checkSharding(ctx, st)
	if check != nil {
		select {
		case <-check.done:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	state := n.sharding.state.Load()
	if reply := redis.Error(nil); state != shardingUnknown || check == nil || errors.As(check.err, &reply) {
		return state == oneScript, nil
	}
	return false, check.err
}

// checkSharding returns the check that is in flight. If none is in flight, it starts one and returns it.
// It returns nil if the sharding is known, if the last check ended less than shardingPause ago, or if the
// client is a Ring or has no pipelines.
func (n *node) checkSharding(ctx context.Context, st *Store) *shardingCheck {
	if n.sharding.state.Load() != shardingUnknown {
		return nil
	}
	client, ok := n.servers.client.(pipeliner)
	if !ok || n.servers.ring != nil {
		return nil
	}
	n.sharding.mu.Lock()
	defer n.sharding.mu.Unlock()
	if last := n.sharding.check; last != nil {
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
	n.sharding.check = check
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(check.done)
		check.err = batch.Catch(func() error { // a hook of the client may panic, and nothing else recovers in this goroutine
			return st.bounded(ctx, n.health.CallTimeout(), func(ctx context.Context) error {
				state, err := n.detectSharding(ctx, client, st.head)
				n.sharding.state.CompareAndSwap(shardingUnknown, state)
				return err
			})
		})
		check.ended = time.Now()
	}()
	return check
}

// countKeys is a script that returns how many of its keys it sees.
const countKeys = `
local seen = 0
for _, key in ipairs(KEYS) do
	seen = seen + (redis.call('GET', key) and 1 or 0)
end
return seen`

// changeKeys is a script that returns how many of its undeclared keys it sees with the value 1, and
// sets them to 2.
const changeKeys = `
local seen = 0
for _, key in ipairs(ARGV) do
	local here = redis.call('GET', key) == '1'
	seen = seen + (here and redis.call('SET', key, 2, 'PX', 10000) and 1 or 0)
end
return seen`

// detectSharding writes keys of several hash slots of the server, each by a command of its own, finds
// out whether one script sees all of them, and deletes them. This takes one round trip, and only
// commands that decisions also need. detectSharding returns the state of the sharding, which is
// shardingUnknown if this cannot be found out.
func (n *node) detectSharding(ctx context.Context, client pipeliner, head string) (int32, error) {
	keys := n.shardingCheckKeys(ctx, head)
	if len(keys) < 2 {
		return shardingUnknown, nil // the server has few hash slots, or is no longer the master of any
	}
	var eval *redis.Cmd
	gets := make([]*redis.StringCmd, len(keys))
	err := pipelined(ctx, client, func(pipe redis.Pipeliner) {
		for _, k := range keys {
			pipe.Set(ctx, k, 1, shardingTTL)
		}
		if n.servers.cluster != nil {
			args := make([]any, len(keys))
			for i, k := range keys {
				args[i] = k
			}
			eval = pipe.Eval(ctx, changeKeys, nil, args...)
			eval.SetFirstKeyPos(scriptArgs)
		} else {
			eval = pipe.Eval(ctx, countKeys, keys)
		}
		for i, k := range keys { // if a key was evicted before the script ran, its GET fails, and so does the check
			gets[i] = pipe.Get(ctx, k)
			pipe.Del(ctx, k)
		}
	})
	seen, evalErr := eval.Int()
	switch {
	case diagnose.HasCode(evalErr, "CROSSSLOT"), n.servers.cluster != nil && refusesUndeclared(evalErr):
		return separateScripts, nil
	case evalErr == nil && seen == len(keys) && (n.servers.cluster == nil || allChanged(gets)):
		return oneScript, nil
	case err != nil:
		return shardingUnknown, err
	}
	return separateScripts, nil
}

// allChanged reports whether single commands saw what changeKeys wrote.
func allChanged(gets []*redis.StringCmd) bool {
	return !slices.ContainsFunc(gets, func(get *redis.StringCmd) bool { return get.Val() != "2" })
}

// refusesUndeclared reports whether err comes from a server that runs no script with undeclared keys of
// several hash slots. The error about a single key that has just moved is not such an error.
func refusesUndeclared(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "ERR ") && !strings.Contains(reply.Error(), "non local key")
}

// shardingCheckKeys returns keys that are stored on the server of n and that no decision uses: the keys of
// decisions continue after the closing brace. Each key contains a random text, because the hash functions of
// some proxies (fnv1a_64) return nearly the same for texts that differ only in their last
// characters.
func (n *node) shardingCheckKeys(ctx context.Context, head string) []string {
	keys := make([]string, 0, shardingKeys)
	for range shardingTries {
		key := head + "~shard-" + strconv.FormatUint(rand.Uint64(), 36) + "}"
		if c := n.servers.cluster; c != nil {
			if client, err := c.MasterForKey(ctx, key); err != nil || client.Options().Addr != n.addr {
				continue
			}
		}
		if keys = append(keys, key); len(keys) == shardingKeys {
			break
		}
	}
	return keys
}
