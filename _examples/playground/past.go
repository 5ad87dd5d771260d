package main

import (
	"context"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
)

const (
	shown     = 15 * time.Second       // how much of the past a new page gets; its charts show less
	pastPeeks = 200 * time.Millisecond // how often the levels of the past are read
)

// past plays the traffic of the last seconds before until, on an embedded Redis whose
// clock is moved, and returns its events. A new page so begins in the middle of the
// traffic, and the live limiters go on with the counts.
func past(ctx context.Context, b *backend, id string, c config, until time.Time) ([]event, error) {
	var events []event
	// The cache of denials goes by the clock of this process.
	lanes, err := newLanes(b.client, id, c, time.Now, func(_ hit, d decision) { events = append(events, d) }, core.DenyCache(0))
	if err != nil {
		return nil, err
	}
	defer closeLanes(lanes)
	defer b.setTime(time.Time{})

	type step struct {
		at time.Time
		do func() error
	}
	var steps []step
	for _, s := range streams(c, lanes) {
		for _, a := range s.past(until) {
			steps = append(steps, step{a.at, func() error {
				for _, l := range s.lanes {
					if _, err := l.limiter.Allow(withHit(ctx, hit{a.client, "traffic"}), keyOf(a.client)); err != nil {
						return err
					}
				}
				return nil
			}})
		}
	}
	for at := until.Add(-shown); at.Before(until); at = at.Add(pastPeeks) {
		steps = append(steps, step{at, func() error {
			for _, client := range c.clients() {
				events = append(events, levelsOf(ctx, client, lanes))
			}
			return ctx.Err()
		}})
	}
	slices.SortFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for _, s := range steps {
		b.setTime(s.at)
		if err := s.do(); err != nil {
			return nil, err
		}
	}
	return events, nil
}
