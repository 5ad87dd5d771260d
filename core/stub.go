package core

import (
	"context"
	"fmt"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
)

// stubbed is the backend of package limittest, whose answers a test chooses.
type stubbed struct {
	stub coreaccess.Stub
	name string // the name of the limiter
	now  func() time.Time
}

// stubAt is the instant of all decisions of stubs, in microseconds since the epoch: the beginning
// of 2000, as in testing/synctest.
const stubAt = 946_684_800_000_000

// Decide answers with what the stub returns. An admission looks as if nothing had been charged to
// the key before, and a denial as if all units were used.
func (s *stubbed) Decide(_ context.Context, c *decision.Call, r *decision.Reply) error {
	retryAfter, err := s.stub.Call(methodOf(c), c.Key, c.N)
	if err != nil {
		return fmt.Errorf("%w: limiter %q: %w", ErrUnavailable, s.name, err)
	}
	*r = decision.Reply{Set: c.Set, N: c.N, Source: decision.Memory, UsedUp: retryAfter}
	answers := r.Room()
	for i, m := range c.Set.Limits {
		answers[i].Evaluate(m.Evaluator, &algorithm.State{}, stubAt, c.N)
		answers[i].Admits = answers[i].Admits && retryAfter <= 0
	}
	if r.Conclude(); retryAfter > 0 && c.N > 0 {
		r.Allowed = false // also if the limits are Unlimited
	}
	if h := c.NewHold(c.Set, s.now); h != nil && r.Allowed {
		h.Keeper, r.Hold = s, h
	}
	return nil
}

// methodOf returns the name by which the stub knows c: the name of the method of Limiter that makes such
// calls.
func methodOf(c *decision.Call) string {
	switch {
	case c.Op == algorithm.OpEvaluate:
		return "Peek"
	case c.Op == algorithm.OpReserve:
		return "Reserve"
	case c.Ends:
		return "Acquire"
	}
	return "AllowN"
}

// End reports to the stub, as a call of Settle, that a hold has ended. The cost is what is charged in the end.
func (s *stubbed) End(_ context.Context, e hold.Ending) error {
	actual := e.Actual
	if e.Op == algorithm.OpRelease {
		actual = e.N
	}
	err := s.call("Settle", e.Key, actual)
	if e.Freed != nil {
		e.Freed()
	}
	return err
}

// Reset reports the call to the stub.
func (s *stubbed) Reset(_ context.Context, _ *limits.Set, key string) error {
	return s.call("Reset", key, 0)
}

// Block does nothing, because the test chooses what is denied.
func (s *stubbed) Block(context.Context, *limits.Set, string, int64, bool) error { return nil }

// Renew does nothing, because nothing expires.
func (s *stubbed) Renew([]*hold.Renewal) {}

func (s *stubbed) call(method, key string, cost int64) error {
	_, err := s.stub.Call(method, key, cost)
	return err
}
