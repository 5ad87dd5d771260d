package redisstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Background is a call that no caller waits for: a renewal, or the settlement of a lease. It is
// sent once, in a round trip with many others where they may share one. One for a server that is
// down is not sent.
type Background struct {
	Limits *Limits
	Key    string
	// Begin is called when it is about to be sent. It reports false if it need not be.
	Begin func() (algorithm.HoldCall, bool)
	// End, if it is not nil, is called after a Begin that reported true. Without an error it gets
	// the new handles of what was renewed: a limit whose hold has ended keeps its handle, one whose
	// slots are lost has the zero Handle. nil says that nothing was. After an error they are
	// unknown.
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

// maxScripts is how many full scripts of calls in the background are in one round trip, at most.
const maxScripts = 16

// runOn makes calls of one server: a few beside each other where each goes alone, and else batches.
func (s *Store) runOn(ctx context.Context, sv *Server, calls []Background) {
	if s.batcher(sv) != nil {
		s.runBatches(ctx, sv, calls)
		return
	}
	var inFlight sync.WaitGroup
	places := make(chan struct{}, maxInFlight)
	for i := range calls {
		places <- struct{}{}
		if !s.awaits(ctx, sv, calls[i:]) {
			break
		}
		inFlight.Go(func() {
			defer func() { <-places }()
			s.runChunk(ctx, sv, calls[i:i+1])
		})
		if s.driven {
			inFlight.Wait()
		}
	}
	inFlight.Wait()
}

// runBatches makes calls in one batch after the other: where a server is far, more of them in
// flight would need connections that take too long to make. Each is twice as large as the last, as
// far as it takes no longer.
func (s *Store) runBatches(ctx context.Context, sv *Server, calls []Background) {
	shortest := s.Timeout
	for size := s.perScript; len(calls) > 0 && s.awaits(ctx, sv, calls); {
		chunk, begun := calls[:min(size, len(calls))], time.Now()
		s.runChunk(ctx, sv, chunk)
		calls = calls[len(chunk):]
		took := time.Since(begun)
		if shortest = min(shortest, took); took < shortest+s.Timeout/16 {
			size = min(2*size, s.perScript*maxScripts)
		} else {
			size = max(size/2, s.perScript)
		}
	}
}

// awaits waits until the server is up, for the timeout at most, and reports whether it is.
func (s *Store) awaits(ctx context.Context, sv *Server, calls []Background) bool {
	return sv.await(ctx, calls[0].Key, s.deadlines.timer().done)
}

// runChunk makes calls that go together.
func (s *Store) runChunk(ctx context.Context, sv *Server, chunk []Background) {
	var members []*Call
	var begun []Background
	for _, c := range chunk {
		if call, ok := c.Begin(); ok {
			members = append(members, NewCall(c.Limits, c.Key, call))
			begun = append(begun, c)
		}
	}
	for i, err := range s.runMembers(ctx, sv, members) {
		switch end := begun[i].End; {
		case end == nil:
		case err != nil && !replyLost(err): // nothing was renewed, and may be the next time
			end(nil, nil)
		default:
			end(members[i].Handles, err)
		}
	}
}

// runMembers makes the calls of members, and returns the error of each.
func (s *Store) runMembers(ctx context.Context, sv *Server, members []*Call) []error {
	errs := make([]error, len(members))
	together := len(members) > 1
	if together {
		sv.checkSharding(ctx, s)
		if err := s.send(ctx, sv, members, batch.Place[*Call]{}, nil); err != nil {
			for i := range errs {
				errs[i] = err // the call was abandoned, and may still write to the members
			}
			return errs
		}
	}
	for i, d := range members {
		if errs[i] = d.err; !together || errors.Is(d.err, batch.ErrRetryAlone) {
			errs[i] = s.doWhenUp(ctx, d, s.deadlines.timer())
		}
	}
	return errs
}
