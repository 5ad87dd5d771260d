package guard

import (
	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard/internal/settings"
	"github.com/redislimit/redislimit/keyfunc"
)

// And counts each request by a key of another limiter, too, as [core.AllowAll] does: it is admitted only
// if all admit it, and then charged in each; if one denies it, in none. It may be given several
// times.
//
//	httplimit.Middleware(perUser, keyfunc.User(userKey{}), guard.AlsoLimit(perOrg, orgKey), guard.AlsoLimit(everybody, keyfunc.Global()))
//
// opts are what the other limiter may have of its own: [Cost], instead of that of the middleware,
// which also [CostAfter] then leaves as it is; [LimiterFor]; and [Fallback], for requests without
// its key. All other options are those of the middleware, and are for all of them. The headers and
// the Result are the tightest's, and a denial's those of the limiter that denied. Of one key of one
// limiter twice the costs add up.
//
// While Redis does not answer, each limiter goes by its own outage policy. If one is
// [core.FailClosed], the request is answered 503, and charged in none. A limiter with a LeakyBucket
// panics here, because a place in its queue cannot be given back exactly. So does [WaitUpTo] beside
// it: who waits would hold units of the others.
func AlsoLimit(lim *core.Limiter, key keyfunc.Func, opts ...Option) Option {
	settings.MustLimit(lim, key)
	m := settings.Member{Limiter: lim, Key: key}
	settings.Apply(&m.Settings, opts)
	return settings.NewRepeatable(func(s *settings.Settings) { s.And(m) })
}
