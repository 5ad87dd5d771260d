package server

import (
	"context"
	"fmt"
	"slices"

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

type batcher = batch.Batcher[*Decision]

// work returns about how many microseconds of Redis a decision takes.
func (s *Store) work(d *Decision) int64 {
	sum := int64(0)
	for o := d; o != nil; o = o.next {
		sum += o.Limits.work(o.N)
	}
	if s.needsHold(d) {
		sum *= holdWork
	}
	return sum
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
	members   []*Decision
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

// carry makes the calls of all members in one round trip: by one script where it may have the keys of all. Plain
// decisions share one script. Calls that need holds go in one more script for each Limits: with that a plain decision took
// about twice as long. If the server refuses a script as a whole, each of its members is to be sent alone. The error is
// that of all: of one alone, or if no script got a reply.
func (s *Store) carry(ctx context.Context, sv *Server, members []*Decision) error {
	if len(members) == 1 {
		p := part{needsHold: s.needsHold(members[0]), members: members}
		reply, err := s.runPart(ctx, p)
		if err == nil {
			err = s.decodeOne(reply, members[0], p.needsHold)
			members[0].err = err
		}
		return err
	}
	if s.servers.cluster != nil && !sv.knownTogether() {
		return s.runParts(ctx, sv, s.lone(members)) // it runs no script with keys of several hash slots, or that is not known yet
	}
	if together, err := sv.together(ctx, s); err != nil {
		return err
	} else if !together {
		retryAlone(members)
		return nil
	}
	parts := s.parts(members)
	if len(parts) == 1 {
		reply, err := s.runPart(ctx, parts[0])
		return s.partReplied(sv, parts[0], reply, err)
	}
	return s.runParts(ctx, sv, parts)
}

// parts divides members by the scripts that they take.
func (s *Store) parts(members []*Decision) []part {
	plain := part{members: make([]*Decision, 0, len(members))}
	var held []part
	for _, m := range members {
		if !s.needsHold(m) {
			if len(plain.members) > 0 && !m.sameLimits(plain.members[0]) {
				plain.mixed = true
			}
			plain.members = append(plain.members, m)
			continue
		}
		i := slices.IndexFunc(held, func(p part) bool { return len(p.members) < s.perScript && p.members[0].sameLimits(m) })
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
func (s *Store) lone(members []*Decision) []part {
	parts := make([]part, len(members))
	for i, m := range members {
		parts[i] = part{needsHold: s.needsHold(m), lone: true, members: members[i : i+1]}
	}
	return parts
}

// runPart runs the script of one part.
func (s *Store) runPart(ctx context.Context, p part) ([]int64, error) {
	args, keys := s.partArgs(p)
	return s.scriptOf(p).run(ctx, s.servers.client, args, keys, s.Hooks.ScriptLoaded)
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
		args, keys := s.partArgs(p)
		cmds[i] = s.scriptOf(p).command(ctx, args, keys)
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
			m.err = failed
		}
	}
	if replied {
		return nil
	}
	return err
}

// A partError is that of all members of a part.
type partError struct{ error }

// partArgs returns the arguments of p's script, and how many of them are Redis keys.
func (s *Store) partArgs(p part) (args []any, keys int) {
	first, alike, now := p.members[0], true, s.now()
	args = make([]any, scriptArgs, scriptArgs+len(first.Limits.constants(now).hold)+len(p.members)*(3+3*len(s.members)))
	for i, m := range p.members {
		args = s.appendKeys(args, m)
		alike = alike && (i == 0 || m.asks(first))
	}
	keys = len(args) - scriptArgs
	if !p.mixed {
		args = first.appendConstants(args, p.needsHold, now)
	}
	for _, m := range p.members {
		switch {
		case p.needsHold:
			args = m.appendCall(args)
		case p.mixed:
			args = m.appendConstants(m.appendCost(args), false, now)
		default:
			args = m.appendCost(args)
			if alike {
				return args, keys // once for all
			}
		}
	}
	return args, keys
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

func retryAlone(members []*Decision) {
	for _, m := range members {
		m.err = batch.ErrRetryAlone
	}
}

// refused reports whether the server has run nothing, because of one of the keys. What it
// refuses to a script that runs has another code.
func refused(err error) bool { return hasCode(err, "CROSSSLOT", "NOPERM", "TRYAGAIN") }

func (s *Store) decode(reply []int64, members []*Decision, needsHold bool) error {
	size := s.replyLen(needsHold)
	if len(reply) != size*len(members) {
		return algorithm.UnexpectedLength(len(reply), size*len(members))
	}
	for _, m := range members {
		if m.err = batch.ErrRetryAlone; !algorithm.Undone(reply) {
			m.err = s.decodeOne(reply[:size], m, needsHold)
		}
		reply = reply[size:]
	}
	return nil
}
