package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
)

// maxWork is how many microseconds of Redis the decisions of one batch take together, about: Redis
// does nothing else meanwhile.
const maxWork = 1200

// otherWork is how many times as long a call takes that is no plain decision: 6 to 11 us for a
// limit, beside others in one script.
const otherWork = 3

type batcher = batch.Batcher[*Call]

const (
	// maxInFlight is how many calls and batches are in flight before others wait: light traffic
	// need not wait at all then, and on a slow network others wait for a fraction of a round trip.
	maxInFlight = 4
	// maxBatches is how many may be in flight once one of them is a batch, where round trips are
	// short: each batch is then twice as large. With one, server and process take turns in being
	// idle: at 64 callers two do 1.4 times as much, and four no more.
	maxBatches = 2
	// maxInFlightOfNode is maxInFlight of a node of a Cluster, which has only some of the callers.
	// With four its batches were half as large, and a decision of 64 callers on three nodes took a
	// quarter more of the CPU.
	maxInFlightOfNode = 2
)

// batcher returns the batcher of decisions for a server, or nil where each goes alone. Only of
// go-redis's Client and ClusterClient it is known which keys may be in one script or pipeline.
func (s *Store) batcher(sv *Server) *batcher {
	if s.MaxBatch == 1 {
		return nil
	}
	if s.servers.cluster == nil {
		if sv.apart() {
			return nil
		}
		return s.single
	}
	if sv == s.servers.whole {
		return nil // the Cluster's topology is not known yet
	}
	if b := (*s.byServer.Load())[sv]; b != nil {
		return b
	}
	return s.addBatcher(sv)
}

func (s *Store) addBatcher(sv *Server) *batcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byServer.Load()
	if b := old[sv]; b != nil {
		return b
	}
	next := maps.Clone(old)
	maps.DeleteFunc(next, func(sv *Server, _ *batcher) bool { return sv.gone.Load() })
	b := s.newBatcher(sv)
	next[sv] = b
	s.byServer.Store(&next)
	return b
}

func (s *Store) newBatcher(sv *Server) *batcher {
	most := batch.Bound{InFlight: maxInFlight, Batches: maxBatches, Calls: s.MaxBatch, Weight: maxWork, SpreadFrom: s.Timeout / 4}
	if s.servers.cluster != nil {
		most.InFlight = maxInFlightOfNode
	}
	return batch.New(most, s.work, func(ctx context.Context, members []*Call) error {
		if !sv.up() { // each member waits by itself, as long as it may
			return errNotUp
		}
		return s.send(ctx, sv, members, batch.Place[*Call]{}, nil)
	}, s.abandoned)
}

// work returns about how many microseconds of Redis a decision takes.
func (s *Store) work(d *Call) int64 {
	sum := int64(0)
	for o := d; o != nil; o = o.next {
		sum += o.Limits.work(o.N)
	}
	if !d.plain() {
		sum *= otherWork
	}
	return sum
}

// carry makes the calls of all members in one round trip: by one script where it may have the keys
// of all. If the server refuses that as a whole, each of them is to be sent alone. More calls than
// one script may make, which come from the background alone, take several. An error is that of all
// members. If it is nil, each member's err is its own.
func (s *Store) carry(ctx context.Context, sv *Server, members []*Call) error {
	switch {
	case len(members) == 1:
	case s.servers.cluster != nil && !sv.knownTogether():
		return s.runEach(ctx, sv, 1, members) // it runs no script with keys of several hash slots, or that is not known yet
	default:
		if together, err := sv.awaitSharding(ctx, s); err != nil {
			return err
		} else if !together {
			retryAlone(members)
			return nil
		}
		members = plainLast(members)
		if !members[len(members)-1].plain() && len(members) > s.perScript {
			return s.runEach(ctx, sv, s.perScript, members)
		}
	}
	script, args, keys := s.scriptOf(members)
	reply, err := script.run(ctx, s.servers.client, args, keys, s.Hooks.ScriptLoaded)
	if err = s.replied(sv, members, reply, err, len(members) == 1); len(members) == 1 {
		err = cmp.Or(err, members[0].err)
	}
	return err
}

