package core

import (
	"context"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/server"
)

// repeatDenial fills to with a denial of c that is remembered, if there is one.
func (l *Limiter) repeatDenial(c call, to target) bool {
	if c.op == algorithm.OpEvaluate {
		return false
	}
	d := l.family.denials.Get(denials.Request{Key: c.key, N: c.n, Limits: l.by})
	if d == nil {
		return false
	}
	*to.Result = d.Result
	to.age(d.Age(), SourceDenyCache)
	return true
}

// ask decides in Redis, or by the outage policy.
func (l *Limiter) ask(ctx context.Context, c call, to target, stamp denials.Stamp) error {
	d := server.NewCall(l.by.Server, c.key, algorithm.HoldCall{Op: c.op, N: c.n, Bans: l.bansOn(c, l.by)})
	h := to.newHold(l, c, l.by)
	if h != nil {
		d.Handles = h.Handles()
	}
	if err := l.store.Decide(ctx, d); err != nil {
		return l.withoutRedis(ctx, c, to, err)
	}
	c.fillOrBan(to.Result, l.by, d.Answers, d.Ban(), SourceRedis)
	switch {
	case c.op == algorithm.OpEvaluate:
	case to.Allowed:
		to.attach(h, l.keeper)
	default:
		l.remember(ctx, c, d, to.Result, stamp)
	}
	return nil
}

// remember takes a denial of c by Redis: it may be repeated, and may have begun a ban.
func (l *Limiter) remember(ctx context.Context, c call, d *server.Call, res *Result, stamp denials.Stamp) {
	ban := d.Ban()
	switch {
	case ban.Until > 0:
		l.family.denials.Put(denials.Request{Key: c.key, N: 1, Limits: l.by}, *res, res.RetryAfter, stamp)
		l.tellBan(ctx, c.key, ban, res)
	case len(l.family.bans) == 0 || l.by.Exceeded(c.n) > 0: // else the next denial may ban: it is for Redis to make
		l.family.denials.Put(denials.Request{Key: c.key, N: c.n, Limits: l.by}, *res, l.by.DeniedFor(d.Answers, c.n), stamp)
	}
}
