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

// maxWork bounds the estimated time that Redis spends on one script for several calls, in microseconds.
// During that time, Redis does nothing else.
const maxWork = 1200

// nonPlainFactor multiplies the estimated time for a call that is not a plain decision (see Call.plain).
// In a script with other calls, such a call takes 6 to 11 µs for each limit.
const nonPlainFactor = 3

type batcher = batch.Batcher[*Call]

const (
	// maxInFlight is how many calls and batches may be in flight before further calls wait. With this
	// number, light traffic does not wait at all, and on a slow network calls wait for a fraction of a
	// round trip.
	maxInFlight = 4
	// maxBatches replaces maxInFlight as batch.Bound.Batches says; each batch is then twice as large.
	// If only one batch could be in flight, the server and this process would take turns being idle.
	// With 64 callers, two batches in flight have 1.4 times the throughput of one, and four have no
	// more than two.
	maxBatches = 2
	// maxInFlightOfNode replaces maxInFlight for a node of a Cluster, which serves only some of the
	// callers. With maxInFlight, the batches were half as large, and the decisions of 64 callers on
	// three nodes took a quarter more CPU time.
	maxInFlightOfNode = 2
)

// batcher returns the batcher of the decisions for a server, or nil if each decision must be sent
// alone. Only a redis.Client and a redis.ClusterClient have batches: for other clients, it is not
// known which keys one script or pipeline may have.
func (s *Store) batcher(n *node) *batcher {
	if s.MaxBatch == 1 {
		return nil
	}
	if s.servers.cluster == nil {
		if n.needsSeparateScripts() {
			return nil
		}
		return s.single
	}
	if n == s.servers.whole {
		return nil // the Cluster's topology is not known yet
	}
	if b := (*s.byServer.Load())[n]; b != nil {
		return b
	}
	return s.addBatcher(n)
}

// addBatcher returns the batcher of a node, and makes it if there is none yet. It forgets the batchers
// of nodes that have left the Cluster.
func (s *Store) addBatcher(n *node) *batcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := *s.byServer.Load()
	if b := old[n]; b != nil {
		return b
	}
	next := maps.Clone(old)
	maps.DeleteFunc(next, func(n *node, _ *batcher) bool { return n.gone.Load() })
	b := s.newBatcher(n)
	next[n] = b
	s.byServer.Store(&next)
	return b
}

// newBatcher returns a batcher of the decisions that n makes.
func (s *Store) newBatcher(n *node) *batcher {
	bound := batch.Bound{
		InFlight: maxInFlight, Batches: maxBatches, Calls: s.MaxBatch, Weight: maxWork,
		SpreadFrom: s.Timeout / 4, // with a longer round trip, waiting for another batch first would take most of the caller's time
	}
	if s.servers.cluster != nil {
		bound.InFlight = maxInFlightOfNode
	}
	return batch.New(bound, s.work, func(ctx context.Context, calls []*Call) error {
		if !n.up() { // the callers of this batch get errNotUp at once; each decides on its own whether to wait, in doWhenUp
			return errNotUp
		}
		return s.send(ctx, n, calls, batch.Place[*Call]{}, nil)
	}, s.delayClose, func(d *Call, err error) {
		defer s.allowClose()
		s.callerLeft(d, err)
	})
}

// work estimates how many microseconds Redis takes for d and the calls that are made together with it.
func (s *Store) work(d *Call) int64 {
	sum := int64(0)
	for o := d; o != nil; o = o.next {
		sum += o.Limits.work(o.N)
	}
	if !d.plain() {
		sum *= nonPlainFactor
	}
	return sum
}

// execute makes calls in one round trip:
//
//   - A lone call is made by one script.
//   - Several calls are made by one script if one script may have all their keys. If the server
//     refuses the script, each call gets ErrRetryAlone.
//   - On a node of a Cluster, several calls are made by a pipeline of scripts, one for each call,
//     unless it is known that one script may have all their keys.
//   - On any other server, if it is not known that one script may have all their keys, the sharding check
//     finds this out first. If it finds that one script may not have them, or fails with a reply of the
//     server, or has failed in the last second (shardingPause), nothing is sent, and execute returns
//     ErrRetryAlone. If the server does not reply to the check, execute returns another error.
//   - If one script may have all their keys, but no call is a plain decision, and there are more calls
//     than one script may make, they are made by a pipeline of scripts with up to perScript calls each.
//     Only calls in the background are that many.
//
// An error that execute returns applies to all calls. If execute returns nil, the field err of each
// call has the error of the call alone, which may be nil.
func (s *Store) execute(ctx context.Context, n *node, calls []*Call) error {
	switch {
	case len(calls) == 1: // a lone call is sent after the switch
	case s.servers.cluster != nil && !n.allowsOneScript():
		n.checkSharding(ctx, s)                  // so that later batches may be one script
		return s.sendPipelined(ctx, n, 1, calls) // the keys of each call have one hash slot
	default:
		if oneScript, err := n.awaitSharding(ctx, s); err != nil {
			return err
		} else if !oneScript {
			return batch.ErrRetryAlone
		}
		calls = plainLast(calls)
		nonePlain := !calls[len(calls)-1].plain()
		if nonePlain && len(calls) > s.perScript {
			return s.sendPipelined(ctx, n, s.perScript, calls)
		}
	}
	script, args, keys := s.scriptOf(calls)
	reply, err := script.eval(ctx, s.servers.client, args, keys, s.Hooks.ScriptLoaded)
	lone := len(calls) == 1
	if err = s.replied(n, calls, reply, err, lone); lone {
		err = cmp.Or(err, calls[0].err)
	}
	return err
}

