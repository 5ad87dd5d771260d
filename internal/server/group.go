package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// costly is how many units make a decision go alone: a sliding window log takes
// time for each, and others are not to wait for it.
const costly = 100

type (
	batcher = batch.Batcher[decision]
	member  = batch.Member[decision]
)

// groups has the batcher of each server.
type groups struct {
	store    *Store
	maxBatch int
	single   *batcher             // of one server
	cluster  *redis.ClusterClient // or of a Cluster
	byNode   sync.Map             // *redis.Client of a node to *batcher

	topologyKnown atomic.Bool // of the Cluster
	crossSlot     atomic.Bool // a script cannot have keys of several hash slots
}

// newGroups returns nil where decisions cannot share a round trip: only of
// go-redis's own clients it is known which keys may be in one script or pipeline.
func newGroups(s *Store, client Client, maxBatch int) *groups {
	if maxBatch == 1 {
		return nil
	}
	g := &groups{store: s, maxBatch: maxBatch}
	switch c := client.(type) {
	case *redis.Client:
		g.single = batch.New(maxBatch, g.run)
	case *redis.ClusterClient:
		g.cluster = c
	default:
		return nil
	}
	return g
}

// batcher returns the batcher for a decision, or nil for one that goes alone.
func (g *groups) batcher(ctx context.Context, d decision) *batcher {
	if g == nil || d.n > costly || g.crossSlot.Load() {
		return nil
	}
	if g.cluster == nil {
		return g.single
	}
	if !g.topologyKnown.Load() {
		return nil // MasterForKey would make a call of its own, and take as long as it likes
	}
	node, err := g.cluster.MasterForKey(ctx, g.store.slotKey(d.key))
	if err != nil {
		return nil // alone it gets the same error
	}
	found, ok := g.byNode.Load(node)
	if !ok {
		found, _ = g.byNode.LoadOrStore(node, batch.New(g.maxBatch, g.run))
	}
	return found.(*batcher) //nolint:forcetypeassert // nothing else is stored
}

// markTopologyKnown notes that the Cluster has answered a call.
func (g *groups) markTopologyKnown() {
	if g != nil && g.cluster != nil {
		g.topologyKnown.Store(true)
	}
}

// run carries out a batch whose first decision has waited since an instant.
func (g *groups) run(ctx context.Context, since time.Time, members []*member) error {
	b := g.store.breaker
	err := b.call(ctx, b.timeout-time.Since(since), func(ctx context.Context) error {
		if g.cluster != nil {
			return g.runPipeline(ctx, members)
		}
		return g.runScript(ctx, members)
	})
	if err != nil {
		return err
	}
	for _, m := range members {
		if m.Err != nil && !errors.Is(m.Err, batch.ErrRetryAlone) {
			m.Err = b.record(ctx, m.Err)
		}
	}
	return nil
}

// runScript decides on all members in one script. Nothing is undone where the
// reply is lost; where the server refuses the script as a whole, each is to be sent
// alone.
func (g *groups) runScript(ctx context.Context, members []*member) error {
	s := g.store
	args := make([]any, scriptArgs, scriptArgs+len(s.constants)+len(members)*(1+3*len(s.tails)))
	first, alike := members[0].Call, true
	for _, m := range members {
		args = s.appendKeys(args, m.Call.key)
		alike = alike && m.Call.n == first.n && m.Call.charge == first.charge
	}
	args = append(args, s.constants...)
	for _, m := range members {
		args = s.appendCost(args, m.Call)
		if alike {
			break // once for all
		}
	}
	reply, err := s.decide.run(ctx, s.client, args, len(members)*len(s.tails), s.hooks.ScriptLoaded)
	switch {
	case err == nil:
		return g.decode(reply, members)
	case refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			g.crossSlot.Store(true)
		}
		for _, m := range members {
			m.Err = batch.ErrRetryAlone
		}
		return nil
	}
	return err
}

// refused reports whether the server has run nothing, because of one of the keys.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "CROSSSLOT") || redis.HasErrorPrefix(err, "NOPERM")
}

func (g *groups) decode(reply []int64, members []*member) error {
	limits := g.store.limits
	size := algorithm.ReplyLen(len(limits))
	if len(reply) != size*len(members) {
		return algorithm.UnexpectedLength(len(reply), size*len(members))
	}
	for i, m := range members {
		part := reply[i*size : (i+1)*size]
		if algorithm.Failed(part) {
			m.Err = batch.ErrRetryAlone
		} else {
			m.Err = algorithm.DecodeReply(part, limits, m.Call.answers)
		}
	}
	return nil
}

// runPipeline decides on each member in a script of its own, all in one pipeline
// to the server that has them. It returns an error only if no script got a reply.
func (g *groups) runPipeline(ctx context.Context, members []*member) error {
	s := g.store
	pipe := g.cluster.Pipeline()
	cmds := make([]onceCmd, len(members))
	for i, m := range members {
		cmds[i] = s.decide.command(ctx, s.args(m.Call), len(s.tails))
		_ = pipe.Process(ctx, cmds[i]) // it only queues the command
	}
	_, err := pipe.Exec(ctx)
	for i, m := range members {
		switch cmd := cmds[i]; {
		case cmd.Err() == nil:
			m.Err = algorithm.DecodeReply(cmd.Val(), s.limits, m.Call.answers)
			err = nil
		case redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"):
			m.Err = batch.ErrRetryAlone
			err = nil
		default:
			m.Err = cmd.Err()
		}
	}
	return err
}
