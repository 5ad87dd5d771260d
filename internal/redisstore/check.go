package redisstore

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/diagnose"
)

// checkTime is how long Check waits for a step that may have to connect, unless the timeout of the Store is
// longer. A connection to a distant server may take that long.
const checkTime = 5 * time.Second

// Check makes the server decide once, on keys that nothing else uses. If the server cannot decide, the error
// says why. Otherwise advice says what an operator should change nevertheless.
func (s *Store) Check(ctx context.Context) (advice []string, cannot error) {
	began := time.Now()
	err := batch.Catch(func() error {
		return s.bounded(ctx, max(s.Timeout, checkTime), func(ctx context.Context) error { return s.probe(ctx, s.servers.client, "~check") })
	})
	switch {
	case err == nil:
		return s.advice(ctx), nil
	case diagnose.IsTimeout(err):
		err = diagnose.Timeout(s.servers.client, s.servers.options, err, time.Since(began), max(s.Timeout, checkTime))
		if c, ok := s.servers.client.(*redis.Client); ok && c.Options().TLSConfig != nil {
			err = fmt.Errorf("%w (%s)", err, diagnose.NoTLS)
		}
	case diagnose.IsBroken(err):
		err = fmt.Errorf("%w (the server ended the connection: if it wants TLS, set Options.TLSConfig; it may also have reached its maxclients)", err)
	}
	if diagnose.LacksRight(err) {
		if missing := s.missingRights(ctx); missing != "" {
			return nil, fmt.Errorf("%w (%s)", err, missing)
		}
	}
	return nil, s.explain(ctx, err)
}

// tryCommands is a script that returns which of the commands in ARGV the user may not run. It calls each
// command, because Redis checks the rights only then. Redis first checks the number of arguments. So the
// script calls a command with four arguments, and then with fewer until Redis accepts their number. Every
// argument is the same key, which nothing else uses.
//
//nolint:dupword // Lua has many ends
const tryCommands = `
local missing, words = {}, {}
for i = 2, 5 do words[i] = KEYS[1] end
for _, name in ipairs(ARGV) do
	words[1] = name
	for n = 5, 1, -1 do
		local reply = redis.pcall(unpack(words, 1, n))
		local err = type(reply) == 'table' and reply.err or ''
		if not string.find(string.lower(err), 'number of arg') then
			err = string.lower(err)
			if string.find(err, 'permission') or string.find(err, "can't run") then missing[#missing + 1] = name end
			break
		end
	end
end
return missing`

// missingRights says which commands of the scripts the Redis user may not run. It returns "" if the
// user may run all of them, or if it cannot find this out.
func (s *Store) missingRights(ctx context.Context) string {
	commands := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	args := []any{"eval", tryCommands, 1, s.head + "~check}:~check"}
	for _, m := range commands.FindAllStringSubmatch(fmt.Sprint(s.script.source, s.batchScript.source), -1) {
		if !slices.Contains(args, any(m[1])) {
			args = append(args, m[1])
		}
	}
	cmd := redis.NewStringSliceCmd(ctx, args...)
	if s.process(ctx, max(s.Timeout, checkTime), cmd) != nil || len(cmd.Val()) == 0 {
		return ""
	}
	return "the Redis user may not run " + strings.ToLower(strings.Join(slices.Sorted(slices.Values(cmd.Val())), ", "))
}

