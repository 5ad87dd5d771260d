package together

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/faultproxy"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

const (
	callers  = 80
	users    = 16
	perUser  = 5
	perOrg   = 12
	tripTime = 2 * time.Millisecond
	patient  = 50 * time.Second
	long     = 400 * 24 * time.Hour // in which nothing comes back during a test
)

func TestMain(m *testing.M) {
	if addrs := os.Getenv(doomedEnv); addrs != "" {
		doomed(strings.Split(addrs, ","))
		return
	}
	os.Exit(check.Run(m))
}

// A place is where the limiters of users and the limiter of their organization store their counts: one
// server has both, or each has its own, or they are on a Cluster, where keys are on different nodes.
type place struct {
	name    string
	users   func(name string, opts ...core.Option) *core.Limiter
	org     func(name string, opts ...core.Option) *core.Limiter
	proxies []*faultproxy.Proxy
}

// over returns a place on servers, through proxies of its own.
func over(t *testing.T, name string, users, org []string) *place {
	t.Helper()
	p := &place{name: name}
	client := func(addrs []string) redis.UniversalClient {
		proxies, dial := faultproxy.Before(t, addrs...)
		for _, proxy := range proxies {
			proxy.Latency(tripTime / 2)
		}
		p.proxies = append(p.proxies, proxies...)
		c := redisclient.NewUniversal(t, &redis.UniversalOptions{
			Addrs: addrs, IsClusterMode: len(addrs) > 1, PoolSize: callers, PoolTimeout: patient, ReadTimeout: patient, MaxRetries: -1, Dialer: dial,
		})
		return c
	}
	limiters := func(c redis.UniversalClient) func(string, ...core.Option) *core.Limiter {
		return func(name string, opts ...core.Option) *core.Limiter {
			l := core.MustNew(c, name, append([]core.Option{core.FailClosed(), core.Timeout(patient), core.Logger(slog.New(slog.DiscardHandler))}, opts...)...)
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
	}
	c := client(users)
	p.users, p.org = limiters(c), limiters(c)
	if !slices.Equal(users, org) {
		p.org = limiters(client(org))
	}
	return p
}

func places(t *testing.T) []*place {
	t.Helper()
	one, other, cluster := redistest.Server(t).Addr, redistest.Server(t).Addr, redistest.Cluster(t)
	return []*place{
		{name: "Memory", users: core.MustNewMemory, org: core.MustNewMemory},
		over(t, "Redis", []string{one}, []string{one}),
		over(t, "Two", []string{one}, []string{other}),
		over(t, "Cluster", cluster, cluster),
	}
}

var names atomic.Int64 // of limiters: each has keys of its own

// A crowd has callers, each of one of the users, and counts what they were admitted.
type crowd struct {
	users, org *core.Limiter

	mu       sync.Mutex
	admitted map[string]int64 // of each user
	all      int64
}

func (p *place) crowd(user, org core.Limit, opts ...core.Option) *crowd {
	n := names.Add(1)
	return &crowd{
		users: p.users(fmt.Sprint("user", n), append(opts, user)...), org: p.org(fmt.Sprint("org", n), append(opts, org)...),
		admitted: map[string]int64{},
	}
}

func user(caller int) string { return fmt.Sprint("user:", caller%users) }

func (c *crowd) add(user string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admitted[user] += n
	c.all += n
}

// call makes the call of one caller, which tries again if it may come back within a second.
func (c *crowd) call(ctx context.Context, t *testing.T, caller int) {
	for deadline := time.Now().Add(patient); ; time.Sleep(tripTime) {
		keys := []core.Keyed{c.users.On(user(caller)), c.org.On("org")}
		if caller%2 == 0 {
			slices.Reverse(keys) // the order of the arguments differs from the order of the calls
		}
		res, err := core.AllowAll(ctx, 1, keys...)
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrUnavailable):
			t.Error(err)
			return
		case err != nil:
			return
		case res.Allowed:
			c.add(user(caller), 1)
			return
		case res.RetryAfter > time.Second:
			return
		case time.Now().After(deadline):
			t.Errorf("still denied for a moment only: %+v", res)
			return
		}
	}
}

