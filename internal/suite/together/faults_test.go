package together

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// held is how long units are held for callers that died or whose replies were lost.
const held = 500 * time.Millisecond

// lostReplies loses replies. No limit is exceeded, and exactly the units held for callers without a reply are charged when
// their holds expire.
func (p *place) lostReplies(t *testing.T) {
	if len(p.proxies) == 0 {
		t.Skip("a store in memory has no replies")
	}
	c := p.crowd(core.TokenBucket(core.Per(perUser, long)), core.TokenBucket(core.Per(perOrg, long)), core.Hold(held))
	var all sync.WaitGroup
	for i := range callers {
		if i == callers/4 {
			for _, proxy := range p.proxies {
				proxy.DropReply()
			}
		}
		all.Go(func() { c.call(t.Context(), t, i) })
		time.Sleep(tripTime / 4)
	}
	all.Wait()
	for _, proxy := range p.proxies {
		proxy.Pass()
	}
	c.wantWithin(t)
	c.wantExpired(t)
}

// halfAway makes the first of two servers unavailable when a reservation ends: its part on the other server
// ends nevertheless.
func (p *place) halfAway(t *testing.T) {
	c := p.crowd(core.FixedWindow(core.Per(perUser, long)), core.FixedWindow(core.Per(perOrg, long)))
	r, err := core.ReserveAll(t.Context(), 2, c.users.On(user(0)), c.org.On("org"))
	if err != nil || !r.Allowed {
		t.Fatalf("ReserveAll: got %+v, %v; want it admitted", r, err)
	}
	p.proxies[0].Refuse() // the server of the smaller limit, which is decided and ended first
	if err := r.Cancel(t.Context()); !errors.Is(err, core.ErrUnavailable) || used(t, c.org, "org") != 0 {
		t.Errorf("Cancel: got error %v, and %d units of the organization are used; want ErrUnavailable and 0", err, used(t, c.org, "org"))
	}
}

// wantExpired waits until no units are held any more. At least the admitted units are then used, and no limit is exceeded.
func (c *crowd) wantExpired(t *testing.T) {
	t.Helper()
	time.Sleep(2 * held)
	check.Within(t, patient, "Redis decides again", func() bool {
		_, err := c.org.Peek(t.Context(), "org")
		_, other := c.users.Peek(t.Context(), "user:0")
		return err == nil && other == nil
	})
	if n := used(t, c.org, "org"); n < c.all || n > perOrg {
		t.Errorf("the organization has used %d units, want %d to %d", n, c.all, perOrg)
	}
	for i := range users {
		if n := used(t, c.users, user(i)); n < c.admitted[user(i)] || n > perUser {
			t.Errorf("%s has used %d units, want %d to %d", user(i), n, c.admitted[user(i)], perUser)
		}
	}
	for key, lim := range map[string]*core.Limiter{"org": c.org, user(0): c.users} {
		check.Within(t, patient, key+": no units are held any more", func() bool {
			res, err := lim.AllowN(t.Context(), key, lim.Limits()[0].Capacity())
			return err == nil && (res.Allowed || res.RetryAfter > time.Second)
		})
	}
}

// doomedEnv is the environment variable that makes TestMain a process of TestKilled. Its value is the addresses of the
// servers.
const doomedEnv = "REDISLIMIT_TOGETHER"

func doomedCrowd(addrs []string) *crowd {
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: addrs, IsClusterMode: len(addrs) > 1, PoolSize: callers, PoolTimeout: patient, ReadTimeout: patient,
	})
	newLimiter := func(name string, n int64) *core.Limiter {
		return core.MustNew(c, name, core.GCRA(core.Per(n, long)), core.Hold(held), core.FailClosed(), core.Timeout(patient))
	}
	return &crowd{users: newLimiter("doomed-user", perUser), org: newLimiter("doomed-org", perOrg), admitted: map[string]int64{}}
}

// doomed makes calls and prints which users are admitted, until the process is killed.
func doomed(addrs []string) {
	c := doomedCrowd(addrs)
	for i := range callers {
		go func() {
			for {
				res, err := core.AllowAll(context.Background(), 1, c.users.On(user(i)), c.org.On("org"))
				if err == nil && res.Allowed {
					fmt.Println("admitted", user(i))
				}
			}
		}()
	}
	fmt.Println("begun")
	select {}
}

// TestKilled kills a process while its 80 callers request units. The admitted callers do not exceed any limit, and the
// units that the process held expire.
func TestKilled(t *testing.T) {
	for name, addrs := range map[string][]string{"Redis": {redistest.Server(t).Addr}, "Cluster": redistest.Cluster(t)} {
		t.Run(name, func(t *testing.T) {
			c := doomedCrowd(addrs)
			for round := range 3 {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), doomedEnv+"="+strings.Join(addrs, ","))
				out, err := cmd.StdoutPipe()
				check.Need(t, err)
				if err = cmd.Start(); err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewScanner(out)
				for lines.Scan() && lines.Text() != "begun" {
					c.heard(lines.Text())
				}
				time.AfterFunc(time.Duration(round)*tripTime, func() { _ = cmd.Process.Kill() })
				for lines.Scan() {
					c.heard(lines.Text())
				}
				_ = cmd.Wait()
				c.wantWithin(t)
			}
			c.wantExpired(t)
			t.Logf("%d calls were admitted, and %d units are used", c.all, used(t, c.org, "org"))
		})
	}
}

// heard counts the admission that a line of the process reports.
func (c *crowd) heard(line string) {
	if user, ok := strings.CutPrefix(line, "admitted "); ok {
		c.add(user, 1)
	}
}
