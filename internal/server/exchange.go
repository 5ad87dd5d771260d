package server

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
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

// granted reads the reply to the reservation. Whatever became of it, the decision stands.
func (l *Exchange) granted(reply []int64, limits []algorithm.Member) {
	call := l.reservation(len(limits))
	answers, grant := make([]algorithm.Answer, len(limits)), call.Handles
	clear(grant)
	admits := algorithm.DecodeReply(reply, call, limits, answers) == nil
	for i := range answers {
		admits = admits && answers[i].Admits && grant[i].B > 0
	}
	if admits {
		l.Grant = grant
	}
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
