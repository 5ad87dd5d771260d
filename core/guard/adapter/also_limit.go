package adapter

import (
	"fmt"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// addAlsoLimits makes a Guard for each AlsoLimit. Such a Guard finds the limiter, the key and the cost of
// a request. addAlsoLimits panics if limiters are to decide together and one has a LeakyBucket.
func (g *Guard) addAlsoLimits() {
	for _, m := range g.settings.AlsoLimits {
		g.alsoLimits = append(g.alsoLimits, &Guard{limiter: m.Limiter, key: m.Key, peer: g.peer, settings: m.Settings})
	}
	if g.alsoLimits == nil {
		return
	}
	for _, m := range append(g.alsoLimits, g) {
		if _, queue, _ := inside.Core.NeedsEnd(m.limiter); queue {
			panic(fmt.Sprintf("guard: AlsoLimit: limiter %q has a LeakyBucket: a place in its queue cannot be given back exactly: "+
				"mount a middleware of its own", m.limiter.Name()))
		}
	}
}

// decideTogether makes the limiter of the middleware and the limiters of AlsoLimit decide together, and
// records the outcome in v. It does not wait, because WaitUpTo and AlsoLimit cannot be combined. It
// returns false if v already has its Status, because a key function or LimiterFor has failed, or because
// the limits cannot decide together.
func (g *Guard) decideTogether(r keyfunc.Request, key string, v *Verdict) bool {
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

// keysOf returns the keys of r for all limiters. key is the key for the limiter of the middleware. If a
// key function or LimiterFor fails, keysOf sets the Status of v and returns false.
func (g *Guard) keysOf(r keyfunc.Request, key string, v *Verdict) (keys []core.Keyed, ok bool) {
	first := v.limiter
	keys = append(make([]core.Keyed, 0, 1+len(g.alsoLimits)), g.decider(first).On(key))
	v.slots, _, _ = inside.Core.NeedsEnd(first)
	for _, m := range g.alsoLimits {
		v.limiter = m.limiter
		v.state.limiter.Store(m.limiter) // the key function logs to the logger of this limiter
		key, ok := m.choose(r, v)
		if !ok {
			return nil, false
		}
		slots, _, _ := inside.Core.NeedsEnd(v.limiter)
		v.slots = v.slots || slots
		k := g.decider(v.limiter).On(key)
		if m.settings.Cost != nil {
			k = k.Cost(m.costOf(r))
		}
		keys = append(keys, k)
	}
	v.limiter = first
	v.state.limiter.Store(first)
	return keys, true
}
