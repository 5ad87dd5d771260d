package httpsuite

import (
	"net/http"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
)

// dryRunCases test a limiter that decides and charges but shows nothing to clients.
func dryRunCases() []testCase {
	return []testCase{
		{"DryRun", dryRun, nil},
		{"DryRunFails", dryRunFails, nil},
		{"DryRunDelays", dryRunDelays, nil},
	}
}

// dry makes limit a dry run, with every option that could show something to clients.
func dry(limit Limit) Limit {
	limit.Options = []guard.Option{guard.DryRun(), guard.Headers(guard.XRateLimit | guard.IETF), guard.ExposeHeaders()}
	limit.OnDenied = &Handler{Body: "denied"}
	limit.OnError = &Handler{Body: "failed"}
	return limit
}

func dryRun(b *testbed) {
	limit := dry(b.fixed(1))
	s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: ShowResult}})
	for _, allowed := range []string{"true", "false", "false"} {
		ans := s.get("/a")
		ans.want(http.StatusOK, "fixed-1m allowed="+allowed+" limit=1 remaining=0 delay=0s")
		ans.wantNoHeaders()
	}
	b.wantLeft(limit.Limiter, ipKey, 0)
}

// dryRunFails makes the key function fail, and then Redis. Clients do not notice.
func dryRunFails(b *testbed) {
	ans := b.behind(dry(b.broken())).get("/a")
	ans.wantServed()
	ans.wantNoHeaders()
	ans.wantHidden("secret detail")
	b.wantLogged("secret detail")

	s := b.behind(dry(b.fixed(1)))
	b.redis.SetError("LOADING redis detail")
	b.until("logged", func() bool {
		ans = s.get("/a")
		ans.wantServed()
		ans.wantNoHeaders()
		ans.wantHidden("redis detail")
		return b.logs.Count("redis detail") > 0
	})
}

// dryRunDelays uses a queue that would delay a request for an hour.
func dryRunDelays(b *testbed) {
	lim := b.limiter(core.LeakyBucket(core.Per(1, time.Hour), core.Burst(3)))
	s := b.behind(dry(Limit{Limiter: lim, Key: keyfunc.IP()}))
	for range 2 {
		s.get("/a").wantServed()
	}
	b.wantLeft(lim, ipKey, 1)
}
