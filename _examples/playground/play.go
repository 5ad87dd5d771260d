package main

import (
	"context"
	"iter"
	"time"
)

// A stream is traffic, and the lanes that receive it.
type stream struct {
	config

	lanes []*lane
}

// streams returns the traffic of each group. The algorithms receive the traffic of the page's
// controls. Each process receives as many requests as the limit allows. The outage policies receive
// twice the limit, evenly spread, so that denials show at once. The lane with leases receives enough
// requests to make a key hot.
func streams(c config, lanes []*lane) map[string]*stream {
	all := map[string]*stream{
		algorithms: {config: c},
		processes:  {config: config{Rate: c.Rate, Traffic: members * c.Rate, Shape: steady}},
		policies:   {config: config{Rate: c.Rate, Traffic: 2 * c.Rate, Shape: steady}},
		leases:     {config: config{Rate: 2 * hotTraffic, Traffic: hotTraffic, Shape: steady}},
	}
	for _, l := range lanes {
		all[l.group].lanes = append(all[l.group].lanes, l)
	}
	return all
}

// A moment is a request of the traffic, and when it comes.
type moment struct {
	at     time.Time
	client string
}

// traffic yields each request that comes at from or later, when it comes, until ctx ends. start is
// the beginning of the first window.
func (c config) traffic(ctx context.Context, start, from time.Time, clock func() time.Time) iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		for n := int64(0); ; n++ {
			for _, a := range c.arrivals(n) {
				at := start.Add(a.at)
				wait := at.Sub(clock())
				if at.Before(from) || wait < -tooLate {
					continue
				}
				if !sleep(ctx, wait) || !yield(a) {
					return
				}
			}
			start = start.Add(period)
			if !sleep(ctx, start.Sub(clock())) {
				return
			}
		}
	}
}

// between returns the requests from one time until another, of traffic whose first
// window begins at start, as if there had always been traffic.
func (c config) between(from, until, start time.Time) []moment {
	var list []moment
	n := int64(from.Sub(start)/period) - 1
	for at := start.Add(time.Duration(n) * period); at.Before(until); at = at.Add(period) {
		for _, a := range c.arrivals(n) {
			if at := at.Add(a.at); !at.Before(from) && at.Before(until) {
				list = append(list, moment{at, a.client})
			}
		}
		n++
	}
	return list
}

// firstWindow returns the beginning of the first window of traffic that begins at t. Windows
// begin at multiples of the period since the Unix epoch, like the windows of an aligned
// limit. If too little of the current window is left for an attack, it returns the next one.
func firstWindow(t time.Time) time.Time { return windowOf(t.Add(headStart)) }

// windowOf returns the beginning of the window that contains t.
func windowOf(t time.Time) time.Time {
	return time.UnixMicro(t.UnixMicro() / period.Microseconds() * period.Microseconds())
}

// sleep waits for d. It returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
