package docs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestForgetLimiter runs the commands of docs/operating.md that delete all keys of a limiter, on a single server and on a Cluster. No
// key of that limiter may remain, and limiters with similar names must keep all their keys.
func TestForgetLimiter(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(files(t)["docs/operating.md"], "\n### Forget everything of a limiter\n")
	blocks := strings.Split(section, "```sh\n")
	if len(blocks) < 3 {
		t.Fatal("docs/operating.md: got fewer than two commands for forgetting a limiter")
	}
	for name, c := range map[string]struct {
		block string
		open  func(t *testing.T) (redis.UniversalClient, string)
	}{
		"Server": {blocks[1], func(t *testing.T) (redis.UniversalClient, string) {
			server := redistest.Server(t)
			return server.Client(t), server.Addr
		}},
		"Cluster": {blocks[2], func(t *testing.T) (redis.UniversalClient, string) {
			addrs := redistest.Cluster(t)
			return redistest.ClusterClient(t, addrs), addrs[1]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shell, err := exec.LookPath("sh")
			if err != nil {
				t.Skip(err)
			}
			client, addr := c.open(t)
			command, _, _ := strings.Cut(c.block, "```")
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			command = strings.ReplaceAll(command, "-h localhost -p 6379", "-h "+host+" -p "+port)
			if !strings.Contains(command, port) {
				t.Fatalf("got the command %s, want one with the address of the server", command)
			}
			forget(t, client, exec.CommandContext(t.Context(), shell, "-ec", command))
		})
	}
}

// forget runs the command, and checks which keys remain of limiters with similar names.
func forget(t *testing.T, client redis.UniversalClient, command *exec.Cmd) {
	t.Helper()
	limits := core.Options(core.FixedWindow(core.PerDay(5)), core.TokenBucket(core.PerDay(5)), core.SlidingWindowLog(core.PerDay(5)),
		core.InFlight(5), core.Ban(time.Hour))
	api := limiterOf(t, client, "api", limits)
	others := []*core.Limiter{
		limiterOf(t, client, "api2", limits), limiterOf(t, client, "apis", limits), limiterOf(t, client, "api", limits, core.Prefix("rl2")),
		limiterOf(t, client, "logins", limits, core.Prefix("rl:api")), // its keys begin with rl:api:logins:{
	}
	keys := []string{"a|b%c,d@e+f=g/h:~i", "Jürgen's key; with anything in it", "~"}
	for i := range 200 {
		keys = append(keys, fmt.Sprint("user:", i))
	}
	for i, key := range keys {
		for _, lim := range append(others, api) {
			reservation, err := lim.Reserve(t.Context(), key, 1)
			if err != nil || !reservation.Allowed {
				t.Fatal(key, reservation, err)
			}
			if i%2 == 0 { // half of the keys keep a charged unit, and the others keep a unit and a slot on hold
				if err := reservation.Settle(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, lim := range append(others, api) {
		if err := lim.Block(t.Context(), keys[0], time.Hour); err != nil {
			t.Fatal(err)
		}
	}

	if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: got error %v and the output %s, want neither", command, err, out)
	}

	if left := scan(t, client, "rl:api:{*"); len(left) > 0 {
		t.Errorf("got %d keys that are left, such as %s, want none", len(left), left[0])
	}
	for i, key := range keys {
		if used, banned := usedOf(t, api, key); used != 0 || banned {
			t.Errorf("%s: got %d units used, banned %v, want 0, false", key, used, banned)
		}
		for _, lim := range others {
			if used, banned := usedOf(t, lim, key); !banned && used != 1 || banned != (i == 0) {
				t.Errorf("%s of the other limiter %s: got %d units used, banned %v, want 1, or a ban for the first key", key, lim.Name(), used, banned)
			}
		}
	}
}

func limiterOf(t *testing.T, client redis.UniversalClient, name string, options ...core.Option) *core.Limiter {
	t.Helper()
	options = append(options, core.FailClosed(), core.DenyCache(0), core.Timeout(time.Minute), core.Hold(time.Hour),
		core.Logger(slog.New(slog.DiscardHandler))) // it would warn about the held units, which are dropped on purpose
	lim, err := core.New(client, name, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lim.Close() })
	return lim
}

// usedOf returns how many units are used of the fullest limit, and whether the key is banned.
func usedOf(t *testing.T, lim *core.Limiter, key string) (used int64, banned bool) {
	t.Helper()
	res, err := lim.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for each := range res.All() {
		used = max(used, each.Limit-each.Remaining)
	}
	return used, res.Banned
}

// scan returns the keys that match the pattern, on all masters.
func scan(t *testing.T, client redis.UniversalClient, pattern string) (found []string) {
	t.Helper()
	each := func(ctx context.Context, node redis.Cmdable) error {
		keys := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			found = append(found, keys.Val())
		}
		return keys.Err()
	}
	var err error
	if cluster, ok := client.(*redis.ClusterClient); ok {
		var mu sync.Mutex // ForEachMaster calls the function concurrently
		err = cluster.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return each(ctx, node)
		})
	} else {
		err = each(t.Context(), client)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}
