package core

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

const (
	// defaultTogether is how many decisions share a round trip at most, unless told.
	// Redis does nothing else meanwhile, for about half a millisecond where each costs
	// one unit.
	defaultTogether = 128
	// costly is how many units make a decision go alone: a SlidingWindowLog takes time
	// for each, and others are not to wait for it.
	costly = 100
)

// Coalesce sets how many decisions of this process may share a round trip to
// Redis, from 1 (none share) to 1000. The default is 128. A decision goes at once,
// alone, while few are under way; beyond four of them others wait for one to
// return, and then go together, in the order in which they came. So nobody waits
// for longer than a round trip besides the own, and under load Redis and this
// process do less than half of the work.
//
// On one server what goes together is one script run over many keys; on a Cluster
// it is a pipeline to each node. A server that refuses keys of several hash slots
// in one script, as a proxy before a Cluster does, is noticed. Where a proxy
// shards by the first key of a script without looking at the others, as twemproxy
// does, set it to 1. With clients other than *redis.Client and
// *redis.ClusterClient nothing is shared.
func Coalesce(most int) Option {
	return optionFunc(func(c *config) {
		c.set("Coalesce", inRedis)
		if most < 1 || most > 1000 {
			c.failf("Coalesce(%d): allowed is 1 to 1000", most)
		}
		c.together = most
	})
}

// lanes has the lane to each server.
type lanes struct {
	store   *redisStore
	fly     flyFunc
	most    int
	cluster *redis.ClusterClient // nil: one server, and one lane
	one     *lane
	byNode  sync.Map // of lanes, by the node's *redis.Client
	met     atomic.Bool
}

// newLanes returns nil where nothing can be shared: what is known about keys that
// may stand in one script or pipeline is known of go-redis's own clients.
func newLanes(store *redisStore, client Client, most int, fly flyFunc) *lanes {
	if most == 1 {
		return nil
	}
	l := &lanes{store: store, fly: fly, most: most}
	switch c := client.(type) {
	case *redis.Client:
		l.one = &lane{most: most, fly: fly}
	case *redis.ClusterClient:
		l.cluster = c
	default:
		return nil
	}
	return l
}

// of returns the lane for a decision, or nil for one that goes alone.
func (l *lanes) of(ctx context.Context, key string, n int64) *lane {
	if l == nil || n > costly || l.store.apart.Load() {
		return nil
	}
	if l.cluster == nil {
		return l.one
	}
	if !l.met.Load() {
		return nil
	}
	node, err := l.cluster.MasterForKey(ctx, l.store.slot(key))
	if err != nil {
		return nil // alone it meets with the same error
	}
	found, ok := l.byNode.Load(node)
	if !ok {
		found, _ = l.byNode.LoadOrStore(node, &lane{most: l.most, fly: l.fly})
	}
	return found.(*lane) //nolint:forcetypeassert // nothing else is stored
}

// meet notes that the Cluster has answered: its nodes are known from then on.
// Before that to ask for the node of a key is a call of its own, which would take
// as long as it likes.
func (l *lanes) meet() {
	if l != nil && l.cluster != nil {
		l.met.Store(true)
	}
}
