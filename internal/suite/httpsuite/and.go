package httpsuite

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/keyfunc"
)

// andCases test limiters that decide together. endingCases test how such a response ends.
func andCases() []testCase {
	return []testCase{
		{"And", and, nil},
		{"AndOwn", andOwn, nil},
		{"AndKeys", andKeys, nil},
		{"AndHeld", andHeld, nil},
		{"AndSlots", andSlots, nil},
		{"AndOutage", andOutage, nil},
		{"AndQueue", andQueue, nil},
	}
}

// and limits users and their organization: a request that either of them denies is charged to neither, and the headers
// describe the tightest limit.
func and(b *testbed) {
	for _, name := range []string{"UserFirst", "OrgFirst"} {
		b.each(name, func(b *testbed) {
			perUser, perOrg := b.named("user", core.FixedWindow(core.PerMinute(2))), b.named("org", core.GCRA(core.PerMinute(3)))
			sets := guard.Headers(guard.XRateLimit | guard.IETF)
			limit := Limit{Limiter: perUser, Key: keyfunc.User(UserKey), Options: []guard.Option{guard.AlsoLimit(perOrg, keyfunc.Global()), sets}}
			if name == "OrgFirst" {
				limit = Limit{Limiter: perOrg, Key: keyfunc.Global(), Options: []guard.Option{sets, guard.AlsoLimit(perUser, keyfunc.User(UserKey))}}
			}
			s := b.behind(limit, Route{Path: "/a", Handler: Handler{Do: ShowResult}})
			s.usersOfOrg(perUser, perOrg)
		})
	}
}

// usersOfOrg sends requests of users who have two requests each. Their organization has three.
func (s *servedApp) usersOfOrg(perUser, perOrg *core.Limiter) {
	s.Helper()
	const ofUser, ofOrg = `"user";q=2;w=60`, `"org";q=3;w=60`
	for _, step := range []struct {
		user                           string
		status                         int
		limit, remaining, reset, retry string
		policy                         string
		leftOfUser, leftOfOrg          int64
	}{
		{"alice", 200, "2", "1", "1800000073", "", ofUser, 1, 2},
		{"alice", 200, "2", "0", "1800000073", "", ofUser, 0, 1},
		{"alice", 429, "2", "0", "1800000073", "60", ofUser, 0, 1},
		{"bob", 200, "3", "0", "1800000073", "", ofOrg, 1, 0},
		{"carol", 429, "3", "0", "1800000073", "20", ofOrg, 2, 0},
	} {
		ans := s.get("/a", user(step.user))
		if ans.status != step.status || (step.status == http.StatusOK) != strings.HasSuffix(ans.body, " remaining="+step.remaining+" delay=0s") {
			s.Errorf("%s: got status %d and body %q, want status %d with %s remaining", step.user, ans.status, ans.body, step.status, step.remaining)
		}
		ans.wantHeaders(step.limit, step.remaining, step.reset, step.retry)
		if policies := ans.header.Get("RateLimit-Policy"); !strings.Contains(policies, step.policy) || step.status == http.StatusOK && len(policies) != len(ofUser+", "+ofOrg) {
			s.Errorf("%s: got the policies %s, want %s among them, and two for an admitted request", step.user, policies, step.policy)
		}
		s.untilLeft(perUser, "user:"+step.user, step.leftOfUser)
		s.untilLeft(perOrg, keyfunc.ForGlobal(), step.leftOfOrg)
	}
}

