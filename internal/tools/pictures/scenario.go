package main

import (
	"context"
	"slices"
	"time"

	"github.com/redislimit/redislimit/core"
)

// key is the key of all requests.
const key = "user:alice"

// A scenario is a limit and the requests that are made.
type scenario struct {
	limit   core.Limit
	cost    int64           // the cost of each request, in the limit's units
	traffic []time.Duration // the times of the requests since the start
	lasts   time.Duration
}

// A moment is a Result of the limiter, and the time since the start of the scenario.
type moment struct {
	core.Result

	at time.Duration
}

// served is the time at which an admitted request is served. A LeakyBucket delays it until then.
func (m moment) served() time.Duration { return m.at + m.Delay }

// A record has the Results of a scenario.
type record struct {
	requests []moment
	levels   []moment // at the requests, and at many Peeks between them
}

// peekEvery is the time between Peeks.
const peekEvery = 500 * time.Millisecond

// play runs the scenario. It begins at a multiple of the limit's period.
func (w *environment) play(ctx context.Context, s scenario) (*record, error) {
	lim, err := core.New(w.client, "story", s.limit, core.Prefix("rl-pictures"),
		core.DenyCache(0), core.FailClosed(), core.Timeout(time.Minute)) // only Redis decides, by the clock that advance moves
	if err != nil {
		return nil, err
	}
	if err := lim.Reset(ctx, key); err != nil {
		return nil, err
	}
	defer func() { _ = lim.Reset(context.WithoutCancel(ctx), key) }()
	first, err := lim.Peek(ctx, key)
	if err != nil {
		return nil, err
	}
	micros := s.limit.Rate().Period().Microseconds()
	w.advance(time.Duration(micros-first.At.UnixMicro()%micros) * time.Microsecond)

	r := &record{}
	var now time.Duration
	step := func(at time.Duration, decide func() (core.Result, error)) error {
		w.advance(at - now)
		now = at
		res, err := decide()
		r.levels = append(r.levels, moment{res, at})
		return err
	}
	peek := func() (core.Result, error) { return lim.Peek(ctx, key) }
	for _, at := range s.instants() {
		// A Peek just before each instant makes the curve rise vertically there.
		if err := step(max(0, at-time.Microsecond), peek); err != nil || at == s.lasts {
			return r, err
		}
		if err := step(at, peek); err != nil {
			return nil, err
		}
		if _, found := slices.BinarySearch(s.traffic, at); !found {
			continue
		}
		if err := step(at, func() (core.Result, error) { return lim.AllowN(ctx, key, s.cost) }); err != nil {
			return nil, err
		}
		r.requests = append(r.requests, r.levels[len(r.levels)-1])
	}
	return r, nil
}

// instants returns the times of the requests and of the Peeks. Peeks are made at regular times, and at the times
// when a window that a request opened ends, or when its entry in a log expires.
func (s scenario) instants() []time.Duration {
	all := slices.Clone(s.traffic)
	for _, at := range s.traffic {
		all = append(all, at+s.limit.Rate().Period())
	}
	for at := time.Duration(0); at <= s.lasts; at += peekEvery {
		all = append(all, at)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// busiest returns the largest number of requests that were served within any stretch of this length.
func (r *record) busiest(within time.Duration) int {
	most := 0
	for _, from := range r.requests {
		n := 0
		for _, m := range r.requests {
			if m.Allowed && m.served() >= from.served() && m.served() < from.served()+within {
				n++
			}
		}
		if from.Allowed {
			most = max(most, n)
		}
	}
	return most
}

// every returns n instants at regular intervals, the first at from.
func every(interval, from time.Duration, n int) []time.Duration {
	var all []time.Duration
	for i := range n {
		all = append(all, from+time.Duration(i)*interval)
	}
	return all
}
