package guard

import (
	"context"
	"sync"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/keyfunc"
)

// LimitFor chooses the limits of a request, such as those of a customer's contract that
// were read from a database: they replace all limits of the limiter, as [core.Limiter.With]
// does. If limits returns none and no error, those of the limiter apply.
//
//	guard.LimitFor(func(r keyfunc.Request) ([]core.Limit, error) {
//		u, _ := r.Value(userKey{}).(user) // as authenticated
//		perMinute, ok := plans.Of(u)
//		if !ok {
//			return nil, nil // the limits that the middleware was mounted with
//		}
//		return []core.Limit{core.TokenBucket(core.PerMinute(perMinute), core.Name("requests"))}, nil
//	})
//
// It is called for each request, so the numbers are to be in memory. An error, and a
// wrong limit such as one of 0 per minute, is answered with 500; a wrong limit is
// logged once for each message. It also applies to the limiter that [LimiterFor]
// chooses.
func LimitFor(limits func(keyfunc.Request) ([]core.Limit, error)) Option {
	mustFunc(limits == nil, "LimitFor", "chooses the limits of a request")
	return func(g *Guard) { g.limitFor = limits }
}

// withLimits returns lim, or that with the limits of r.
func (g *Guard) withLimits(r keyfunc.Request, lim *core.Limiter) (*core.Limiter, error) {
	limits, err := g.limitFor(r)
	switch {
	case err != nil:
		logError(r.Context(), lim, "redislimit: LimitFor failed", err)
		return nil, err
	case limits == nil:
		return lim, nil
	}
	derived, err := lim.With(limits...)
	if err != nil {
		g.wrongLimits.log(r.Context(), lim, err)
	}
	return derived, err
}

// maxWrong bounds how many messages about wrong limits are remembered.
const maxWrong = 1000

// wrongLimits are the messages that were logged.
type wrongLimits struct {
	mu     sync.Mutex
	logged map[string]bool
}

// log logs err, unless it was logged before.
func (w *wrongLimits) log(ctx context.Context, lim *core.Limiter, err error) {
	w.mu.Lock()
	known := w.logged[err.Error()]
	if !known {
		if w.logged == nil || len(w.logged) >= maxWrong {
			w.logged = make(map[string]bool)
		}
		w.logged[err.Error()] = true
	}
	w.mu.Unlock()
	if !known {
		logError(ctx, lim, "redislimit: a wrong limit from LimitFor; requests with it are answered with 500, and this is logged once", err)
	}
}