// andOwn uses members with costs and limiters of their own, and two members with the same limiter and key.
func andOwn(b *testbed) {
	tokens, calls, gold := b.named("tokens", core.FixedWindow(core.PerMinute(100))), b.namedFixed("calls", 5), b.namedFixed("gold", 50)
	byTier := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		return map[string]*core.Limiter{"gold": gold.Limiter}[r.Header("Tier")], nil
	})
	s := b.behind(Limit{Limiter: tokens, Key: keyfunc.IP(), Options: []guard.Option{
		guard.Cost(func(r keyfunc.Request) int64 { n, _ := strconv.ParseInt(r.Header("Tokens"), 10, 64); return n }),
		guard.AlsoLimit(calls.Limiter, keyfunc.IP(), estimate(1), byTier),
		guard.AlsoLimit(tokens, keyfunc.Global()),
		guard.AlsoLimit(tokens, keyfunc.Global(), estimate(4)),
	}})
	for _, step := range []struct {
		tokens, tier              string
		status                    int
		own, shared, calls, golds int64 // how many units remain
	}{
		{"20", "", 200, 80, 76, 4, 50},
		{"30", "gold", 200, 50, 42, 4, 49},
		{"39", "", 429, 50, 42, 4, 49}, // 39 and the 4 of the other member are 43, and 42 remain
		{"0", "", 200, 50, 38, 3, 49},
		{"-1", "", 200, 49, 33, 2, 49},
		{"101", "gold", 429, 49, 33, 2, 49},
	} {
		s.get("/a", "Tokens: "+step.tokens, "Tier: "+step.tier).wantStatus(step.status)
		b.untilLeft(tokens, ipKey, step.own)
		b.untilLeft(tokens, keyfunc.ForGlobal(), step.shared)
		b.untilLeft(calls.Limiter, ipKey, step.calls)
		b.untilLeft(gold.Limiter, ipKey, step.golds)
	}
	if n := b.logs.Count("above the capacity"); n != 1 {
		b.Errorf("%d lines were logged about a cost above the capacity, want 1", n)
	}
}

// andKeys sends requests without the key of a member: they are counted by the member's Fallback or by the peer, and the log
// says whose key is missing. If a key function fails, nothing is charged.
func andKeys(b *testbed) {
	device := func(r keyfunc.Request) (string, error) { return nativeKeyOf(r.Header(KeyHeader)) }
	own := b.namedFixed("own", 9)
	perUser, perDevice := b.namedFixed("user", 9), b.namedFixed("device", 9)
	own.Options = []guard.Option{
		guard.AlsoLimit(perUser.Limiter, keyfunc.User(UserKey), guard.Fallback(device)), guard.AlsoLimit(perDevice.Limiter, device),
	}
	s := b.behind(own)
	s.getEach("/a", []keyedRequest{{user("alice"), 200}, {KeyHeader + ": one", 200}, {"", 200}, {KeyHeader + ": broken", 500}})
	b.untilLeft(own.Limiter, ipKey, 6)
	for key, left := range map[string]int64{"user:alice": 8, "one": 8, fallbackKey: 8} {
		b.untilLeft(perUser.Limiter, key, left)
	}
	b.untilLeft(perDevice.Limiter, "one", 8)
	b.untilLeft(perDevice.Limiter, fallbackKey, 7)
	if n := b.logs.lines("WARN"); n > 0 {
		b.Errorf("%d warnings were logged, want 0: %s", n, b.logs.String())
	}

	own.Options = []guard.Option{guard.AlsoLimit(perUser.Limiter, keyfunc.User(UserKey))}
	b.serve(App{Use: []Mount{own, Auth{}}, Routes: []Route{{Path: "/a"}}}).get("/a", user("alice")).wantServed()
	if b.logs.Count("mount the middleware after the authentication") != 1 || b.logs.Count(`limiter=user error="keyfunc: `) != 1 {
		b.Errorf("the log is %s, want one line that says whose key is missing", b.logs.String())
	}
}

// andHeld makes a request in flight hold all units of an organization. The responses to other requests ask clients to retry
// in a second, and such a retry passes once the request in flight has ended without a cost.
func andHeld(b *testbed) {
	perOrg := b.namedFixed("org", 1)
	limit := after(b.namedFixed("address", 9), 1, guard.AlsoLimit(perOrg.Limiter, keyfunc.Global()))
	s, end := b.waiting(Handler{Costs: []int64{0}}, limit)
	ans := s.get("/b")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "1800000073", "1")
	b.untilLeft(limit.Limiter, ipKey, 8) // the waiting request holds the other unit
	end().wantServed()
	b.untilLeft(perOrg.Limiter, keyfunc.ForGlobal(), 1)
	s.get("/b").wantServed()
}

