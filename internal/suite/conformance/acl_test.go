package conformance

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/inside"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/limits"
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
	if err != nil {
		t.Fatal(err)
	}
	for _, rules := range [][]string{aclCommands, aclCluster} {
		if line := "+" + strings.Join(rules, " +"); !strings.Contains(string(text), line) {
			t.Errorf("docs/operating.md does not have %q", line)
		}
	}
}

// TestACL lets a user of exactly these rules use every algorithm in every way. Each rule is needed, as Redis's own count of
// commands says.
func TestACL(t *testing.T) {
	t.Parallel()
	admin := redistest.Server(t).Client(t)
	if commands, err := useAs(t, admin, "~rl:*", aclCommands); len(commands) > 0 || err != nil {
		t.Errorf("with all rules %v are denied: %v", commands, err)
	}
	used := admin.Info(t.Context(), "commandstats").Val()
	for _, command := range aclCommands {
		if !strings.Contains(used, "cmdstat_"+command+":") {
			t.Errorf("%s is never called", command)
		}
	}
	if commands, err := useAs(t, admin, "~rl:*", aclCommands[1:]); err == nil || !slices.Equal(commands, aclCommands[:1]) {
		t.Errorf("without %s denied are %v, %v", aclCommands[0], commands, err)
	}
	if _, err := useAs(t, admin, "~other:*", aclCommands); err == nil {
		t.Error("the keys of others are not denied")
	}
}

// TestACLCluster does the same on a Cluster, where go-redis needs more rules.
func TestACLCluster(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	nodes := make([]*redis.Client, len(addrs))
	for i, addr := range addrs {
		nodes[i] = redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = nodes[i].Close() }()
		allow(t, nodes[i], "~rl:*", slices.Concat(aclCommands, aclCluster))
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "limits", Password: "secret", ReadTimeout: time.Minute})
	defer func() { _ = client.Close() }()
	var scripts gate.Gate
	client.AddHook(&scripts)
	if err := useAll(t.Context(), client, redistest.ClusterClient(t, addrs)); err != nil {
		t.Error(err)
	}
	if scripts.Undeclared() == 0 {
		t.Error("no script had the keys of several decisions")
	}
	for _, node := range nodes {
		if commands := denied(t, node); len(commands) > 0 {
			t.Errorf("denied are %v", commands)
		}
	}
}

// useAs uses every algorithm as a user who may only run commands, on the keys of a
// pattern. It returns what Redis denied, and the error if there was one.
func useAs(t *testing.T, admin *redis.Client, pattern string, commands []string) ([]string, error) {
	t.Helper()
	allow(t, admin, pattern, commands)
	client := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "limits", Password: "secret", ReadTimeout: time.Minute})
	defer func() { _ = client.Close() }()
	err := useAll(t.Context(), client, admin)
	return denied(t, admin), err
}

