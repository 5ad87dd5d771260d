package main

import (
	"context"
	"sync"

	"github.com/redislimit/redislimit/core"
)

// hotTraffic is how many requests per period use the key that is leased.
const hotTraffic = 500

// A counter counts the decisions of a lane that has too many requests to show each of them.
type counter struct {
	mu   sync.Mutex
	sums counted
}

// count counts a decision by where it was made.
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

// take returns the counts since the last call.
func (c *counter) take() counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	sums := c.sums
	c.sums = counted{}
	return sums
}

// decide lets the lane's limiter decide on a request, without the handler.
func (l *lane) decide(ctx context.Context, client string) {
	_, _ = l.limiter.Allow(ctx, keyOf(client)) // the observer counts the decision
}