// used returns how many units of a key are charged or held.
func used(t *testing.T, lim *core.Limiter, key string) int64 {
	t.Helper()
	res, err := lim.Peek(context.Background(), key)
	check.OK(t, err)
	return res.Limit - res.Remaining
}

// wantUsed waits until what is charged is what was admitted, and nothing else.
func (c *crowd) wantUsed(t *testing.T) {
	t.Helper()
	check.Within(t, patient, fmt.Sprintf("%d used", c.all), func() bool { return used(t, c.org, "org") == c.all })
	for i := range users {
		check.Within(t, patient, user(i)+": what was admitted is used", func() bool { return used(t, c.users, user(i)) == c.admitted[user(i)] })
	}
}

// wantTogether waits until what is charged to all users is charged to the organization, too: it may be more than was admitted.
func (c *crowd) wantTogether(t *testing.T) {
	t.Helper()
	check.Within(t, patient, fmt.Sprintf("%d used, or more", c.all), func() bool {
		sum := int64(0)
		for i := range users {
			n := used(t, c.users, user(i))
			if sum += n; n < c.admitted[user(i)] {
				return false
			}
		}
		return used(t, c.org, "org") == sum
	})
}

// wantWithin checks that no limit was exceeded.
func (c *crowd) wantWithin(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all > perOrg {
		t.Errorf("%d of the organization, want at most %d", c.all, perOrg)
	}
	for user, n := range c.admitted {
		if n > perUser {
			t.Errorf("%s: %d, want at most %d", user, n, perUser)
		}
	}
}

// TestTogether has all of it on every place.
func TestTogether(t *testing.T) {
	for _, p := range places(t) {
		t.Run(p.name, func(t *testing.T) {
			for _, v := range limits.Plain() {
				if !v.Kind.Delays {
					t.Run("AllOrNone/"+v.Name, func(t *testing.T) { p.allOrNone(t, v) })
				}
			}
			t.Run("Leavers", p.leavers)
			t.Run("Reserved", p.reserved)
			t.Run("LostReplies", p.lostReplies)
			t.Run("Repeated", p.repeated)
			t.Run("Over/Slots", func(t *testing.T) { p.over(t, core.InFlight(2), 2) })
			t.Run("Over/Held", func(t *testing.T) { p.over(t, core.FixedWindow(core.PerHour(5)), 5) })
			if p.name == "Two" {
				t.Run("HalfAway", p.halfAway)
			}
		})
	}
}

// allOrNone has 80 callers at once, of whom none leaves: exactly twelve are admitted, and charged in both; or five of a user,
// where only one of them calls.
func (p *place) allOrNone(t *testing.T, v limits.Variant) {
	c := p.crowd(v.Limit(core.Per(perUser, long)), v.Limit(core.Per(perOrg, long)))
	var all sync.WaitGroup
	for range perOrg {
		all.Go(func() { c.call(t.Context(), t, 0) })
	}
	all.Wait()
	if c.all != perUser {
		t.Errorf("%d of one user, want %d", c.all, perUser)
	}
	c.wantUsed(t)
	for i := range callers {
		all.Go(func() { c.call(t.Context(), t, i) })
	}
	all.Wait()
	c.wantWithin(t)
	if c.all != perOrg {
		t.Errorf("%d of the organization, want %d", c.all, perOrg)
	}
	c.wantUsed(t)
}

// leavers has callers whose contexts end at random: calls that were denied, or for which nobody waits, are
// charged nowhere. As with one limiter, one script may still charge a call for which nobody waits any more:
// in every limiter or in none.
func (p *place) leavers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		c := p.crowd(core.GCRA(core.Per(perUser, long)), core.FixedWindow(core.Per(perOrg, long)))
		var all sync.WaitGroup
		for i := range callers {
			stays := time.Duration(random.Int64N(int64(10 * tripTime)))
			all.Go(func() {
				ctx, leave := context.WithTimeout(t.Context(), stays)
				defer leave()
				c.call(ctx, t, i)
			})
		}
		all.Wait()
		c.wantWithin(t)
		if p.name == "Redis" {
			c.wantTogether(t)
		} else {
			c.wantUsed(t)
		}
	}
}

