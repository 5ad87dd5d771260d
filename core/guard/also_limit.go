package guard

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/keyfunc"
)

// AlsoLimit makes another limiter, with a key of its own, decide about each request as well. As
// with [core.AllowAll], a request is admitted only if all limiters admit it, and is then charged in
// each of them. If one limiter denies the request, no limiter charges it. AlsoLimit can be given
// several times.
//
//	httplimit.Middleware(perUser, keyfunc.User(userKey{}), guard.AlsoLimit(perOrg, orgKey), guard.AlsoLimit(everybody, keyfunc.Global()))
//
// opts can contain [Cost], [LimiterFor] and [Fallback], which then apply to this limiter only. Cost
// sets the cost for this limiter in place of the middleware's cost, and [CostAfter] does not change
// it. Fallback applies to the requests in which key finds no key. Give all other options to the
// middleware: they apply to all its limiters. The headers and the Result show the tightest limit of
// all limiters, as [core.Result.Tighter] defines it: a limit that denies, or else the one with the
// smallest part of its capacity left. If the same limiter gets the same
// key twice, the costs add up.
//
// While Redis does not answer, each limiter follows its own outage policy. If a limiter with
// [core.FailClosed] cannot decide, the request is answered with 503, and what the other limiters
// hold for it is given back.
//
// The middleware panics when it is made if one of the limiters has a [core.LeakyBucket], because a
// place in its queue cannot be given back exactly. It also panics if [WaitUpTo] is given, because a
// request would hold units of one limiter while it waits for another.
func AlsoLimit(lim *core.Limiter, key keyfunc.Func, opts ...Option) Option {
	settings.MustLimit(lim, key)
	m := settings.AlsoLimit{Limiter: lim, Key: key}
	settings.Apply(&m.Settings, opts)
	return settings.NewRepeatable(func(s *settings.Settings) { s.AddAlsoLimit(m) })
}
