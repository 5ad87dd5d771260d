package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
)

// maxWork is how many microseconds of Redis the decisions of one batch take together,
// about: Redis does nothing else meanwhile.
const maxWork = 1200

// otherWork is how many times as long a call takes that is no plain decision: 6 to 11 us for a
// limit, beside others in one script.
const otherWork = 3

type (
	batcher = batch.Batcher[*Decision]
	member  = batch.Member[*Decision]
)

// work returns about how many microseconds of Redis a decision takes.
func (s *Store) work(d *Decision) int64 {
	sum := int64(0)
	for o := d; o != nil; o = o.next {
		sum += o.Limits.work(o.N)
	}
	if !d.plain() {
		sum *= otherWork
	}
	return sum * int64(d.calls())
}

// runBatch makes the calls of all members in one round trip.
func (s *Store) runBatch(ctx context.Context, sv *Server, members []*member) error {
	begun, call := time.Now(), s.callContext(ctx, sv)
	run := func() error {
		if s.servers.cluster != nil && !sv.knownTogether() {
			return s.runEach(call, sv, slices.Collect(slices.Chunk(members, 1))) // it runs no script with keys of several hash slots, or that is not known yet
		}
		return s.runScript(call, sv, members)
	}
	err := s.waitFor(ctx, sv, run, members)
	if batch.Panicked(err) { // a hook of the client, and the caller that is to recover may have left
		if s.Hooks.CallFailed != nil {
			s.Hooks.CallFailed(ctx, batch.Contain(err), false)
		}
		s.leaveAll(members, batch.Contain(err))
		return err
	}
	if err = s.finish(ctx, sv, members[0].Call, err, begun); err != nil {
		s.leaveAll(members, err)
		return err // and an abandoned call may still write to the members
	}
	s.finishEach(ctx, sv, members, begun)
	return nil
}

// waitFor waits until run has ended, for the timeout at most: a client that does not end a call with its
// context is not waited for any longer, nor a connection to a server that is far.
func (s *Store) waitFor(ctx context.Context, sv *Server, run func() error, members []*member) error {
	if s.servers.ctxDeadlines && !sv.far.Load() {
		return batch.Catch(run)
	}
	begun := time.Now()
	return batch.Catch(func() error {
		return batch.Beside(s.deadlines.with(ctx), run, func(err error) {
			if err == nil {
				sv.answered(s, begun, members[0].Call)
			}
			s.leaveAll(members, err)
		})
	})
}

// leaveAll frees what is held for members that all got an error, or whose reply comes too late.
func (s *Store) leaveAll(members []*member, err error) {
	for _, m := range members {
		if err != nil {
			s.leftBehind(m.Call, err)
		} else {
			s.leftBehind(m.Call, m.Err)
		}
	}
}

// finishEach finishes each member that has an error of its own. That of a script is one failure of the server, and not one for
// each of its calls.
func (s *Store) finishEach(ctx context.Context, sv *Server, members []*member, begun time.Time) {
	var last, finished error
	for _, m := range members {
		if m.Err == nil || errors.Is(m.Err, batch.ErrRetryAlone) {
			continue
		}
		var p *scriptError // it escapes: not declared for those without an error
		if !errors.As(m.Err, &p) {
			m.Err = s.finish(ctx, sv, m.Call, m.Err, begun)
		} else {
			if last != error(p) {
				last, finished = p, s.finish(ctx, sv, m.Call, p.error, begun)
			}
			m.Err = finished
		}
		s.leftBehind(m.Call, m.Err)
	}
}

// A scriptError is that of all calls of one of several scripts.
type scriptError struct{ error }

