package core

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/memory"
)

// decideInMemory decides by the state in s: that of NewMemory, or of FailLocal.
func (l *Limiter) decideInMemory(ctx context.Context, s *memory.Store, c call, to target) {
	by, source := l.by, SourceMemory
	if s != l.family.memory {
		by, source = l.by.Fallback, SourceFallback
	}
	var inline [1]algorithm.Answer // it needs no allocation: it stays on the stack
	answers := inline[:]
	if len(by.Members) > len(inline) {
		answers = make([]algorithm.Answer, len(by.Members))
	}
	h := to.newHold(l, c, by)
	if h == nil && l.family.bans == nil {
		s.Decide(by.Memory, c.key, c.n, c.op == algorithm.OpCharge, answers)
		c.fill(to.Result, by, answers, source)
		return
	}
	asked := algorithm.HoldCall{Op: c.op, N: c.n, Bans: l.bansOn(c, by)}
	if h != nil {
		h.SlotsMove, asked.Handles = true, h.Handles()
	}
	ban, admitted := s.Hold(by.Memory, c.key, asked, answers)
	c.fillOrBan(to.Result, by, answers, ban, source)
	l.tellBan(ctx, c.key, ban, to.Result)
	if admitted {
		to.attach(h, memoryKeeper{s})
	}
}
