package core

import (
	"context"
	"errors"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/server"
)

// A joint is a decision on all keys by one script of one server: nothing is held, and nobody is denied by what
// another call has for a moment.
type joint struct {
	*together

	store *server.Store
	parts []server.Part
}

// joint returns the decision by which all are charged or none. The error is server.ErrApart if there is none: keys of several servers, in
// memory, of leases, whose units this process has, and what costs nothing, which an overdrawn limit admits, too.
func (t *together) joint(ctx context.Context) (*joint, error) {
	j := &joint{together: t, parts: make([]server.Part, len(t.members))}
	for i := range t.members {
		m := &t.members[i]
		l, c := m.limiter, m.call(t.n)
		if l.store == nil || l.leases != nil || c.n == 0 {
			return nil, server.ErrApart
		}
		c.op = algorithm.OpCharge
		asked := algorithm.HoldCall{Op: c.op, N: c.n, Bans: l.bansOn(c, l.by)}
		j.parts[i] = server.Part{Store: l.store, Call: server.NewCall(l.by.Server, c.key, asked)}
		m.stamp = l.denials.Stamp(m.key, time.Time{})
	}
	var err error
	j.store, err = server.Together(ctx, j.parts)
	return j, err
}

// decide writes the tightest Result of all limits to res. If the server does not decide, the error is its.
func (j *joint) decide(ctx context.Context, res *Result) error {
	began := time.Now()
	if err := j.store.DecideAll(ctx, j.parts); err != nil {
		return err
	}
	took, admitted, barred, limits := time.Since(began), true, false, 0
	for _, p := range j.parts {
		limits += len(p.Answers)
		admitted = admitted && p.Admitted()
		ban := p.Ban()
		barred = barred || ban.Until > 0 && !ban.Began
	}
	all := make([]Result, 0, limits)
	for i := range j.members {
		if barred && j.parts[i].Ban().Until == 0 {
			continue // it was not asked
		}
		one := j.answer(ctx, i, admitted)
		for each := range one.All() {
			all = append(all, each)
		}
		if admitted || !one.Allowed {
			m := &j.members[i]
			m.limiter.events.emit(ctx, m.key, Event{Kind: EventDecision, Result: one, Cost: m.cost(j.n), Took: took})
		}
	}
	*res = combine(all, admitted)
	return nil
}

// answer returns the Result of the i-th key, and remembers its denial.
func (j *joint) answer(ctx context.Context, i int, admitted bool) (res Result) {
	m, d := &j.members[i], j.parts[i].Call
	l, c := m.limiter, m.call(j.n)
	if !admitted {
		c.op = algorithm.OpEvaluate // another denies
	}
	c.fillOrBan(&res, l.by, d.Answers, d.Ban(), SourceRedis)
	if !res.Allowed {
		l.remember(ctx, c, d, &res, m.stamp)
	}
	return res
}

// decideJointly decides by one script, if one may have all keys, or else by the plain decision on the only key.
// Otherwise done is false. If the server does not decide, each limiter goes by its own outage policy.
func (t *together) decideJointly(ctx context.Context, res *Result) (done bool, err error) {
	if len(t.members) == 1 {
		c := t.members[0].call(t.n)
		c.op = algorithm.OpCharge
		return true, t.members[0].limiter.allow(ctx, c, res)
	}
	j, lost := t.joint(ctx)
	if lost == nil {
		if t.remembersDenial(ctx, res) {
			return true, nil
		}
		lost = j.decide(ctx, res)
	}
	if !errors.Is(lost, server.ErrApart) {
		t.lost = lost
	}
	return lost == nil, nil
}

// acquireWithout is acquire after Redis has failed to decide: the outage policy does.
func (l *Limiter) acquireWithout(ctx context.Context, c call, lost error) (*Reservation, error) {
	r, start := &Reservation{limiter: l}, time.Now()
	err := l.withoutRedis(ctx, c, target{&r.Result, r}, lost)
	l.events.emit(ctx, c.key, Event{Kind: EventDecision, Result: r.Result, Cost: c.n, Took: time.Since(start), Err: err})
	return l.acquired(c, r, err)
}
