package conformance

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/limits"
	"github.com/redislimit/redislimit/internal/testkit/redisclient"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// aclCommands are the commands that the Redis user of a limiter must be allowed to run, in the order of docs/operating.md.
var aclCommands = strings.Fields("evalsha eval time del get set zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank pexpireat")

// aclCluster are the further rules that go-redis needs on a Cluster. Without "command", go-redis sends COMMAND with every
// decision and logs each denial of COMMAND.
var aclCluster = strings.Fields("cluster|slots command")

// TestACLIsDocumented checks that the rules that operators copy from docs/operating.md are the rules tested here.
func TestACLIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operating.md"))
	check.Need(t, err)
	for _, rules := range [][]string{aclCommands, aclCluster} {
		if line := "+" + strings.Join(rules, " +"); !strings.Contains(string(text), line) {
			t.Errorf("docs/operating.md lacks the rules %q", line)
		}
	}
}

// slow is a rate at which no used unit becomes free again during a test.
var slow = core.PerHour(10)

// TestACL gives a Redis user exactly the documented rules. The user can then use every algorithm in every way, and Redis's
// own count of commands shows that each rule is needed. A missing rule and a foreign key make a decision fail.
func TestACL(t *testing.T) {
	t.Parallel()
	admin := redistest.Server(t).Client(t)
	allow(t, admin, "~rl:*", aclCommands)
	user := func() *redis.Client {
		return redisclient.New(t, &redis.Options{Addr: admin.Options().Addr, Username: "limits", Password: "secret", ReadTimeout: time.Minute})
	}
	useAll(t, admin, func() redis.UniversalClient { return user() })
	if commands := denied(t, admin); len(commands) > 0 {
		t.Errorf("with all rules, Redis denied the commands %v, want none denied", commands)
	}
	used := admin.Info(t.Context(), "commandstats").Val()
	called := aclCommands
	if selected("run") || selected("skip") {
		t.Log("not checked whether each rule is needed: -run or -skip leaves out some of the subtests that call the commands")
		called = nil
	}
	for _, command := range called {
		if !strings.Contains(used, "cmdstat_"+command+":") {
			t.Errorf("%s was never called, so its rule is not needed", command)
		}
	}
	decide := func() error {
		client := user()
		defer func() { _ = client.Close() }()
		_, err := core.MustNew(client, "denied", core.FixedWindow(slow), core.FailClosed(), core.Timeout(time.Minute)).Allow(t.Context(), "k")
		return err
	}
	allow(t, admin, "~rl:*", aclCommands[1:])
	if err, commands := decide(), denied(t, admin); err == nil || !slices.Equal(commands, aclCommands[:1]) {
		t.Errorf("without the rule for %s, Redis denied the commands %v and the error is %v; want this command denied, and an error", aclCommands[0], commands, err)
	}
	allow(t, admin, "~other:*", aclCommands)
	if decide() == nil {
		t.Error("a decision on a key that the user may not touch succeeded, want an error")
	}
}

// selected reports whether the flag run or skip of go test selects among the subtests of TestACL, because it contains a slash.
func selected(name string) bool {
	return strings.Contains(flag.Lookup("test."+name).Value.String(), "/")
}

// TestACLCluster checks that the rules suffice on a Cluster, where go-redis needs the further rules of aclCluster.
func TestACLCluster(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	nodes := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		nodes[i] = redisclient.New(t, &redis.Options{Addr: addr})
		defer func() { _ = nodes[i].Close() }()
		allow(t, nodes[i], "~rl:*", slices.Concat(aclCommands, aclCluster))
	}
	var scripts gate.Gate
	useAll(t, redistest.ClusterClient(t, addrs), func() redis.UniversalClient {
		client := redisclient.NewCluster(t, &redis.ClusterOptions{Addrs: addrs, Username: "limits", Password: "secret", ReadTimeout: time.Minute})
		client.AddHook(&scripts)
		return client
	})
	if scripts.Undeclared() == 0 {
		t.Error("no script used undeclared keys, want some: they are the keys of a batch of decisions")
	}
	for _, node := range nodes {
		if commands := denied(t, node); len(commands) > 0 {
			t.Errorf("Redis denied the commands %v, want none denied", commands)
		}
	}
}

// allow empties the server, resets its statistics, and gives the user exactly these commands on the keys of pattern.
func allow(t *testing.T, admin *redis.Client, pattern string, commands []string) {
	t.Helper()
	rules := []any{"acl", "setuser", "limits", "reset", "on", ">secret", pattern}
	for _, command := range commands {
		rules = append(rules, "+"+command)
	}
	for _, command := range [][]any{rules, {"script", "flush"}, {"flushall"}, {"acl", "log", "reset"}, {"config", "resetstat"}} {
		check.Need(t, admin.Do(t.Context(), command...).Err())
	}
}

// denied returns the commands that Redis has denied since the last call of allow.
func denied(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	log, err := admin.ACLLog(t.Context(), 100).Result()
	check.Need(t, err)
	var commands []string
	for _, entry := range log {
		// go-redis sends CLIENT SETINFO since Redis 7.2 and ignores its failure. Before Redis 7.0 the log does not name the
		// subcommand.
		greeting := entry.Object == "client" || strings.HasPrefix(entry.Object, "client|")
		if !greeting && !slices.Contains(commands, entry.Object) {
			commands = append(commands, entry.Object)
		}
	}
	return commands
}

// useAll makes the user do everything that a program can do: random histories, batches, slots, and decisions by the
// server's own clock.
func useAll(t *testing.T, admin redis.UniversalClient, user func() redis.UniversalClient) {
	t.Helper()
	patient := core.Options(core.FailClosed(), core.Timeout(time.Minute), core.DenyCache(0))
	open := func(t *testing.T, run func(*testing.T, Store)) {
		check.Need(t, OnEach(t.Context(), admin, func(ctx context.Context, node redis.UniversalClient) error { return node.FlushAll(ctx).Err() }))
		client, driven := user(), NewDriven(nil)
		defer func() { _ = client.Close() }()
		client.AddHook(driven)
		run(t, Store{
			New: func(name string, opts ...core.Option) (*core.Limiter, error) {
				return core.New(client, name, append(opts, patient, driven.Wall())...)
			},
			Advance: driven.Advance, Clock: driven.Now, Redis: admin,
		})
	}
	Properties(t, open, 4)
	for _, c := range append(each("Batches", withBatches), testCase{"Slots", slotsAtRandom}) {
		t.Run(c.name, func(t *testing.T) { open(t, c.run) })
	}
	client := user()
	defer func() { _ = client.Close() }()
	for _, v := range append(limits.All(), limits.Slots()...) {
		lim := core.MustNew(client, "plain", v.Limit(slow), patient)
		admin.HSet(t.Context(), "rl:plain:{k}:"+limits.Key(lim.Limits()[0]), "a", "b") // a value of the wrong type, which the script has to delete
		admit(t, lim, "k", 3)
		kept := reserve(t, lim, "k", 1)
		kept.Keep()
		inside.Core.Driver(lim).Renew()
		cancel(t, kept)
	}
}
