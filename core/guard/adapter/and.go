package adapter

import (
	"fmt"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// addMembers gives g a Guard for each AlsoLimit, which knows the key and the cost of a request there.
func (g *Guard) addMembers() {
	for _, m := range g.settings.Members {
		g.members = append(g.members, &Guard{limiter: m.Limiter, key: m.Key, peer: g.peer, settings: m.Settings})
	}
	if g.members == nil {
		return
	}
	for _, m := range append(g.members, g) {
		if _, queue, _ := inside.Core.NeedsEnd(m.limiter); queue {
			panic(fmt.Sprintf("guard: AlsoLimit: limiter %q has a LeakyBucket: a place in its queue cannot be given back exactly: "+
				"mount a middleware of its own", m.limiter.Name()))
		}
	}
}

// askAll has the limiter and those of AlsoLimit decide together. The settings have refused WaitUpTo here,
// and for a member all but Cost, Fallback and LimiterFor. It reports false if v has its Status: a
// key function failed, or the limits cannot decide together.
func (g *Guard) askAll(r keyfunc.Request, key string, v *Verdict) bool {
	keys, ok := g.keysOf(r, key, v)
	if !ok {
		return false
	}
	ctx := r.Context()
	switch {
	case g.reserves():
		v.takeReservation(core.ReserveAll(ctx, v.cost, keys...))
	case v.slots:
		v.takePermit(core.AcquireAll(ctx, v.cost, keys...))
	default:
		v.Result, v.Err = core.AllowAll(ctx, v.cost, keys...)
	}
	return v.Err == nil || !g.isWrong(ctx, v, v.Err)
}

// keysOf returns all keys of r, of which that of the middleware itself is known.
func (g *Guard) keysOf(r keyfunc.Request, key string, v *Verdict) (keys []core.Keyed, ok bool) {
	own := v.limiter
	keys = append(make([]core.Keyed, 0, 1+len(g.members)), g.asked(own).On(key))
	v.slots, _, _ = inside.Core.NeedsEnd(own)
	for _, m := range g.members {
		v.limiter = m.limiter
		v.state.limiter.Store(m.limiter) // what the key function logs is about this one
		key, ok := m.choose(r, v)
		if !ok {
			return nil, false
		}
		slots, _, _ := inside.Core.NeedsEnd(v.limiter)
		v.slots = v.slots || slots
		k := g.asked(v.limiter).On(key)
		if m.settings.Cost != nil {
			k = k.Cost(m.costOf(r))
		}
		keys = append(keys, k)
	}
	v.limiter = own
	v.state.limiter.Store(own)
	return keys, true
}