// advice returns what is wrong with a server that can decide. It leaves out what it cannot find out, for
// example because the Redis user may not run a command.
func (s *Store) advice(ctx context.Context) (all []string) {
	options := s.servers.options
	all = append(all, s.adviceOnOptions()...)
	if missing := s.missingRights(ctx); missing != "" { // the decision that Check made needed only some of the commands
		all = append(all, missing+", which other decisions need: docs/operating.md lists what it must be allowed")
	}
	if s.servers.cluster == nil && options != nil {
		if oneScript, err := s.servers.whole.awaitSharding(ctx, s); err == nil && !oneScript && s.servers.ring == nil {
			all = append(all, "a proxy before several servers: each decision is sent alone, so connect to the servers themselves, by a Ring or a Cluster")
		}
	}
	for _, line := range s.adviceOnServers(ctx) {
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	return all
}

// adviceOnServers looks at the settings and the clocks of all servers at the same time, for at most checkTime.
func (s *Store) adviceOnServers(ctx context.Context) []string {
	var mu sync.Mutex
	var all []string
	_ = s.bounded(ctx, checkTime, func(ctx context.Context) error {
		s.eachServer(ctx, func(ctx context.Context, client *redis.Client) error {
			found := adviceOf(ctx, client, s.servers.options.ConnMaxIdleTime)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			return nil
		})
		return nil
	})
	mu.Lock() // needed, because the advice on a server that did not answer in time may still be added to all
	defer mu.Unlock()
	return slices.Sorted(slices.Values(all))
}

// adviceOf looks at the settings and the clock of one server. idle is the ConnMaxIdleTime of the client.
func adviceOf(ctx context.Context, client *redis.Client, idle time.Duration) (all []string) {
	if line := adviceOnClock(ctx, client); line != "" {
		all = append(all, line)
	}
	if info := diagnose.InfoFields(client.Info(ctx, "replication").Val()); info["role"] == "slave" && info["slave_read_only"] == "0" {
		all = append(all, "a replica that accepts writes: each synchronization with its master replaces what it has counted: connect to the master")
	}
	memory := diagnose.InfoFields(client.Info(ctx, "memory").Val())
	if policy := memory["maxmemory_policy"]; policy != "" && policy != "noeviction" && memory["maxmemory"] != "0" {
		all = append(all, fmt.Sprintf("maxmemory-policy %s: a full server forgets limits: set noeviction", policy))
	}
	if ok, _ := strconv.Atoi(diagnose.InfoFields(client.ClusterInfo(ctx).Val())["cluster_slots_ok"]); ok > 0 && ok < 16384 {
		all = append(all, fmt.Sprintf("%d of the Cluster's 16384 hash slots are on no node that answers: redis-cli --cluster check says which", 16384-ok))
	}
	seconds, _ := strconv.Atoi(client.ConfigGet(ctx, "timeout").Val()["timeout"])
	if ends := time.Duration(seconds) * time.Second; ends > 0 && (idle <= 0 || idle >= ends) {
		all = append(all, fmt.Sprintf("the server ends connections that are idle for %v: set Options.ConnMaxIdleTime below that", ends))
	}
	return all
}

// tolerableSkew is the difference between the clocks of Redis and of this process that is accepted.
const tolerableSkew = 2 * time.Second

// adviceOnClock compares the server's clock with the clock of this process, from which the Date
// headers of its HTTP responses come.
func adviceOnClock(ctx context.Context, client *redis.Client) string {
	began := time.Now()
	theirs, err := client.Time(ctx).Result()
	if err != nil {
		return ""
	}
	ended := time.Now()
	ahead, direction := theirs.Sub(ended), "ahead of"
	if behind := began.Sub(theirs); behind > 0 {
		ahead, direction = behind, "behind"
	}
	if ahead < tolerableSkew { // ahead is the least difference: the server read its clock between began and ended
		return ""
	}
	return fmt.Sprintf("the server's clock is %v %s that of this process: clients compare X-RateLimit-Reset, which goes by the server's clock, "+
		"with theirs: set both right, or use guard.ResetInSeconds()", ahead.Round(time.Second), direction)
}

// adviceOnOptions says which options of the client make decisions slower, or end them too soon.
func (s *Store) adviceOnOptions() (all []string) {
	o := s.servers.options
	switch {
	case o == nil:
		return nil
	case !o.ContextTimeoutEnabled:
		all = append(all, "ContextTimeoutEnabled of the client's options is off, and each call takes a second goroutine: set it")
	case !s.servers.ctxDeadlines:
		all = append(all, "ReadTimeout or WriteTimeout of the client's options is negative, and not -1: go-redis then sets no deadline, "+
			"each call takes a second goroutine, and one that is not answered keeps its connection: set them to 0, the default, or to -1")
	}
	option, value := "ReadTimeout", o.ReadTimeout // WriteTimeout follows it by default
	if value <= 0 || value >= s.Timeout {
		option, value = "WriteTimeout", o.WriteTimeout
	}
	if value > 0 && value < s.Timeout {
		all = append(all, fmt.Sprintf("%s of the client's options is %v, and ends decisions before core.Timeout of %v does: raise it, "+
			"or lower core.Timeout", option, value, s.Timeout))
	}
	return all
}

// eachServer calls f for each server that stores keys: concurrently for the masters of a Cluster, and for those
// shards of a Ring that are up. It calls nothing if the client is not one of go-redis, and ignores the errors
// and the panics of f.
func (s *Store) eachServer(ctx context.Context, f func(context.Context, *redis.Client) error) {
	contained := func(ctx context.Context, client *redis.Client) error { // hooks of the client may panic
		return batch.Catch(func() error { return f(ctx, client) })
	}
	switch c := s.servers.client.(type) {
	case *redis.Client:
		_ = contained(ctx, c)
	case *redis.ClusterClient:
		_ = c.ForEachMaster(ctx, contained)
	case *redis.Ring:
		_ = c.ForEachShard(ctx, contained)
	}
}
