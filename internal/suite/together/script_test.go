package together

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestScriptLost loses the reply to the script that decides on two keys: what it charged stays, once in each, and each limiter
// decides by its own outage policy.
func TestScriptLost(t *testing.T) {
	for name, c := range map[string]struct {
		user, org core.Option
		err       error
		source    core.Source
		left      int64 // of the user's share in this process
	}{
		"both local":       {core.FailLocal(), core.FailLocal(), nil, core.SourceFallback, 4},
		"one open":         {core.FailLocal(), core.FailOpen(), nil, core.SourceFallback, 4},
		"both open":        {core.FailOpen(), core.FailOpen(), nil, core.SourceNone, 0},
		"one closed":       {core.FailLocal(), core.FailClosed(), core.ErrUnavailable, core.SourceNone, 0},
		"the other closed": {core.FailClosed(), core.FailLocal(), core.ErrUnavailable, core.SourceNone, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := faultproxy.New(t, redistest.Server(t).Addr)
			client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			user := core.MustNew(client, "user", core.FixedWindow(core.Per(perUser, long)), core.Timeout(patient), c.user)
			org := core.MustNew(client, "org", core.GCRA(core.Per(perOrg, long)), core.Timeout(patient), c.org)
			check.Within(t, patient, "two keys go by one script", func() bool {
				before := proxy.Requests()
				_, err := core.All(t.Context(), 1e6, user.On("k"), org.On("k2"))
				return err == nil && proxy.Requests() == before+1
			})
			proxy.DropReply()
			res, err := core.All(t.Context(), 1, user.On("k"), org.On("k2"))
			proxy.Pass()
			if !errors.Is(err, c.err) || res.Source != c.source || err == nil && !res.Allowed || res.Remaining != c.left {
				t.Errorf("%+v, %v", res, err)
			}
			for lim, key := range map[*core.Limiter]string{user: "k", org: "k2"} {
				check.Within(t, patient, "Redis is asked again", func() bool {
					res, err := lim.Peek(context.Background(), key)
					return err == nil && res.Source == core.SourceRedis
				})
				if n := used(t, lim, key); n != 1 {
					t.Errorf("%s: %d charged, want 1", lim.Name(), n)
				}
			}
		})
	}
}