// plainLast returns calls in the order that scripts expect: plain decisions come last.
func plainLast(calls []*Call) []*Call {
	if !slices.ContainsFunc(calls, func(d *Call) bool { return !d.plain() }) {
		return calls
	}
	var plain, others []*Call
	for _, m := range calls {
		if m.plain() {
			plain = append(plain, m)
		} else {
			others = append(others, m)
		}
	}
	return append(others, plain...)
}

// A pipeliner is a client that can send several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// pipelined sends the commands that queue adds. For a redis.Client, it uses the connection of a
// transaction that watches no keys: such a connection comes from the same pool as the connections
// of single commands. Since version 9.23, go-redis has another pool for pipelines, and the first
// connection of that pool to a distant server would take longer than a batch may.
func pipelined(ctx context.Context, client pipeliner, queue func(redis.Pipeliner)) error {
	if c, ok := client.(*redis.Client); ok {
		return c.Watch(ctx, func(tx *redis.Tx) error { return pipelined(ctx, tx, queue) })
	}
	pipe := client.Pipeline()
	queue(pipe)
	_, err := pipe.Exec(ctx)
	return err
}

// sendPipelined makes calls in one round trip by several scripts, each of which makes up to size calls. (A
// script of several calls that Redis does not know takes a round trip more.) If Redis has replied to at
// least one script, sendPipelined returns nil, and the field err of each call has its error; the calls in
// a script that failed have a partError. Otherwise it returns an error that applies to all calls.
func (s *Store) sendPipelined(ctx context.Context, n *node, size int, calls []*Call) error {
	client, ok := s.servers.client.(pipeliner)
	if !ok {
		return fmt.Errorf("a batch over a client of type %T", s.servers.client) // not reached: see batcher
	}
	chunks := slices.Collect(slices.Chunk(calls, size))
	cmds, scripts := make([]onceCmd, len(chunks)), make([]script, len(chunks))
	pipeErr := pipelined(ctx, client, func(pipe redis.Pipeliner) {
		for i, chunk := range chunks {
			script, args, keys := s.scriptOf(chunk)
			cmds[i], scripts[i] = script.command(ctx, args, keys), script
			_ = pipe.Process(ctx, cmds[i]) // it only queues the command
		}
	})
	lastErr, replied := pipeErr, false
	for i, chunk := range chunks {
		err := cmds[i].Err()
		if err == nil && cmds[i].Val() == nil { // a hook of the client has returned an error that go-redis did not set on the commands
			err = lastErr
		}
		if size == 1 && diagnose.HasCode(err, "NOSCRIPT") { // sending the whole scripts one after the other would take many round trips
			setRetryAlone(chunk)
			replied = true
			continue
		}
		reply, err := scripts[i].reply(ctx, s.servers.client, cmds[i], err, s.Hooks.ScriptLoaded)
		if err = s.replied(n, chunk, reply, err, false); err == nil {
			replied = true
			continue
		}
		lastErr = err
		part := &partError{err}
		for _, d := range chunk {
			d.err = part
		}
	}
	if replied {
		return nil
	}
	return lastErr
}

// A partError is the error of all calls in one of several scripts of a round trip.
type partError struct{ error }

// replied reads the reply to the script that made calls, or handles the error that came instead. If the
// server refused the script, each call gets ErrRetryAlone, and replied returns nil. lone says that the
// round trip had only one call. That call never gets ErrRetryAlone: replied returns the error instead.
func (s *Store) replied(n *node, calls []*Call, reply []int64, err error, lone bool) error {
	switch {
	case err == nil:
		left := reply
		for _, d := range calls {
			limits, bans, rest, err := algorithm.SplitReply(left, len(s.limits), s.limitersWithBans)
			if err != nil {
				return err
			}
			d.err, left = d.decode(limits, bans, len(limits)/len(s.limits), lone), rest
		}
		if len(left) > 0 {
			return algorithm.UnexpectedLength(len(reply), len(reply)-len(left))
		}
		return nil
	case !lone && refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			n.setSeparateScripts()
		}
		setRetryAlone(calls)
		return nil
	}
	return err
}

// setRetryAlone records that each of calls must be sent again, alone.
func setRetryAlone(calls []*Call) {
	for _, d := range calls {
		d.err = batch.ErrRetryAlone
	}
}

// refused reports whether the server has refused a script before the script ran, in most cases because of one
// of its keys. If a command of a running script is refused, the error has another code.
func refused(err error) bool { return diagnose.HasCode(err, "CROSSSLOT", "NOPERM", "TRYAGAIN") }
