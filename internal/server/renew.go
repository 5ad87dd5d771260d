package server

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
)

// A Renewal holds units for longer.
type Renewal struct {
	Key  string
	N    int64
	Refs []algorithm.Ref // by what the units are held

	Renewed []algorithm.Ref // and by what then: a limit whose hold has ended keeps its Ref, one whose slots are lost has the zero Ref
	Done    bool            // Redis has answered; neither Done nor Err: it was not sent
	Err     error           // it is not known by what they are held
}

// RenewAll carries out renewals, each once: as many as may go together in one script
// for each server.
func (s *Store) RenewAll(ctx context.Context, all []*Renewal) {
	byServer := make(map[*Server][]*member)
	renewals := make(map[*member]*Renewal, len(all))
	for _, r := range all {
		r.Renewed = slices.Clone(r.Refs)
		d := decision{
			key: r.Key, HoldCall: algorithm.HoldCall{Op: algorithm.OpRenew, N: r.N, Refs: r.Refs}, holds: r.Renewed,
			patience: s.timeout,
		}
		sv := s.servers.of(ctx, s, r.Key)
		if !sv.up(d.patience) {
			sv.want(s, r.Key)
			continue // it was not sent: it may be renewed the next time
		}
		m := &member{Call: d}
		renewals[m] = r
		byServer[sv] = append(byServer[sv], m)
	}
	for sv, members := range byServer {
		size := 1
		if s.batcher(sv) != nil {
			size = max(1, min(s.maxBatch, int(maxWork/s.work(members[0].Call))))
		}
		for chunk := range slices.Chunk(members, size) {
			failed := s.renew(ctx, sv, chunk)
			for _, m := range chunk {
				err := failed[m]
				renewals[m].Done = err == nil
				if !errors.Is(err, ErrQueue) { // else it was not sent
					renewals[m].Err = err
				}
			}
		}
	}
}

// renew returns the error of each member that failed.
func (s *Store) renew(ctx context.Context, sv *Server, members []*member) map[*member]error {
	failed := make(map[*member]error)
	alone := members
	if len(members) > 1 {
		alone = nil
		s.servers.checkSharding(ctx, s)
		now := time.Now()
		for _, m := range members {
			m.Call.until = now.Add(m.Call.patience)
		}
		err := s.decideBatch(ctx, sv, slices.Clone(members))
		for _, m := range members {
			switch {
			case err != nil:
				failed[m] = err // the call was abandoned, and may still write to the members
			case errors.Is(m.Err, batch.ErrRetryAlone):
				alone = append(alone, m)
			case m.Err != nil:
				failed[m] = m.Err
			}
		}
	}
	for _, m := range alone {
		if err := s.decideAlone(ctx, sv, m.Call); err != nil {
			failed[m] = err
		}
	}
	return failed
}
