package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Background is a call that no caller waits for: a renewal, or the settlement of a lease. It is
// sent once, with as many others as may go together in one script. One for a server that is down is
// not sent.
type Background struct {
	Limits *Limits
	Key    string
	// Begin is called when it is about to be sent. It reports false if it need not be.
	Begin func() (algorithm.HoldCall, bool)
	// End, if it is not nil, is called after a Begin that reported true. It gets the new handles of
	// what was renewed (a limit whose hold has ended keeps its handle, one whose slots are lost has
	// the zero Handle); or an error if they are unknown; or neither if nothing was renewed.
	End func(handles []algorithm.Handle, err error)
}

// RunAll makes all calls, and waits for the replies.
func (s *Store) RunAll(ctx context.Context, all []Background) {
	byServer := make(map[*Server][]Background)
	for _, c := range all {
		sv := s.servers.of(ctx, s, c.Key)
		byServer[sv] = append(byServer[sv], c)
	}
	var servers sync.WaitGroup
	for sv, calls := range byServer {
		servers.Go(func() { s.runOn(ctx, sv, calls) })
	}
	servers.Wait()
}

func (s *Store) runOn(ctx context.Context, sv *Server, calls []Background) {
	size, b := 1, s.batcher(sv)
	if b != nil {
		work := s.work(NewDecision(s.Limits, "", algorithm.HoldCall{Op: algorithm.OpSettle, N: 1}))
		size = max(1, min(s.MaxBatch, int(maxWork/work)))
	}
	var inFlight sync.WaitGroup
	places := make(chan struct{}, maxInFlight)
	for chunk := range slices.Chunk(calls, size) {
		places <- struct{}{}
		if !sv.await(ctx, s, chunk[0].Key, s.deadlines.timer().done) {
			break
		}
		inFlight.Go(func() {
			defer func() { <-places }()
			s.runChunk(ctx, sv, chunk)
		})
		if s.driven {
			inFlight.Wait()
		}
	}
	inFlight.Wait()
}

// runChunk makes calls that go together.
func (s *Store) runChunk(ctx context.Context, sv *Server, chunk []Background) {
	var members []*member
	var begun []Background
	for _, c := range chunk {
		if call, ok := c.Begin(); ok {
			members = append(members, &member{Call: NewDecision(c.Limits, c.Key, call)})
			begun = append(begun, c)
		}
	}
	for i, err := range s.runMembers(ctx, sv, members) {
		switch end := begun[i].End; {
		case end == nil:
		case err != nil && !replyLost(err): // nothing was renewed, and may be the next time
			end(nil, nil)
		default:
			end(members[i].Call.Handles, err)
		}
	}
}

// runMembers returns the error of each member.
func (s *Store) runMembers(ctx context.Context, sv *Server, members []*member) []error {
	errs := make([]error, len(members))
	together := len(members) > 1
	if together {
		sv.checkSharding(ctx, s)
		if err := batch.Contain(s.runBatch(ctx, sv, members)); err != nil {
			for i := range errs {
				errs[i] = err // the call was abandoned, and may still write to the members
			}
			return errs
		}
	}
	for i, m := range members {
		errs[i] = m.Err
		if !together || errors.Is(m.Err, batch.ErrRetryAlone) {
			errs[i] = batch.Contain(batch.Catch(func() error { return s.askAlone(ctx, sv, m.Call, s.deadlines.timer()) }))
		}
	}
	return errs
}
