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

// maxWork bounds the estimated time that Redis spends on one batch, in microseconds. Redis does
// nothing else meanwhile.
const maxWork = 1200

// nonPlainFactor is how many times as long a call takes if it is no plain decision: 6 to 11 us for
// each limit, in a script with other calls.
const nonPlainFactor = 3

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

// batcher returns the batcher of decisions for a server, or nil if each decision is sent alone.
// Batches are only for go-redis's Client and ClusterClient: for other clients it is not known which
// keys may be in one script or pipeline.
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

func (s *Store) newBatcher(n *node) *batcher {
	most := batch.Bound{
		InFlight: maxInFlight, Batches: maxBatches, Calls: s.MaxBatch, Weight: maxWork,
		SpreadFrom: s.Timeout / 4, // beyond that, waiting for one round trip before another takes most of a caller's time
	}
	if s.servers.cluster != nil {
		most.InFlight = maxInFlightOfNode
	}
	return batch.New(most, s.work, func(ctx context.Context, calls []*Call) error {
		if !n.up() { // each caller waits by itself: see doWhenUp
			return errNotUp
		}
		return s.send(ctx, n, calls, batch.Place[*Call]{}, nil)
	}, s.callerLeft)
}

// work estimates how many microseconds of Redis a call takes.
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

// execute makes calls in one round trip: by one script if it may have all their keys. If the server
// refuses that, each call gets ErrRetryAlone. Calls in the background may be more than one script
// may make; they take several scripts. The error that execute returns is that of all calls; after
// nil, each call has its own.
func (s *Store) execute(ctx context.Context, n *node, calls []*Call) error {
	switch {
	case len(calls) == 1: // below
	case s.servers.cluster != nil && !n.allowsOneScript():
		n.checkSharding(ctx, s)                  // so that later batches may be one script
		return s.sendPipelined(ctx, n, 1, calls) // the keys of each call have one hash slot
	default:
		if oneScript, err := n.awaitSharding(ctx, s); err != nil {
			return err
		} else if !oneScript {
			setRetryAlone(calls)
			return nil
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

// plainLast returns calls in the order in which scripts take them: plain decisions are the last.
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

// A pipeliner is a client that sends several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// pipelined sends the commands that queue adds, over the connections that single commands use, too:
// it watches no keys. go-redis 9.23 has another pool for pipelines, and the first connection of
// that pool to a distant server would take longer than a batch may.
func pipelined(ctx context.Context, client pipeliner, queue func(redis.Pipeliner)) error {
	if c, ok := client.(*redis.Client); ok {
		return c.Watch(ctx, func(tx *redis.Tx) error { return pipelined(ctx, tx, queue) })
	}
	pipe := client.Pipeline()
	queue(pipe)
	_, err := pipe.Exec(ctx)
	return err
}

// sendPipelined makes calls in one round trip by several scripts, each for size of them.
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
		if err == nil && cmds[i].Val() == nil { // a hook of the client gave an error to nobody but Exec
			err = lastErr
		}
		if size == 1 && diagnose.HasCode(err, "NOSCRIPT") { // to send scripts one after the other would take many round trips
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

// replied reads the reply to calls, or the error that came instead. If the server refused calls
// that shared a script, each of them gets ErrRetryAlone, and replied returns nil. A lone call is
// not refused so.
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

// setRetryAlone makes each of calls be sent again, alone.
func setRetryAlone(calls []*Call) {
	for _, d := range calls {
		d.err = batch.ErrRetryAlone
	}
}

// refused reports whether the server has refused a script before it ran, because of one of its
// keys. If a command in a running script is refused, the error has another code.
func refused(err error) bool { return diagnose.HasCode(err, "CROSSSLOT", "NOPERM", "TRYAGAIN") }
