package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/hold"
	"github.com/redislimit/redislimit/internal/limits"
	"github.com/redislimit/redislimit/internal/memory"
)

// inMemory is a backend in the memory of this process, for NewMemory and for FailLocal. It never fails.
type inMemory struct {
	store  *memory.Store
	source decision.Source
	now    func() time.Time
	bans   bool // keys may be banned
}

// Decide decides by the limits of c. For FailLocal, it decides by this process's share of these limits.
func (s *inMemory) Decide(_ context.Context, c *decision.Call, r *decision.Reply) error {
	set := c.Set
	if s.source == decision.Fallback {
		set = set.Fallback
	}
	r.Set, r.N, r.Source = set, c.N, s.source
	h := c.NewHold(set, s.now)
	if h == nil && !s.bans {
		s.store.Decide(set.Memory, c.Key, c.N, c.Writes(), r.Room())
		r.Conclude()
		return nil
	}
	if h != nil {
		h.Keeper, h.SlotsMove = s, true
	}
	r.Ban, _ = s.store.DecideHold(set.Memory, c.Key, c.Request(set, h), r.Room())
	if r.Conclude(); r.Allowed {
		r.Hold = h
	}
	return nil
}

// End carries out e. It never fails.
func (s *inMemory) End(_ context.Context, e hold.Ending) error {
	s.store.End(e.Set.Memory, e.Key, endingOperation(e))
	if e.Freed != nil {
		e.Freed()
	}
	return nil
}

// Renew carries out renewals.
func (s *inMemory) Renew(all []*hold.Renewal) {
	for _, r := range all {
		if handles := r.Begin(); handles != nil {
			r.End(s.store.Renew(r.Set.Memory, r.Key, r.N, handles), nil)
		}
	}
}

// Reset forgets what was charged to key.
func (s *inMemory) Reset(_ context.Context, set *limits.Set, key string) error {
	s.store.Reset(set.Memory, key)
	return nil
}

// Block bans key, or ends its ban; see backend.
func (s *inMemory) Block(_ context.Context, set *limits.Set, key string, lasts int64, atLeast bool) error {
	s.store.Block(set.Memory, key, lasts, atLeast)
	return nil
}
