package recipes_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/core/guard"
	"github.com/redislimit/redislimit/keyfunc"
	httplimit "github.com/redislimit/redislimit/nethttp"
)

func isIssued(key string) bool { return key == "key-1" || key == "key-2" }

func Example_behindProxy() {
	mux := newMux()

	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(2)))
	key := keyfunc.FirstOf(
		keyfunc.APIKey("X-API-Key", keyfunc.Known(isIssued)),
		keyfunc.IP(keyfunc.TrustedProxies("192.0.2.0/24"))) // your proxies' addresses
	handler := httplimit.Middleware(lim, key)(mux)

	for _, client := range []string{"X-API-Key: key-1", "X-API-Key: invented-1", "X-API-Key: invented-2", "X-API-Key: invented-3"} {
		fmt.Println(client, get(handler, "/", client, "X-Forwarded-For: 203.0.113.7").Code)
	}
	fmt.Println("another address:", get(handler, "/", "X-Forwarded-For: 203.0.113.8").Code)
	// Output:
	// X-API-Key: key-1 200
	// X-API-Key: invented-1 200
	// X-API-Key: invented-2 200
	// X-API-Key: invented-3 429
	// another address: 200
}

// A user is the result of authentication. Its name is the key that is limited.
type user struct {
	name string
	paid bool
	org  string
}

func (u user) String() string { return u.name }

// userKey is the context key under which authenticate stores the user.
type userKey struct{}

func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := userOf(r) // from the session or the token
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, u)))
	})
}

// userOf stands for real authentication, and trusts what the client says.
func userOf(r *http.Request) user {
	return user{r.Header.Get("User"), r.Header.Get("User") == "bob", "acme"}
}

func Example_tiers() {
	mux := newMux()

	free := core.MustNew(rdb, "free", core.TokenBucket(core.PerMinute(60)))
	paid := core.MustNew(rdb, "paid", core.TokenBucket(core.PerMinute(6000)))
	byTier := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		if u, ok := r.Value(userKey{}).(user); ok && u.paid {
			return paid, nil
		}
		return free, nil
	})
	handler := authenticate(httplimit.Middleware(free, keyfunc.User(userKey{}), byTier)(mux))

	for _, name := range []string{"alice", "bob"} {
		fmt.Println(name, get(handler, "/", "User: "+name).Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// alice 60
	// bob 6000
}

func Example_plans() {
	plans := map[string][]core.Limit{
		"alice": {core.Unlimited(), core.InFlight(20)}, "bob": {core.Unlimited()}, "carol": {core.TokenBucket(core.PerMinute(0))},
	}
	planOf := func(r keyfunc.Request) []core.Limit { u, _ := r.Value(userKey{}).(user); return plans[u.name] }

	lim := core.MustNew(rdb, "api", core.TokenBucket(core.PerMinute(60)))
	byPlan := guard.LimiterFor(func(r keyfunc.Request) (*core.Limiter, error) {
		return lim.With(planOf(r)...) // such as core.Unlimited(), core.InFlight(20)
	})

	handler := authenticate(httplimit.Middleware(lim, keyfunc.User(userKey{}), byPlan)(newMux()))
	for _, name := range []string{"alice", "bob", "carol"} {
		show(get(handler, "/", "User: "+name), "X-RateLimit-Limit", "Retry-After")
	}
	// Output:
	// 200 20
	// 200
	// 429 0
}

func Example_severalLimits() {
	mux := newMux()

	lim := core.MustNew(rdb, "public-api",
		core.TokenBucket(core.PerSecond(10), core.Burst(30), core.LimitName("burst")),
		core.FixedWindow(core.PerDay(5000), core.Aligned(), core.LimitName("quota")))
	handler := httplimit.Middleware(lim, keyfunc.IP(), guard.Headers(guard.XRateLimit|guard.IETF))(mux)

	for range 30 {
		get(handler, "/")
	}
	w := get(handler, "/")
	fmt.Println(w.Code)
	for _, name := range []string{"Retry-After", "X-RateLimit-Limit", "RateLimit-Policy", "RateLimit"} {
		fmt.Printf("%s: %s\n", name, w.Header().Get(name))
	}
	// Output:
	// 429
	// Retry-After: 1
	// X-RateLimit-Limit: 30
	// RateLimit-Policy: "public-api-burst";q=30;w=3, "public-api-quota";q=5000;w=86400
	// RateLimit: "public-api-burst";r=0;t=1, "public-api-quota";r=4970;t=85882
}

func Example_usersOfAnOrganization() {
	mux := newMux()

	perUser := core.MustNew(rdb, "user", core.TokenBucket(core.PerMinute(5)))
	perOrg := core.MustNew(rdb, "org", core.TokenBucket(core.PerMinute(12)))
	org := func(r keyfunc.Request) (string, error) {
		u, ok := r.Value(userKey{}).(user)
		if !ok {
			return "", keyfunc.ErrNoKey
		}
		return "org:" + u.org, nil
	}
	handler := authenticate(httplimit.Middleware(perUser, keyfunc.User(userKey{}), guard.AlsoLimit(perOrg, org))(mux))

	for _, name := range []string{"alice", "bob", "carol"} {
		served := 0
		for range 20 {
			if get(handler, "/", "User: "+name).Code == http.StatusOK {
				served++
			}
		}
		fmt.Println(name, served)
	}
	// Output:
	// alice 5
	// bob 5
	// carol 2
}
