package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Renewal holds units for longer.
type Renewal struct {
	Limits *Limits
	Key    string
	N      int64
	// Begin is called when it is about to be sent. It returns by what the units are held,
	// or nil if they are no longer to be.
	Begin func() []algorithm.Ref
	// End is called after Begin, with by what the units are held from now on (a limit
	// whose hold has ended keeps its Ref, one whose slots are lost has the zero Ref), or an
	// error if that is not known; or with neither if it was not sent.
	End func(refs []algorithm.Ref, err error)
}

// RenewAll carries out renewals, each once: as many as may go together in one script. Those
// for a server that is down are not sent, and may be renewed the next time.
func (s *Store) RenewAll(ctx context.Context, all []*Renewal) {
	byServer := make(map[*Server][]*Renewal)
	for _, r := range all {
		sv := s.servers.of(ctx, s, r.Key)
		byServer[sv] = append(byServer[sv], r)
	}
	var servers sync.WaitGroup
	for sv, renewals := range byServer {
		servers.Go(func() { s.renewOn(ctx, sv, renewals) })
	}
	servers.Wait()
}

func (s *Store) renewOn(ctx context.Context, sv *Server, renewals []*Renewal) {
	size, b := 1, s.batcher(sv)
	if b != nil {
		work := s.work(decision{limits: s.limits, HoldCall: algorithm.HoldCall{Op: algorithm.OpRenew, N: 1}})
		size = max(1, min(s.maxBatch, int(maxWork/work)))
	}
	for chunk := range slices.Chunk(renewals, size) {
		if !sv.up(s.timeout) {
			sv.want(s, chunk[0].Key)
			return
		}
		var members []*member
		var begun []*Renewal
		for _, r := range chunk {
			if refs := r.Begin(); refs != nil {
				call := algorithm.HoldCall{Op: algorithm.OpRenew, N: r.N, Refs: refs}
				members = append(members, &member{Call: decision{
					key: r.Key, limits: r.Limits, HoldCall: call, holds: slices.Clone(refs), patience: s.timeout, until: time.Now().Add(s.timeout),
				}})
				begun = append(begun, r)
			}
		}
		for i, err := range s.renew(ctx, sv, b, members) {
			if errors.Is(err, ErrQueue) { // it was not sent
				begun[i].End(nil, nil)
			} else {
				begun[i].End(members[i].Call.holds, err)
			}
		}
	}
}

// renew returns the error of each member.
func (s *Store) renew(ctx context.Context, sv *Server, b *batcher, members []*member) []error {
	errs := make([]error, len(members))
	together := len(members) > 1
	if together {
		s.servers.checkSharding(ctx, s)
		if err := batch.Contain(s.decideBatch(ctx, sv, b, slices.Clone(members))); err != nil {
			for i := range errs {
				errs[i] = err // the call was abandoned, and may still write to the members
			}
			return errs
		}
	}
	for i, m := range members {
		errs[i] = m.Err
		if !together || errors.Is(m.Err, batch.ErrRetryAlone) {
			m.Call.patience = time.Until(m.Call.until)
			errs[i] = batch.Contain(batch.Catch(func() error { return s.decideAlone(ctx, sv, m.Call) }))
		}
	}
	return errs
}
