package server

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// An Exchange is what a decision does besides, in the same run of the script: before it the last
// lease, which has ended, is settled, and after it units are held for the next.
type Exchange struct {
	// Of the lease before Held units are held under Handles, and Spent of them were spent.
	Held, Spent int64 // Held is 0 if there is nothing to settle
	Handles     []algorithm.Handle

	Units    int64 // to be held; 0 for none
	Duration int64 // for how long, in microseconds

	// Grant is under which handles the Units are held, if they were admitted; else nil. Like
	// undone it is set only where the decision returned.
	Grant []algorithm.Handle

	undone  bool // the decision is to be made alone
	settled bool // and Held need not be settled
}

// holds returns how long units may be held for the new lease.
func (l *Exchange) holds() time.Duration {
	if l.Units == 0 {
		return 0
	}
	d := time.Duration(l.Duration) * time.Microsecond
	return d + d/6 // the expiry is rounded up by so much
}

// settlement returns the call that settles the lease before.
func (l *Exchange) settlement() algorithm.HoldCall {
	return algorithm.HoldCall{Op: algorithm.OpSettle, N: l.Held, M: l.Spent, Handles: l.Handles}
}

// reservation returns the call that holds the units of the next lease.
func (l *Exchange) reservation(limits int) algorithm.HoldCall {
	refs := make([]algorithm.Handle, limits)
	for i := range refs {
		refs[i].A = l.Duration
	}
	return algorithm.HoldCall{Op: algorithm.OpReserve, N: l.Units, Handles: refs}
}

// decodeExchange reads the reply to the calls of d. Whatever became of the lease, the error is
// that of the decision: it is batch.ErrRetryAlone if that was not made.
func (s *Store) decodeExchange(reply []int64, d *Decision) error {
	l, members := d.Exchange, d.Limits.members
	size, ban := d.Limits.replyLen(true)
	if len(reply) != size*d.calls() {
		return algorithm.UnexpectedLength(len(reply), size*d.calls())
	}
	s.keysWithHolds.add(d.Key, l.holds())
	if l.Held > 0 {
		l.settled = !algorithm.Undone(reply)
		reply = reply[size:]
	}
	if algorithm.Undone(reply) {
		l.undone = true
		return batch.ErrRetryAlone
	}
	if banned, err := d.decode(reply[:size], true); banned || err != nil {
		return err
	}
	if l.Units > 0 {
		call := l.reservation(len(members))
		answers, grant := make([]algorithm.Answer, len(members)), call.Handles
		clear(grant)
		admits := algorithm.DecodeHoldReply(reply[size:2*size-ban], call, members, answers) == nil
		for i := range answers {
			admits = admits && answers[i].Admits && grant[i].B > 0
		}
		if admits {
			l.Grant = grant
		}
	}
	return nil
}

// withoutExchange has d go on without its Exchange, if that was not carried out. It settles the lease before if that was not:
// the decision goes by what is held.
func (s *Store) withoutExchange(ctx context.Context, d *Decision, over *sharedTimer) {
	l := d.Exchange
	if l == nil || !l.undone {
		return
	}
	d.Exchange = nil
	if l.Held > 0 && !l.settled {
		l.settled = true // once
		// Where it fails, so does the decision; what is held is charged when it expires.
		_ = s.run(ctx, NewDecision(d.Limits, d.Key, l.settlement()), over)
	}
}
