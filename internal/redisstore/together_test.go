package redisstore

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/health"
)

// A strangeClient is a client whose type is not one of go-redis.
type strangeClient struct{ Client }

// TestTogether checks which parts may be decided by one script: their keys must be on one server,
// and the script must charge each count only once.
func TestTogether(t *testing.T) {
	t.Parallel()
	one, other := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _, _, _ = one.Close(), other.Close(), cluster.Close() })
	open := func(c Client, name string, timeout time.Duration, kinds ...*algorithm.Kind) Part {
		var all []algorithm.Limit
		var names []string
		for _, k := range kinds {
			all = append(all, algorithm.Limit{Kind: k, Evaluator: k.New(algorithm.Numbers{Count: 1, Burst: 1, Period: 1e6})})
			names = append(names, k.Name)
		}
		limits := NewLimits(all, names, nil)
		config := Config{Prefix: "rl", Limiter: name, Limits: limits, Timeout: timeout, MaxBatch: 1}
		return Part{NewStore(c, config), NewCall(limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1})}
	}
	many := make([]*algorithm.Kind, algorithm.MaxLimits)
	for i := range many {
		many[i] = algorithm.GCRA
	}
	on := func(p Part, key string) Part {
		return Part{p.Store, NewCall(p.Limits, key, p.Operation)}
	}
	a, b := open(one, "a", time.Second, algorithm.GCRA), open(one, "b", time.Second, algorithm.FixedWindow)
	for name, c := range map[string]struct {
		parts    []Part
		together bool // the result if one script may have all keys
		unknown  bool // the result if one script may not have all keys, or if this is not known
	}{
		"one":                 {[]Part{a}, false, false},
		"one key of two":      {[]Part{a, b}, true, false}, // there may be a proxy in front of two servers
		"two keys of two":     {[]Part{a, on(b, "j")}, true, false},
		"two keys of one":     {[]Part{a, on(a, "j")}, true, false},
		"one key of one":      {[]Part{a, on(b, "j"), on(a, "k")}, false, false},
		"by other numbers":    {[]Part{a, {a.Store, open(one, "a", time.Second, algorithm.GCRA).Call}}, false, false},
		"another client":      {[]Part{a, open(other, "b", time.Second, algorithm.GCRA)}, false, false},
		"another timeout":     {[]Part{a, open(one, "b", time.Minute, algorithm.GCRA)}, false, false},
		"slots":               {[]Part{a, open(one, "b", time.Second, algorithm.InFlight)}, false, false},
		"too many":            {[]Part{a, open(one, "b", time.Second, many...)}, false, false},
		"as many as may be":   {[]Part{a, open(one, "b", time.Second, many[1:]...)}, true, false},
		"one key, Cluster":    {[]Part{open(cluster, "a", time.Second, algorithm.GCRA), open(cluster, "b", time.Second, algorithm.GCRA)}, true, true},
		"two keys, Cluster":   {[]Part{open(cluster, "a", time.Second, algorithm.GCRA), on(open(cluster, "b", time.Second, algorithm.GCRA), "j")}, false, false},
		"a client of no kind": {[]Part{open(&strangeClient{}, "a", time.Second, algorithm.GCRA), open(&strangeClient{}, "b", time.Second, algorithm.GCRA)}, false, false},
	} {
		server := c.parts[0].Store.servers.whole
		for state, want := range map[int32]bool{shardingUnknown: c.unknown, separateScripts: c.unknown, oneScript: c.together} {
			server.sharding.state.Store(state)
			server.health.Failed(health.Unavailable, time.Now(), time.Second, errDial) // the server is down, so nothing is found out
			got, err := Together(t.Context(), c.parts)
			if again, _ := Together(t.Context(), c.parts); errors.Is(err, ErrApart) == want || (got != nil) != want || got != again {
				t.Errorf("%s, %d: %v, %v, want %v, and the same again", name, state, got != nil, err, want)
			}
		}
	}
}
