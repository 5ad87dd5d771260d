package server

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Lease is what a decision does besides, in the same run of the script: it settles the
// lease before, which has ended, and then, after the decision, holds units for the next.
type Lease struct {
	// Of the lease before Held units are held by Refs, and Spent of them were spent.
	Held, Spent int64 // Held is 0 if there is nothing to settle
	Refs        []algorithm.Ref

	Units    int64 // to be held; 0 for none
	Duration int64 // for how long, in microseconds

	// Grant is by what the Units are held, if they were admitted; else it is nil. Like
	// undone it is set only where the decision returned.
	Grant []algorithm.Ref

	undone  bool // the decision is to be made alone
	settled bool // and Held need not be settled
}

// calls returns how many calls of the script d takes.
func (d decision) calls() int {
	calls := 1
	if d.lease != nil && d.lease.Held > 0 {
		calls++
	}
	if d.lease != nil && d.lease.Units > 0 {
		calls++
	}
	return calls
}

func (d decision) keys() int { return d.calls() * len(d.limits.tails) }

// appendCallKeys appends the Redis keys of d, once for each of its calls.
func (s *Store) appendCallKeys(dst []any, d decision) []any {
	for range d.calls() {
		dst = s.appendKeys(dst, d.key, d.limits)
	}
	return dst
}

// settlement returns the call that settles the lease before.
func (l *Lease) settlement() algorithm.HoldCall {
	return algorithm.HoldCall{Op: algorithm.OpSettle, N: l.Held, M: l.Spent, Refs: l.Refs}
}

// reservation returns the call that holds the units of the next lease.
func (l *Lease) reservation(limits int) algorithm.HoldCall {
	refs := make([]algorithm.Ref, limits)
	for i := range refs {
		refs[i].A = l.Duration
	}
	return algorithm.HoldCall{Op: algorithm.OpReserve, N: l.Units, Refs: refs}
}

// appendCalls appends the arguments of all calls of d.
func (d decision) appendCalls(args []any) []any {
	limits := len(d.limits.members)
	if d.lease != nil && d.lease.Held > 0 {
		args = d.lease.settlement().Append(args, limits)
	}
	args = d.Append(args, limits)
	if d.lease != nil && d.lease.Units > 0 {
		args = d.lease.reservation(limits).Append(args, limits)
	}
	return args
}

// decodeWithLease reads the reply to the calls of d. Whatever became of the lease, the error is
// that of the decision: it is batch.ErrRetryAlone if that was not made.
func (s *Store) decodeWithLease(reply []int64, d decision) error {
	l, members := d.lease, d.limits.members
	size := algorithm.HoldReplyLen(len(members))
	if len(reply) != size*d.calls() {
		return algorithm.UnexpectedLength(len(reply), size*d.calls())
	}
	s.held.add(d.key)
	if l.Held > 0 {
		l.settled = !algorithm.Undone(reply)
		reply = reply[size:]
	}
	if algorithm.Undone(reply) {
		l.undone = true
		return batch.ErrRetryAlone
	}
	if err := algorithm.DecodeHoldReply(reply[:size], d.HoldCall, members, d.answers, d.holds); err != nil {
		return err
	}
	if l.Units > 0 {
		call := l.reservation(len(members))
		answers, grant := make([]algorithm.Answer, len(members)), make([]algorithm.Ref, len(members))
		admits := algorithm.DecodeHoldReply(reply[size:], call, members, answers, grant) == nil
		for i := range answers {
			admits = admits && answers[i].Admits && grant[i].B > 0
		}
		if admits {
			l.Grant = grant
		}
	}
	return nil
}

// withoutLease returns d without its lease, after some of its calls were not carried out. It
// settles the lease before if that was not: the decision goes by what is held.
func (s *Store) withoutLease(ctx context.Context, d decision) decision {
	l := d.lease
	d.lease = nil
	if l.Held > 0 && !l.settled {
		l.settled = true // once
		// Where it fails, so does the decision; what is held is charged when it expires.
		_ = s.evaluate(ctx, decision{key: d.key, limits: d.limits, HoldCall: l.settlement()})
	}
	return d
}

// A Settlement is what is to be charged for a lease that has ended.
type Settlement struct {
	Limits      *Limits
	Key         string
	Held, Spent int64
	Refs        []algorithm.Ref
}

// SettleAll carries out settlements, each once: as many as may go together in one script.
// What cannot be settled is charged when it expires.
func (s *Store) SettleAll(ctx context.Context, all []*Settlement) {
	calls := make([]background, len(all))
	for i, t := range all {
		call := algorithm.HoldCall{Op: algorithm.OpSettle, N: t.Held, M: t.Spent, Refs: t.Refs}
		calls[i] = background{limits: t.Limits, key: t.Key, begin: func() (algorithm.HoldCall, bool) { return call, true }}
	}
	s.runInBackground(ctx, algorithm.OpSettle, calls)
}
