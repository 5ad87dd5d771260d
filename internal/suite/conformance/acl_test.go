package conformance

import (
	"context"
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

// aclCommands are what a user of Redis must be allowed, in the order of
// docs/operating.md.
var aclCommands = strings.Fields("evalsha eval time del get set zadd zcard zcount zrange zrangebyscore zrem zremrangebyrank pexpireat")

// aclCluster are what go-redis also needs on a Cluster. Without "command" it sends
// COMMAND with every decision, and logs each denial of it.
var aclCluster = strings.Fields("cluster|slots command")

// TestACLIsDocumented compares the rules that operators copy with those tested here.
func TestACLIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operating.md"))
	check.Need(t, err)
	for _, rules := range [][]string{aclCommands, aclCluster} {
		if line := "+" + strings.Join(rules, " +"); !strings.Contains(string(text), line) {
			t.Errorf("docs/operating.md does not have %q", line)
		}
	}
}

// slow frees no units during a test.
var slow = core.PerHour(10)

// TestACL lets a user of exactly these rules use every algorithm in every way. Each rule is needed, as Redis's own count of
// commands says.
func TestACL(t *testing.T) {
	t.Parallel()
	admin := redistest.Server(t).Client(t)
	allow(t, admin, "~rl:*", aclCommands)
	user := func() *redis.Client {
		return redisclient.New(t, &redis.Options{Addr: admin.Options().Addr, Username: "limits", Password: "secret", ReadTimeout: time.Minute})
	}
	useAll(t, admin, func() redis.UniversalClient { return user() })
	if commands := denied(t, admin); len(commands) > 0 {
		t.Errorf("with all rules %v are denied", commands)
	}
	used := admin.Info(t.Context(), "commandstats").Val()
	for _, command := range aclCommands {
		if !strings.Contains(used, "cmdstat_"+command+":") {
			t.Errorf("%s is never called", command)
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
		t.Errorf("without %s denied are %v, %v", aclCommands[0], commands, err)
	}
	allow(t, admin, "~other:*", aclCommands)
	if decide() == nil {
		t.Error("the keys of others are not denied")
	}
}

// TestACLCluster does the same on a Cluster, where go-redis needs more rules.
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
		t.Error("no script had the keys of several decisions")
	}
	for _, node := range nodes {
		if commands := denied(t, node); len(commands) > 0 {
			t.Errorf("denied are %v", commands)
		}
	}
}

// allow makes the user, on a server that has nothing stored.
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

// denied returns the commands that Redis denied.
func denied(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	log, err := admin.ACLLog(t.Context(), 100).Result()
	check.Need(t, err)
	var commands []string
	for _, entry := range log {
		// go-redis's CLIENT SETINFO of Redis 7.2, which may fail; before Redis 7.0 the log names no subcommand.
		greeting := entry.Object == "client" || strings.HasPrefix(entry.Object, "client|")
		if !greeting && !slices.Contains(commands, entry.Object) {
			commands = append(commands, entry.Object)
		}
	}
	return commands
}

// useAll makes the user do everything that a program can do: by random histories, in batches, and by the
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
		admin.HSet(t.Context(), "rl:plain:{k}:"+limits.Key(lim.Limits()[0]), "a", "b") // which is in the way
		admit(t, lim, "k", 3)
		kept := reserve(t, lim, "k", 1)
		kept.Keep()
		inside.Core.Driver(lim).Renew()
		cancel(t, kept)
	}
}