// runScript makes the calls of all members by one script, which may have the keys of all. If the server refuses it as a whole,
// each member is to be sent alone. What is done in the background may take several scripts.
func (s *Store) runScript(ctx context.Context, sv *Server, members []*member) error {
	if len(members) > 1 {
		if together, err := sv.together(ctx, s); err != nil {
			return err
		} else if !together {
			retryAlone(members)
			return nil
		}
	}
	members = plainLast(members)
	if len(members) > s.perScript && !members[len(members)-1].Call.plain() {
		return s.runEach(ctx, sv, slices.Collect(slices.Chunk(members, s.perScript)))
	}
	script, args, keys := s.scriptOf(members)
	reply, err := script.run(ctx, s.servers.client, args, keys, s.Hooks.ScriptLoaded)
	return s.replied(sv, members, reply, err)
}

// scriptOf returns the script that makes the calls of members, its arguments, and how many keys they have.
func (s *Store) scriptOf(members []*member) (script script, args []any, keys int) {
	mixed := false
	for _, m := range members {
		keys += m.Call.keys()
		mixed = mixed || !m.Call.sameLimits(members[0].Call)
	}
	switch args = s.batchArgs(members, mixed); {
	case mixed:
		script = s.mixedScript
	case len(members) > 1:
		script = s.batchScript
	default:
		script = s.script // a Cluster is to redirect it if its slot has moved
	}
	return script, args, keys
}

// plainLast returns members in the order in which the script takes them.
func plainLast(members []*member) []*member {
	first := slices.IndexFunc(members, func(m *member) bool { return m.Call.plain() })
	if first < 0 || !slices.ContainsFunc(members[first:], func(m *member) bool { return !m.Call.plain() }) {
		return members
	}
	sorted, plain := make([]*member, 0, len(members)), make([]*member, 0, len(members))
	for _, m := range members {
		if m.Call.plain() {
			plain = append(plain, m)
		} else {
			sorted = append(sorted, m)
		}
	}
	return append(sorted, plain...)
}

// A pipeliner is a client that sends several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

// runEach makes the calls of several scripts in one round trip.
func (s *Store) runEach(ctx context.Context, sv *Server, each [][]*member) error {
	client, ok := s.servers.client.(pipeliner)
	if !ok {
		return fmt.Errorf("a batch over a client of type %T", s.servers.client) // not reached: see batcher
	}
	pipe := client.Pipeline()
	cmds, scripts := make([]onceCmd, len(each)), make([]script, len(each))
	for i, members := range each {
		script, args, keys := s.scriptOf(members)
		cmds[i], scripts[i] = script.command(ctx, args, keys), script
		_ = pipe.Process(ctx, cmds[i]) // it only queues the command
	}
	_, err := pipe.Exec(ctx)
	replied := false
	for i, members := range each {
		failed := cmds[i].Err()
		if failed == nil && cmds[i].Val() == nil { // a hook of the client gave an error to nobody but Exec
			failed = err
		}
		if len(members) == 1 && hasCode(failed, "NOSCRIPT") { // to send scripts one after the other would take many round trips
			retryAlone(members)
			replied = true
			continue
		}
		reply, failed := scripts[i].reply(ctx, s.servers.client, cmds[i], failed, s.Hooks.ScriptLoaded)
		if failed = s.replied(sv, members, reply, failed); failed == nil {
			replied = true
			continue
		}
		err = failed
		failed = &scriptError{failed}
		for _, m := range members {
			m.Err = failed
		}
	}
	if replied {
		return nil
	}
	return err
}

// replied reads the reply to the calls of members, or the error that came instead.
func (s *Store) replied(sv *Server, members []*member, reply []int64, err error) error {
	switch {
	case err == nil:
		all := reader{left: reply}
		for _, m := range members {
			m.Err = m.Call.decode(&all)
		}
		return all.ended()
	case refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			sv.setApart()
		}
		retryAlone(members)
		return nil
	}
	return err
}

func retryAlone(members []*member) {
	for _, m := range members {
		m.Err = batch.ErrRetryAlone
	}
}

// refused reports whether the server has run nothing, because of one of the keys. What it
// refuses to a script that runs has another code.
func refused(err error) bool { return hasCode(err, "CROSSSLOT", "NOPERM", "TRYAGAIN") }
