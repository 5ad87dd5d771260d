package main

import (
	"context"
	"sync"

	"github.com/redislimit/redislimit/core"
)

// hotTraffic is the traffic on the key that is leased: requests per period.
const hotTraffic = 500

// A counter counts the decisions of a lane whose requests are too many to show each.
type counter struct {
	mu   sync.Mutex
	sums counted
}

// count counts a decision by who made it.
func (c *counter) count(e core.Event) {
	if e.Kind != core.EventDecision {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.Err == nil && e.Result.Source == core.SourceLease:
		c.sums.Leased++
	case e.Err == nil && e.Result.Source == core.SourceRedis:
		c.sums.Redis++
	default:
		c.sums.Other++
	}
}

// take returns what was counted since the last call.
func (c *counter) take() counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := c.sums
	c.sums = counted{}
	return sums
}

// decide has the lane decide on a request, without a handler.
func (l *lane) decide(ctx context.Context, client string) {
	_, _ = l.limiter.Allow(ctx, keyOf(client)) // it is counted
}
