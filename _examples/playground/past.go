package main

import (
	"context"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
)

const (
	shown     = 15 * time.Second       // how much of the past a new page receives; its charts show less
	pastPeeks = 300 * time.Millisecond // how often the levels of the past are read
	caughtUp  = 50 * time.Millisecond  // how close to the present the past must end
)

// A past is the traffic of the last seconds, played on an embedded Redis whose clock is moved. So a
// new page begins in the middle of the traffic, and the live limiters continue with the
// counts.
type past struct {
	backend *backend
	config  config
	lanes   []*lane
	events  []event
	last    map[string]response // the last response of each lane
}

// playPast plays the past of a session, whose first window begins at start, up to the
// present. It returns the events, and the time up to which it has played.
func playPast(ctx context.Context, b *backend, id string, c config, start time.Time, clock func() time.Time) ([]event, time.Time, error) {
	p := &past{backend: b, config: c, last: make(map[string]response)}
	var err error
	p.lanes, err = newLanes(b, id, c, b.now, func(_ hit, d decision) { p.events = append(p.events, d) },
		core.DenyCache(0)) // the deny cache uses the clock of this process
	if err != nil {
		return nil, time.Time{}, err
	}
	defer closeLanes(p.lanes)
	defer b.setTime(time.Time{})
	from := clock().Add(-shown)
	for range 5 { // playing takes time, which must be played, too
		until := clock()
		if err != nil || until.Sub(from) < caughtUp {
			break
		}
		err = p.play(ctx, from, until, start)
		from = until
	}
	for _, r := range p.last {
		p.events = append(p.events, r)
	}
	return p.events, from, err
}

// A step is an action at a time in the past.
type step struct {
	at time.Time
	do func(ctx context.Context) error
}

func (p *past) play(ctx context.Context, from, until, start time.Time) error {
	var steps []step
	for group, s := range streams(p.config, p.lanes) {
		if group == leases { // leases use the clock of this process
			continue
		}
		for i, m := range s.between(from, until, start) {
			steps = append(steps, step{m.at, func(ctx context.Context) error {
				if group == processes {
					decideInTurn(withHit(ctx, hit{m.client, "traffic"}), s.lanes, i, m.client)
					return ctx.Err()
				}
				return p.send(ctx, m.client, s.lanes)
			}})
		}
	}
	for at := from; at.Before(until); at = at.Add(pastPeeks) {
		steps = append(steps, step{at, p.peek})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for _, s := range steps {
		p.backend.setTime(s.at)
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *past) send(ctx context.Context, client string, lanes []*lane) error {
	h := hit{client, "traffic"}
	for _, l := range lanes {
		switch kind := l.kind(); {
		case kind.Slots: // the work of its requests takes real time
			continue
		case kind.Delays: // the handler would hold the request in real time
			if _, err := l.limiter.AllowN(withHit(ctx, h), keyOf(client), l.cost); err != nil {
				return err
			}
			continue
		}
		p.last[l.name] = l.answer(ctx, h)
	}
	return ctx.Err()
}

// warm lets the processes that count in memory decide on the traffic of the last period, on which earlier limiters have decided.
func warm(ctx context.Context, b *backend, c config, lanes []*lane, live, start time.Time) {
	defer b.setTime(time.Time{})
	s := streams(c, slices.DeleteFunc(slices.Clone(lanes), func(l *lane) bool { return !l.memory }))[processes]
	for i, m := range s.between(live.Add(-period), live, start) {
		b.setTime(m.at)
		decideInTurn(ctx, s.lanes, i, m.client)
	}
}

// decideInTurn makes one of the processes decide on the nth request, in each of its lanes. The processes take turns.
func decideInTurn(ctx context.Context, lanes []*lane, n int, client string) {
	for _, l := range lanes {
		if l.member == n%members+1 {
			l.decide(ctx, client)
		}
	}
}

func (p *past) peek(ctx context.Context) error {
	for _, client := range p.config.clients() {
		p.events = append(p.events, levelsOf(ctx, client, p.lanes))
	}
	return ctx.Err()
}