// reserved has callers that take slots and units, and work. Never do more callers work than there are
// slots. Afterwards all slots are free, and callers that failed have used nothing.
func (p *place) reserved(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	c := p.crowd(core.InFlight(perUser), core.InFlight(perOrg))
	calls := p.org(fmt.Sprint("calls", names.Add(1)), core.SlidingWindowCounter(core.Per(1000, long)))
	var all sync.WaitGroup
	var done atomic.Int64
	for i := range callers {
		stays, fails := time.Duration(random.Int64N(int64(20*tripTime))), i%3 == 0
		all.Go(func() {
			ctx, leave := context.WithTimeout(t.Context(), stays)
			defer leave()
			r, err := core.ReserveAll(ctx, 1, c.users.On(user(i)), calls.On("k").Cost(2), c.org.On("org"))
			if err != nil || !r.Allowed {
				return
			}
			c.add(user(i), 1)
			c.wantWithin(t)
			time.Sleep(tripTime)
			c.add(user(i), -1)
			if fails {
				err = r.Cancel(ctx)
			} else {
				done.Add(1)
				err = r.Settle(ctx, 7)
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c.wantUsed(t)
	check.Within(t, patient, "what was done is used", func() bool { return used(t, calls, "k") == 2*done.Load() })
}

// repeated makes a client repeat a denied request: the denial is remembered, and no units of others are
// held for it.
func (p *place) repeated(t *testing.T) {
	const times = 20
	c := p.crowd(core.GCRA(core.Per(1, long)), core.FixedWindow(core.Per(2, long)))
	for caller := range 3 { // the organization denies the last user, who is decided first and has not used their own units
		c.call(t.Context(), t, caller)
	}
	c.wantUsed(t)
	before := p.requests()
	for range times {
		c.call(t.Context(), t, 2)
	}
	if n := p.requests() - before; n > times {
		t.Errorf("%d requests to Redis for %d denials that it has made before", n, times)
	}
	c.wantUsed(t)
}

func (p *place) requests() (n int64) {
	for _, proxy := range p.proxies {
		n += proxy.Requests()
	}
	return n
}

// over has users that call once each, while 256 callers of one user exceed that user's limit of work in
// flight, so no denial is remembered. These callers take nothing of the organization, and all other users
// are served.
func (p *place) over(t *testing.T, own core.Limit, taken int) {
	const attackers, others = 256, 40
	c := p.crowd(own, core.TokenBucket(core.Per(100, long)))
	reserve := func(user string) *core.Reservation {
		r, err := core.ReserveAll(t.Context(), 1, c.org.On("org"), c.users.On(user))
		if err != nil {
			t.Error(err)
			return &core.Reservation{}
		}
		return r
	}
	var works []*core.Reservation
	for range taken {
		works = append(works, reserve("attacker"))
	}
	var attack, all sync.WaitGroup
	var ended atomic.Bool
	for range attackers {
		attack.Go(func() {
			for !ended.Load() {
				if reserve("attacker").Allowed {
					t.Error("the attacker is admitted beyond his limit")
				}
			}
		})
	}
	for i := range others {
		all.Go(func() {
			user := fmt.Sprint("user:", i)
			r := reserve(user)
			if !r.Allowed {
				t.Errorf("%s is denied: %+v", user, r.Result)
				return
			}
			c.add(user, 1)
			check.OK(t, r.Settle(t.Context(), 1))
		})
	}
	all.Wait()
	ended.Store(true)
	attack.Wait()
	for _, r := range works {
		check.OK(t, r.Cancel(t.Context()))
	}
	check.Within(t, patient, "nothing is held any more", func() bool { return used(t, c.org, "org") == c.all && used(t, c.users, "attacker") == 0 })
}
