package together

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// findTogether makes decisions on two keys until the library has found out that one script may decide on both.
func findTogether(t *testing.T, sent func() int64, user, org *core.Limiter) {
	t.Helper()
	tries := 0
	check.Within(t, patient, "one script decides on two keys", func() bool {
		tries++
		before, key := sent(), fmt.Sprint("try ", tries)
		_, err := core.AllowAll(t.Context(), 1, user.On(key), org.On(key+" of org"))
		return err == nil && sent() == before+1
	})
}

// TestScriptLost loses the reply to the script that decides on two keys. Its charges stay, one in each key, and each
// limiter decides by its own outage policy.
func TestScriptLost(t *testing.T) {
	for name, c := range map[string]struct {
		user, org core.Option
		err       error
		source    core.Source
		left      int64 // units that remain of the user's share in this process
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
			client := redisclient.New(t, &redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
			user := core.MustNew(client, "user", core.FixedWindow(core.Per(perUser, long)), core.Timeout(patient), c.user)
			org := core.MustNew(client, "org", core.GCRA(core.Per(perOrg, long)), core.Timeout(patient), c.org)
			findTogether(t, proxy.Requests, user, org)
			proxy.DropReply()
			res, err := core.AllowAll(t.Context(), 1, user.On("k"), org.On("k2"))
			proxy.Pass()
			if !errors.Is(err, c.err) || res.Source != c.source || err == nil && !res.Allowed || res.Remaining != c.left {
				t.Errorf("got %+v, %v; want %v, or else a decision by %v with %d remaining", res, err, c.err, c.source, c.left)
			}
			for lim, key := range map[*core.Limiter]string{user: "k", org: "k2"} {
				check.Within(t, patient, "Redis decides again", func() bool {
					res, err := lim.Peek(context.Background(), key)
					return err == nil && res.Source == core.SourceRedis
				})
				if n := used(t, lim, key); n != 1 {
					t.Errorf("%s has %d units charged, want 1", lim.Name(), n)
				}
			}
		})
	}
}

// TestScriptObserved checks which observers are notified: of an admission, the observers of both limiters; of a denial, the
// observers of the limiter that denied. This process repeats the denial for as long as a denial of that limiter alone.
func TestScriptObserved(t *testing.T) {
	proxy := faultproxy.New(t, redistest.Server(t).Addr)
	client := redisclient.New(t, &redis.Options{Addr: proxy.Addr()})
	var observed []string
	var limiters []*core.Limiter
	for i, name := range []string{"user", "org"} {
		limiters = append(limiters, core.MustNew(client, name, core.FixedWindow(core.Per(perUser-int64(i), long)), core.Observe(func(_ context.Context, e core.Event) {
			if e.Kind == core.EventDecision {
				observed = append(observed, fmt.Sprint(e.Result.LimiterName, " ", e.Result.Allowed, " ", e.Cost, " ", e.Result.Source))
			}
		})))
	}
	decide := func(key string, cost int64) (core.Result, int64) {
		observed = nil
		before := proxy.Requests()
		res, err := core.AllowAll(t.Context(), cost, limiters[0].On(key), limiters[1].On(key+" of org").Cost(1))
		check.Need(t, err)
		return res, proxy.Requests() - before
	}
	findTogether(t, proxy.Requests, limiters[0], limiters[1])
	for i, c := range []struct {
		cost     int64
		allowed  bool
		sent     int64
		observed []string
	}{
		{2, true, 1, []string{"user true 2 redis", "org true 1 redis"}},
		{perUser, false, 1, []string{"user false 5 redis"}},
		{perUser, false, 0, []string{"user false 5 deny_cache"}},
		{1, true, 1, []string{"user true 1 redis", "org true 1 redis"}},
		{1, true, 1, []string{"user true 1 redis", "org true 1 redis"}},
		{1, true, 1, []string{"user true 1 redis", "org true 1 redis"}},
		{1, false, 1, []string{"user false 1 redis", "org false 1 redis"}},
		{1, false, 0, []string{"org false 1 deny_cache"}},
	} {
		res, sent := decide("k", c.cost)
		if res.Allowed != c.allowed || sent != c.sent || !slices.Equal(observed, c.observed) {
			t.Errorf("decision %d: got %+v by %d commands, and the events %q; want Allowed %v, %d commands and %q", i, res, sent, observed, c.allowed, c.sent, c.observed)
		}
	}
}

// A refusal is an error that seems to come from Redis, for a call that Redis has carried out.
type refusal struct{}

func (refusal) Error() string { return "ERR refused" }
func (refusal) RedisError()   {}

// TestScriptRefused makes Redis seem to refuse one call while it answers others: a call that Redis has already carried out
// is not made again.
func TestScriptRefused(t *testing.T) {
	client := redistest.Server(t).Client(t)
	var refuses atomic.Bool
	client.AddHook(gate.Around(func(commands []redis.Cmder, send func() error) error {
		err := send()
		// Other commands are probes and late settlements of the decisions before.
		if err == nil && strings.Contains(fmt.Sprint(commands), "refused") && refuses.Swap(false) {
			return refusal{}
		}
		return err
	}))
	user := core.MustNew(client, "user", core.FixedWindow(core.Per(perUser, long)))
	org := core.MustNew(client, "org", core.GCRA(core.Per(perOrg, long)))
	findTogether(t, gate.Count(client), user, org)
	refuses.Store(true)
	res, err := core.AllowAll(t.Context(), 1, user.On("k"), org.On("refused"))
	if err != nil || !res.Allowed || res.Source != core.SourceFallback {
		t.Errorf("got %+v, %v; want it admitted by the fallback", res, err)
	}
	if a, b := used(t, user, "k"), used(t, org, "refused"); a != 1 || b != 1 {
		t.Errorf("the keys have %d and %d units charged, want 1 and 1", a, b)
	}
}