// plainLast returns members in the order in which the script takes them.
func plainLast(members []*Call) []*Call {
	if !slices.ContainsFunc(members, func(d *Call) bool { return !d.plain() }) {
		return members
	}
	var plain, others []*Call
	for _, m := range members {
		if m.plain() {
			plain = append(plain, m)
		} else {
			others = append(others, m)
		}
	}
	return append(others, plain...)
}

// A pipeliner is a client that sends several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// pipelined sends the commands that queue adds, over a connection of the pool that single commands
// have, too: that of a Watch of no keys. go-redis 9.23 has another pool for pipelines: its first
// connection to a server far away takes longer than a batch has.
func pipelined(ctx context.Context, client pipeliner, queue func(redis.Pipeliner)) error {
	if c, ok := client.(*redis.Client); ok {
		return c.Watch(ctx, func(tx *redis.Tx) error { return pipelined(ctx, tx, queue) })
	}
	pipe := client.Pipeline()
	queue(pipe)
	_, err := pipe.Exec(ctx)
	return err
}

// runEach makes the calls of members in one round trip, by a script for each so many of them.
func (s *Store) runEach(ctx context.Context, sv *Server, size int, members []*Call) error {
	client, ok := s.servers.client.(pipeliner)
	if !ok {
		return fmt.Errorf("a batch over a client of type %T", s.servers.client) // not reached: see batcher
	}
	chunks := slices.Collect(slices.Chunk(members, size))
	cmds, scripts := make([]onceCmd, len(chunks)), make([]script, len(chunks))
	err := pipelined(ctx, client, func(pipe redis.Pipeliner) {
		for i, chunk := range chunks {
			script, args, keys := s.scriptOf(chunk)
			cmds[i], scripts[i] = script.command(ctx, args, keys), script
			_ = pipe.Process(ctx, cmds[i]) // it only queues the command
		}
	})
	replied := false
	for i, chunk := range chunks {
		failed := cmds[i].Err()
		if failed == nil && cmds[i].Val() == nil { // a hook of the client gave an error to nobody but Exec
			failed = err
		}
		if size == 1 && diagnose.HasCode(failed, "NOSCRIPT") { // to send scripts one after the other would take many round trips
			retryAlone(chunk)
			replied = true
			continue
		}
		reply, failed := scripts[i].reply(ctx, s.servers.client, cmds[i], failed, s.Hooks.ScriptLoaded)
		if failed = s.replied(sv, chunk, reply, failed, false); failed == nil {
			replied = true
			continue
		}
		err = failed
		failed = &partError{failed}
		for _, m := range chunk {
			m.err = failed
		}
	}
	if replied {
		return nil
	}
	return err
}

// A partError is that of all members of one of several scripts.
type partError struct{ error }

// replied reads the reply to the calls of members, or the error that came instead. The error of one
// that goes alone is returned.
func (s *Store) replied(sv *Server, members []*Call, reply []int64, err error, alone bool) error {
	switch {
	case err == nil:
		left := reply
		for _, m := range members {
			limits, bans, rest, err := algorithm.SplitReply(left, len(s.members), s.bans)
			if err != nil {
				return err
			}
			m.err, left = m.decode(limits, bans, len(limits)/len(s.members), alone), rest
		}
		if len(left) > 0 {
			return algorithm.UnexpectedLength(len(reply), len(reply)-len(left))
		}
		return nil
	case !alone && refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			sv.setApart()
		}
		retryAlone(members)
		return nil
	}
	return err
}

func retryAlone(members []*Call) {
	for _, m := range members {
		m.err = batch.ErrRetryAlone
	}
}

// refused reports whether the server has run nothing, because of one of the keys. What it refuses
// to a script that runs has another code.
func refused(err error) bool { return diagnose.HasCode(err, "CROSSSLOT", "NOPERM", "TRYAGAIN") }
