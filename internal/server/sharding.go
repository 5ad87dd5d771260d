package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// What looks like one server may be a proxy before several, which routes a script by
// its first key and does not look at the others (twemproxy, Envoy in ring-hash mode).
// The other keys of a batch would then be counted on the wrong server, without any
// error. So before the first script with the keys of several decisions, Servers find
// out whether it would see them.
type sharding struct {
	state  atomic.Int32
	turn   chan struct{} // holds a token while one batch finds out
	failed time.Time     // when the last attempt failed; for the one that has the turn
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

func newSharding() sharding { return sharding{turn: make(chan struct{}, 1)} }

// apart reports whether it is known that no script may have the keys of several
// decisions.
func (s *Servers) apart() bool { return s.sharding.state.Load() == keysApart }

func (s *Servers) setApart() { s.sharding.state.Store(keysApart) }

// together reports whether one script may have the keys of several decisions. The
// first call finds out, with temporary keys that begin with head; others wait for it.
// It is false as long as the server replies with errors. The error is that of a
// server that does not reply.
func (s *Servers) together(ctx context.Context, head string) (bool, error) {
	if state := s.sharding.state.Load(); state != shardingUnknown {
		return state == keysTogether, nil
	}
	select {
	case s.sharding.turn <- struct{}{}:
		defer func() { <-s.sharding.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if state := s.sharding.state.Load(); state != shardingUnknown {
		return state == keysTogether, nil
	}
	client, ok := s.client.(*redis.Client)
	if !ok || time.Since(s.sharding.failed) < shardingPause {
		return false, nil
	}
	state, err := checkSharding(ctx, client, head)
	if state == shardingUnknown {
		s.sharding.failed = time.Now()
	}
	s.sharding.state.Store(state)
	if reply := redis.Error(nil); errors.As(err, &reply) {
		err = nil
	}
	return state == keysTogether, err
}

// countKeys returns how many of its keys a script sees.
const countKeys = `local seen = 0
for _, key in ipairs(KEYS) do
	if redis.call('GET', key) then
		seen = seen + 1
	end
end
return seen`

// checkSharding writes keys of several hash slots, each by a command of its own, and
// looks whether one script sees all of them. It needs no command that a decision
// does not need.
func checkSharding(ctx context.Context, client *redis.Client, head string) (int32, error) {
	keys := shardingCheckKeys(head)
	set, get, del := client.Pipeline(), client.Pipeline(), client.Pipeline()
	for _, k := range keys {
		set.Set(ctx, k, 1, shardingTTL)
		get.Get(ctx, k)
		del.Del(ctx, k)
	}
	if _, err := set.Exec(ctx); err != nil {
		return shardingUnknown, err
	}
	defer func() { _, _ = del.Exec(ctx) }() // they have a TTL
	seen, err := client.Eval(ctx, countKeys, keys).Int()
	switch {
	case hasCode(err, "CROSSSLOT"):
		return keysApart, nil
	case err != nil:
		return shardingUnknown, err
	case seen == len(keys):
		return keysTogether, nil
	}
	// They may also have been evicted or flushed since.
	if _, err := get.Exec(ctx); errors.Is(err, redis.Nil) {
		return shardingUnknown, nil
	} else if err != nil {
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