// allow makes the user, on a server that has nothing stored.
func allow(t *testing.T, admin *redis.Client, pattern string, commands []string) {
	t.Helper()
	rules := []any{"acl", "setuser", "limits", "reset", "on", ">secret", pattern}
	for _, command := range commands {
		rules = append(rules, "+"+command)
	}
	for _, command := range [][]any{rules, {"script", "flush"}, {"flushall"}, {"acl", "log", "reset"}, {"config", "resetstat"}} {
		if err := admin.Do(t.Context(), command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// denied returns the commands that Redis denied.
func denied(t *testing.T, admin *redis.Client) []string {
	t.Helper()
	log, err := admin.ACLLog(t.Context(), 100).Result()
	if err != nil {
		t.Fatal(err)
	}
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

// shortHold is for how long units are held.
const shortHold = 10 * time.Millisecond

// slow frees no units during a test.
var slow = core.PerHour(10)

// useAll does all that a program can do, with every algorithm.
func useAll(ctx context.Context, client core.Client, admin redis.Cmdable) error {
	options := []core.Option{core.FailClosed(), core.Timeout(time.Minute), core.DenyCache(0), core.Logger(slog.New(slog.DiscardHandler))}
	var errs []error
	var together []core.Option
	for _, v := range limits.All() {
		errs = append(errs, useOne(ctx, client, admin, v.Name, append(options, v.Limit(slow), limits.Hold(shortHold, v.Limit(slow)))...))
		together = append(together, v.With(slow, limits.Settings{Burst: slow.Count(), Name: v.Name}))
		errs = append(errs, useChanged(ctx, client, v, options))
	}
	for _, v := range limits.Slots() {
		errs = append(errs, useSlots(ctx, client, append(options, v.Limit(slow))...))
	}
	return errors.Join(append(errs, useOne(ctx, client, admin, "together", append(append(options, core.Hold(shortHold)), together...)...))...)
}

// useSlots takes, looks at, renews and frees slots, and has some expire.
func useSlots(ctx context.Context, client core.Client, options ...core.Option) error {
	lim := core.MustNew(client, "slots", options...)
	defer func() { _ = lim.Close() }()
	var errs []error
	for _, n := range []int64{1, 3} {
		slots, err := tryAcquire(ctx, lim, "k", n)
		_, looked := lim.Peek(ctx, "k")
		_, lost := tryAcquire(ctx, lim, "lost", n)
		inside.Core.Driver(lim).Renew()
		errs = append(errs, err, looked, lost, slots.Release(ctx), lim.Reset(ctx, "lost"))
	}
	return errors.Join(errs...)
}

// useChanged makes the period of a limit so short that what it stored has expired,
// which its next charge removes. Those of a calendar are never short: a script that is late would be of another one.
func useChanged(ctx context.Context, client core.Client, v limits.Variant, options []core.Option) error {
	var errs []error
	short := time.Millisecond
	if v.Kind == algorithm.Calendar {
		short = time.Hour
	}
	for _, rate := range []core.Rate{slow, slow, core.Per(slow.Count(), short)} {
		limit := v.With(rate, limits.Settings{Burst: slow.Count(), Name: "changed"})
		for _, key := range []string{"one", "several"} {
			_, err := core.MustNew(client, v.Name, append(options, limit)...).AllowN(ctx, key, int64(len(key)-2))
			errs = append(errs, err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return errors.Join(errs...)
}

func useOne(ctx context.Context, client core.Client, admin redis.Cmdable, name string, options ...core.Option) error {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	// Each call has a Limiter of its own: after an error the circuit breaker of the
	// Limiter may be open, and the next call would not be sent.
	lim := func() *core.Limiter { return core.MustNew(client, name, options...) }
	for _, foreign := range []bool{false, true} {
		note(lim().Reset(ctx, "k"))
		if foreign { // values of another type are in the way
			for _, limit := range lim().Limits() {
				note(admin.HSet(ctx, "rl:"+name+":{k}:"+limit.Name(), "a", "b").Err())
			}
		}
		for _, n := range []int64{1, 3} {
			charged, err := tryAcquire(ctx, lim(), "k", n)
			note(err)
			_, err = lim().Peek(ctx, "k")
			note(err)
			note(charged.Cancel(ctx))
		}
		for _, actual := range []int64{0, 2, 5} {
			holding := lim()
			one, err := tryReserve(ctx, holding, "k", 1)
			note(err)
			two, err := tryReserve(ctx, holding, "k", 2)
			note(err)
			_, err = lim().Peek(ctx, "k")
			note(err)
			_, err = lim().AllowN(ctx, "k", 1)
			note(err)
			note(two.Settle(ctx, actual))
			note(lim().Reset(ctx, "k"))
			note(one.Cancel(ctx))
			note(lim().Reset(ctx, "k"))
		}
		note(holdForLong(ctx, lim()))
		patient, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := lim().Wait(patient, "k")
		note(err)
		cancel()
		for range 11 { // until it is denied
			_, err := lim().Allow(ctx, "k")
			note(err)
		}
	}
	shared := lim() // by callers whose decisions go together
	var wg sync.WaitGroup
	var mu sync.Mutex
	for caller := range 32 {
		wg.Go(func() {
			err := share(ctx, shared, caller)
			mu.Lock()
			defer mu.Unlock()
			note(err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// share makes calls of one of many callers.
func share(ctx context.Context, lim *core.Limiter, caller int) error {
	key := strconv.Itoa(caller / 2)
	if caller%2 == 0 {
		_, err := lim.Allow(ctx, key)
		return err
	}
	held, err := tryReserve(ctx, lim, key, 1)
	return errors.Join(err, held.Settle(ctx, int64(caller%3)))
}

// holdForLong has holds renewed, and lets others expire.
func holdForLong(ctx context.Context, lim *core.Limiter) error {
	defer func() { _ = lim.Close() }()
	kept, err := tryReserve(ctx, lim, "long", 1)
	if err != nil {
		return err
	}
	kept.Keep()
	_, err = tryReserve(ctx, lim, "long", 1)
	time.Sleep(3 * shortHold)
	_, charged := lim.AllowN(ctx, "long", 1)
	return errors.Join(err, charged, kept.Settle(ctx, 1), lim.Reset(ctx, "long"))
}