// andSlots gives slots to a member: they are freed when the response has ended, and the units are charged. If a slot is
// lost, the request is canceled.
func andSlots(b *testbed) {
	window, slots := b.namedFixed("window", 9), b.slots(1)
	window.Options = []guard.Option{guard.AlsoLimit(slots.Limiter, keyfunc.Global())}
	s, end := b.waiting(Handler{}, window)
	ans := s.get("/b")
	ans.wantDenied()
	ans.wantHeaders("1", "0", "", "1")
	b.untilLeft(window.Limiter, ipKey, 8)
	end().wantServed()
	b.untilLeft(slots.Limiter, keyfunc.ForGlobal(), 1)
	b.untilLeft(window.Limiter, ipKey, 8)
	s.get("/b").wantServed()
	b.untilLeft(slots.Limiter, keyfunc.ForGlobal(), 1)
	b.untilLeft(window.Limiter, ipKey, 7)
	s.close()

	var calls atomic.Int64
	s = b.behind(window, Route{Path: "/a", Handler: Handler{Do: AwaitCause, Calls: &calls}})
	_, done := s.start("/a")
	b.until("the handler runs", func() bool { return calls.Load() == 1 })
	b.redis.FlushAll()
	inside.Core.Driver(slots.Limiter).Renew()
	(<-done).want(http.StatusOK, core.ErrSlotLost.Error())
}

// andOutage makes the Redis of a member unavailable: each member follows its own policy.
func andOutage(b *testbed) {
	for name, c := range map[string]struct {
		policy core.Option
		status int
		left   int64
		limit  string // the limit in the headers
	}{
		"FailClosed": {core.FailClosed(), 503, 9, ""},
		"FailOpen":   {core.FailOpen(), 200, 8, "9"},
		"FailLocal":  {core.FailLocal(), 200, 8, "3"},
	} {
		b.each(name, func(b *testbed) {
			b.redis.SetError("LOADING secret detail")
			away := core.MustNew(b.client, "away", core.FixedWindow(core.PerMinute(3)), c.policy)
			here := core.MustNewMemory("here", core.FixedWindow(core.PerMinute(9)))
			s := b.behind(Limit{Limiter: away, Key: keyfunc.IP(), Options: []guard.Option{guard.AlsoLimit(here, keyfunc.IP())}})
			ans := s.get("/a")
			ans.wantStatus(c.status)
			ans.wantHidden("secret detail")
			ans.wantHeader("X-RateLimit-Limit", c.limit)
			ans.wantHeader("Retry-After", map[int]string{503: "1"}[c.status])
			b.untilLeft(here, ipKey, c.left)
		})
	}
}

// andQueue makes LimiterFor choose a queue, where a place cannot be given back exactly: no request may pass unlimited.
func andQueue(b *testbed) {
	window, queue := b.namedFixed("window", 9), b.named("queue", core.LeakyBucket(core.Per(1, time.Millisecond)))
	chosen := guard.LimiterFor(func(keyfunc.Request) (*core.Limiter, error) { return queue, nil })
	window.Options = []guard.Option{guard.AlsoLimit(b.named("other", core.GCRA(core.PerMinute(5))), keyfunc.IP(), chosen)}
	s := b.behind(window)
	for range 2 {
		ans := s.get("/a")
		ans.wantStatus(http.StatusInternalServerError)
		ans.wantNoHeaders()
	}
	b.untilLeft(window.Limiter, ipKey, 9)
	if n := b.logs.Count("cannot be given back exactly"); n != 1 {
		b.Errorf("%d lines were logged, want 1: %s", n, b.logs.String())
	}
}
