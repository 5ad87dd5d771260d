package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// maxWork is how many microseconds of Redis the decisions of one batch take together,
// about: Redis does nothing else meanwhile.
const maxWork = 1200

// holdWork is how many times as long a call of the script hold takes: 6 to 11 us for a
// limit, beside others in one script.
const holdWork = 3

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
	if s.needsHold(d) {
		sum *= holdWork
	}
	return sum * int64(d.calls())
}

// runBatch makes the calls of all members in one round trip.
func (s *Store) runBatch(ctx context.Context, sv *Server, members []*member) error {
	begun, call := time.Now(), s.callContext(ctx, sv)
	run := func() error {
		if s.servers.cluster != nil && !sv.knownTogether() {
			return s.runParts(call, sv, s.lone(members)) // it runs no script with keys of several hash slots, or that is not known yet
		}
		return s.runScripts(call, sv, members)
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

// finishEach finishes each member that has an error of its own. That of a part is one
// failure of the server, and not one for each of its members.
func (s *Store) finishEach(ctx context.Context, sv *Server, members []*member, begun time.Time) {
	var finished map[*partError]error
	for _, m := range members {
		if m.Err == nil || errors.Is(m.Err, batch.ErrRetryAlone) {
			continue
		}
		var p *partError // it escapes: not declared for those without an error
		switch {
		case errors.As(m.Err, &p):
			if _, known := finished[p]; !known {
				if finished == nil {
					finished = make(map[*partError]error)
				}
				finished[p] = s.finish(ctx, sv, m.Call, p.error, begun)
			}
			m.Err = finished[p]
			s.leftBehind(m.Call, m.Err)
		default:
			m.Err = s.finish(ctx, sv, m.Call, m.Err, begun)
			s.leftBehind(m.Call, m.Err)
		}
	}
}

// scripts are those for several decisions.
type scripts struct{ decide, decideEach, hold script }

func (s *Store) newBatchScripts() scripts {
	undeclared := s.servers.cluster != nil // of a Cluster, their keys are of several hash slots
	var each scripts
	form, members := s.form, s.members
	form.Undeclared = undeclared
	each.hold = newScript(algorithm.HoldScript(members, form), undeclared)
	if !s.alwaysHold {
		each.decide = newScript(algorithm.DecideScript(members, form), undeclared)
		form.Own = true
		each.decideEach = newScript(algorithm.DecideScript(members, form), undeclared)
	}
	return each
}

// A part is the members of a batch that go in one script.
type part struct {
	needsHold bool
	mixed     bool // of limits with different numbers
	lone      bool // one of many, each with a script of its own
	members   []*member
}

// scriptOf returns the script for p. Where there is one decision only, a Cluster is to
// redirect it if its slot has moved.
func (s *Store) scriptOf(p part) script {
	one := len(p.members) == 1
	switch {
	case p.needsHold && one:
		return s.holdScript
	case p.needsHold:
		return s.batchScripts.hold
	case p.mixed:
		return s.batchScripts.decideEach
	case one:
		return s.decideScript
	}
	return s.batchScripts.decide
}

// keys returns how many Redis keys the members have.
func (p part) keys() int {
	sum := 0
	for _, m := range p.members {
		sum += m.Call.keys()
	}
	return sum
}

// runScripts makes the calls of all members in one round trip, where one script may have the
// keys of all. Plain decisions share one script. Calls that need holds go in one more script for
// each Limits: with that a plain decision took about twice as long. If the server refuses a
// script as a whole, each of its members is to be sent alone. It returns an error only if no
// script got a reply.
func (s *Store) runScripts(ctx context.Context, sv *Server, members []*member) error {
	if len(members) > 1 {
		if together, err := sv.together(ctx, s); err != nil {
			return err
		} else if !together {
			retryAlone(members)
			return nil
		}
	}
	parts := s.parts(members)
	if len(parts) == 1 {
		return s.runPart(ctx, sv, parts[0])
	}
	return s.runParts(ctx, sv, parts)
}

// parts divides members by the scripts that they take.
func (s *Store) parts(members []*member) []part {
	plain := part{members: make([]*member, 0, len(members))}
	var held []part
	for _, m := range members {
		if !s.needsHold(m.Call) {
			if len(plain.members) > 0 && !m.Call.sameLimits(plain.members[0].Call) {
				plain.mixed = true
			}
			plain.members = append(plain.members, m)
			continue
		}
		i := slices.IndexFunc(held, func(p part) bool {
			return len(p.members) < s.perScript && p.members[0].Call.sameLimits(m.Call)
		})
		if i < 0 {
			i, held = len(held), append(held, part{needsHold: true})
		}
		held[i].members = append(held[i].members, m)
	}
	if len(plain.members) == 0 {
		return held
	}
	return append([]part{plain}, held...) // holds that are made after them do not concern plain decisions
}

// lone returns a part for each of members.
func (s *Store) lone(members []*member) []part {
	parts := make([]part, len(members))
	for i, m := range members {
		parts[i] = part{needsHold: s.needsHold(m.Call), lone: true, members: members[i : i+1]}
	}
	return parts
}

func (s *Store) runPart(ctx context.Context, sv *Server, p part) error {
	reply, err := s.scriptOf(p).run(ctx, s.servers.client, s.partArgs(p), p.keys(), s.Hooks.ScriptLoaded)
	return s.partReplied(sv, p, reply, err)
}

// A pipeliner is a client that sends several commands at once.
type pipeliner interface{ Pipeline() redis.Pipeliner }

func (s *Store) runParts(ctx context.Context, sv *Server, parts []part) error {
	client, ok := s.servers.client.(pipeliner)
	if !ok {
		return fmt.Errorf("a batch over a client of type %T", s.servers.client) // not reached: see batcher
	}
	pipe := client.Pipeline()
	cmds := make([]onceCmd, len(parts))
	for i, p := range parts {
		cmds[i] = s.scriptOf(p).command(ctx, s.partArgs(p), p.keys())
		_ = pipe.Process(ctx, cmds[i]) // it only queues the command
	}
	_, err := pipe.Exec(ctx)
	replied := false
	for i, p := range parts {
		failed := cmds[i].Err()
		if failed == nil && cmds[i].Val() == nil { // a hook of the client gave an error to nobody but Exec
			failed = err
		}
		if p.lone && hasCode(failed, "NOSCRIPT") { // to send scripts one after the other would take many round trips
			retryAlone(p.members)
			replied = true
			continue
		}
		reply, failed := s.scriptOf(p).reply(ctx, s.servers.client, cmds[i], failed, s.Hooks.ScriptLoaded)
		if failed = s.partReplied(sv, p, reply, failed); failed == nil {
			replied = true
			continue
		}
		err = failed
		failed = &partError{failed}
		for _, m := range p.members {
			m.Err = failed
		}
	}
	if replied {
		return nil
	}
	return err
}

// A partError is that of all members of a part.
type partError struct{ error }

// partArgs returns the arguments of p's script.
func (s *Store) partArgs(p part) []any {
	first, alike, now := p.members[0].Call, true, s.now()
	size := len(s.members)
	args := make([]any, scriptArgs, scriptArgs+len(first.Limits.constants(now).hold)+len(p.members)*(3+3*size))
	for _, m := range p.members {
		args = s.appendCallKeys(args, m.Call)
		alike = alike && m.Call.asks(first)
	}
	if !p.mixed {
		args = first.appendConstants(args, p.needsHold, now)
	}
	for _, m := range p.members {
		switch {
		case p.needsHold:
			args = m.Call.appendCalls(args)
		case p.mixed:
			args = m.Call.appendConstants(m.Call.appendCost(args), false, now)
		default:
			args = m.Call.appendCost(args)
			if alike {
				return args // once for all
			}
		}
	}
	return args
}

// partReplied reads the reply to p, or the error that came instead.
func (s *Store) partReplied(sv *Server, p part, reply []int64, err error) error {
	switch {
	case err == nil:
		return s.decode(reply, p.members, p.needsHold)
	case refused(err):
		if redis.HasErrorPrefix(err, "CROSSSLOT") {
			sv.setApart()
		}
		retryAlone(p.members)
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

func (s *Store) decode(reply []int64, members []*member, needsHold bool) error {
	size := s.replyLen(needsHold)
	calls := 0
	for _, m := range members {
		calls += m.Call.calls()
	}
	if len(reply) != size*calls {
		return algorithm.UnexpectedLength(len(reply), size*calls)
	}
	for _, m := range members {
		its := size * m.Call.calls()
		m.Err = s.decodeMember(reply[:its], m.Call, needsHold)
		reply = reply[its:]
	}
	return nil
}

// decodeMember reads the reply to d, which is to be asked again alone if nothing was done.
func (s *Store) decodeMember(reply []int64, d *Decision, needsHold bool) error {
	switch {
	case d.Exchange == nil && algorithm.Undone(reply):
		return batch.ErrRetryAlone
	case !needsHold && algorithm.IsHeld(reply):
		s.keysWithHolds.add(d.allKeys(), heldFor)
		return batch.ErrRetryAlone
	}
	return s.decodeOne(reply, d, needsHold)
}
