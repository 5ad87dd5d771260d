package server

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Renewal holds units for longer.
type Renewal struct {
	Limits *Limits
	Key    string
	N      int64
	// Begin is called when it is about to be sent. It returns the handles to renew, or nil if
	// it need not be.
	Begin func() []algorithm.Handle
	// End is called after a Begin that returned handles. It gets the new handles (a limit whose
	// hold has ended keeps its handle, one whose slots are lost has the zero Handle); or an error if
	// they are unknown; or neither if nothing was sent.
	End func(handles []algorithm.Handle, err error)
}

// RenewAll carries out renewals, each once: as many as may go together in one script. Those
// for a server that is down are not sent, and may be renewed the next time.
func (s *Store) RenewAll(ctx context.Context, all []*Renewal) {
	calls := make([]background, len(all))
	for i, r := range all {
		calls[i] = background{limits: r.Limits, key: r.Key, end: r.End, begin: func() (algorithm.HoldCall, bool) {
			handles := r.Begin()
			return algorithm.HoldCall{Op: algorithm.OpRenew, N: r.N, Handles: handles}, handles != nil
		}}
	}
	s.runInBackground(ctx, algorithm.OpRenew, calls)
}

// A background is a call of the script hold that nobody waits for.
type background struct {
	limits *Limits
	key    string
	begin  func() (algorithm.HoldCall, bool)           // called when it is about to be sent; false: it is not
	end    func(handles []algorithm.Handle, err error) // of what renews; see [Renewal]
}

func (s *Store) runInBackground(ctx context.Context, op algorithm.Op, all []background) {
	byServer := make(map[*Server][]background)
	for _, c := range all {
		sv := s.servers.of(ctx, s, c.key)
		byServer[sv] = append(byServer[sv], c)
	}
	var servers sync.WaitGroup
	for sv, calls := range byServer {
		servers.Go(func() { s.runOn(ctx, sv, op, calls) })
	}
	servers.Wait()
}

func (s *Store) runOn(ctx context.Context, sv *Server, op algorithm.Op, calls []background) {
	size, b := 1, s.batcher(sv)
	if b != nil {
		work := s.work(NewDecision(s.limits, "", algorithm.HoldCall{Op: op, N: 1}))
		size = max(1, min(s.maxBatch, int(maxWork/work)))
	}
	var inFlight sync.WaitGroup
	places := make(chan struct{}, maxInFlight)
	for chunk := range slices.Chunk(calls, size) {
		places <- struct{}{}
		if !sv.up(s.timeout) {
			sv.want(s, chunk[0].key)
			break
		}
		inFlight.Go(func() {
			defer func() { <-places }()
			s.runChunk(ctx, sv, chunk)
		})
	}
	inFlight.Wait()
}

// runChunk carries out calls that go together.
func (s *Store) runChunk(ctx context.Context, sv *Server, chunk []background) {
	var members []*member
	var begun []background
	for _, c := range chunk {
		if call, ok := c.begin(); ok {
			members = append(members, &member{Call: NewDecision(c.limits, c.key, call)})
			begun = append(begun, c)
		}
	}
	for i, err := range s.runMembers(ctx, sv, members) {
		switch end := begun[i].end; {
		case end == nil:
		case errors.Is(err, ErrQueue): // it was not sent
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
			errs[i] = batch.Contain(batch.Catch(func() error { return s.askAlone(ctx, sv, m.Call, nil) }))
		}
	}
	return errs
}
