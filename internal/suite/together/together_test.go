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
	long     = 400 * 24 * time.Hour // a period of which no unit comes back during a test
)

func TestMain(m *testing.M) {
	if addrs := os.Getenv(doomedEnv); addrs != "" {
		doomed(strings.Split(addrs, ","))
		return
	}
	os.Exit(check.Run(m))
}

// A place is where the limiters of users and the limiter of their organization store their counts. One server stores both,
// or each limiter has a server of its own, or both are on a Cluster, where keys are on different nodes.
type place struct {
	name    string
	users   func(name string, opts ...core.Option) *core.Limiter
	org     func(name string, opts ...core.Option) *core.Limiter
	proxies []*faultproxy.Proxy
}

// over returns a place on servers that are reached through proxies of its own.
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

// names numbers the limiters, so that each has keys of its own.
var names atomic.Int64

// A crowd is a number of callers, each of which belongs to one of the users, and a count of the admitted units.
type crowd struct {
	users, org *core.Limiter

	mu       sync.Mutex
	admitted map[string]int64 // by user
	all      int64
}

func (p *place) crowd(user, org core.Limit, opts ...core.Option) *crowd {
	n := names.Add(1)
	return &crowd{
		users: p.users(fmt.Sprint("user", n), append(opts, user)...), org: p.org(fmt.Sprint("org", n), append(opts, org)...),
		admitted: map[string]int64{},
	}
}

// user returns the user to whom a caller belongs.
func user(caller int) string { return fmt.Sprint("user:", caller%users) }

func (c *crowd) add(user string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.admitted[user] += n
	c.all += n
}

// call makes the call of one caller, which tries again if RetryAfter is at most a second.
func (c *crowd) call(ctx context.Context, t *testing.T, caller int) {
	for deadline := time.Now().Add(patient); ; time.Sleep(tripTime) {
		keys := []core.Keyed{c.users.On(user(caller)), c.org.On("org")}
		if caller%2 == 0 {
			slices.Reverse(keys) // the order of the arguments differs from the order of the calls
		}
		res, err := core.AllowAll(ctx, 1, keys...)
		switch {
		case err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrUnavailable):
			t.Errorf("AllowAll: got error %v, want nil or ErrUnavailable", err)
			return
		case err != nil:
			return
		case res.Allowed:
			c.add(user(caller), 1)
			return
		case res.RetryAfter > time.Second:
			return
		case time.Now().After(deadline):
			t.Errorf("after 50 seconds of retries: got %+v, want it allowed or a RetryAfter of more than a second", res)
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

// wantUsed waits until exactly the admitted units are charged.
func (c *crowd) wantUsed(t *testing.T) {
	t.Helper()
	check.Within(t, patient, fmt.Sprintf("the organization has used %d units", c.all), func() bool { return used(t, c.org, "org") == c.all })
	for i := range users {
		check.Within(t, patient, user(i)+" has used the admitted units", func() bool { return used(t, c.users, user(i)) == c.admitted[user(i)] })
	}
}

// wantTogether waits until the units that are charged to all users are charged to the organization, too. They may be more
// than the admitted ones.
func (c *crowd) wantTogether(t *testing.T) {
	t.Helper()
	check.Within(t, patient, fmt.Sprintf("the organization has used as many units as all users, at least %d", c.all), func() bool {
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
		t.Errorf("the organization was admitted %d units, want at most %d", c.all, perOrg)
	}
	for user, n := range c.admitted {
		if n > perUser {
			t.Errorf("%s was admitted %d units, want at most %d", user, n, perUser)
		}
	}
}

// TestTogether runs every case on every place.
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

// allOrNone makes 80 callers call at once, none of which leaves: exactly 12 calls are admitted, and charged to the users
// and to the organization. If only one user calls, 5 calls are admitted.
func (p *place) allOrNone(t *testing.T, v limits.Variant) {
	c := p.crowd(v.Limit(core.Per(perUser, long)), v.Limit(core.Per(perOrg, long)))
	var all sync.WaitGroup
	for range perOrg {
		all.Go(func() { c.call(t.Context(), t, 0) })
	}
	all.Wait()
	if c.all != perUser {
		t.Errorf("%d calls of one user were admitted, want %d", c.all, perUser)
	}
	c.wantUsed(t)
	for i := range callers {
		all.Go(func() { c.call(t.Context(), t, i) })
	}
	all.Wait()
	c.wantWithin(t)
	if c.all != perOrg {
		t.Errorf("%d calls of the organization were admitted, want %d", c.all, perOrg)
	}
	c.wantUsed(t)
}

// leavers makes callers whose contexts end at random. A call that was denied or abandoned is not charged anywhere. If one
// script decides on all limiters, it may still charge an abandoned call, as with one limiter, but then it charges every
// limiter.
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

// reserved makes callers take slots and units, and work. At no time do more callers work than there are slots. Afterwards
// all slots are free, and calls that were canceled have used no units.
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
	check.Within(t, patient, "the units of the work that was done are used", func() bool { return used(t, calls, "k") == 2*done.Load() })
}

// repeated makes a client repeat a denied request: the denial is remembered, and no units of other limiters are held for
// it.
func (p *place) repeated(t *testing.T) {
	const times = 20
	c := p.crowd(core.GCRA(core.Per(1, long)), core.FixedWindow(core.Per(2, long)))
	for caller := range 3 { // the organization denies the third user, whose own limit is decided first and is unused
		c.call(t.Context(), t, caller)
	}
	c.wantUsed(t)
	before := p.requests()
	for range times {
		c.call(t.Context(), t, 2)
	}
	if n := p.requests() - before; n > times {
		t.Errorf("%d requests were sent to Redis for %d repeated denials, want at most one for each", n, times)
	}
	c.wantUsed(t)
}

func (p *place) requests() (n int64) {
	for _, proxy := range p.proxies {
		n += proxy.Requests()
	}
	return n
}

// over makes 256 callers of one user, the attacker, exceed the user's limit of work in flight, so that no denial is
// remembered. Other users call once each. The attacker's calls take no units of the organization, and all other users are
// served.
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
					t.Error("a call of the attacker was admitted beyond the attacker's limit, want a denial")
				}
			}
		})
	}
	for i := range others {
		all.Go(func() {
			user := fmt.Sprint("user:", i)
			r := reserve(user)
			if !r.Allowed {
				t.Errorf("%s: got %+v, want it admitted", user, r.Result)
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
	check.Within(t, patient, "no units are held any more", func() bool { return used(t, c.org, "org") == c.all && used(t, c.users, "attacker") == 0 })
}
