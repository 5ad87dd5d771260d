package outage

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/core"
	"github.com/redislimit/redislimit/internal/testkit/check"
	"github.com/redislimit/redislimit/internal/testkit/gate"
	"github.com/redislimit/redislimit/internal/testkit/redistest"
)

// TestCheck checks that Limiter.Check says in one line what is wrong and what to do about it.
func TestCheck(t *testing.T) {
	t.Parallel()
	well := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	options := func(more func(*redis.Options)) setup {
		return setup{options: func(o *redis.Options) { well(o); more(o) }}
	}
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	web := server.Listener.Addr().String()
	type trouble struct {
		setup setup
		admin string // commands that the admin runs before
		want  string // as for wantCheck
	}
	for name, c := range map[string]trouble{
		"well":           {setup{options: well}, "PING", ""},
		"defaults":       {setup{}, "PING", "ContextTimeoutEnabled"},
		"no password":    {setup{options: well}, "ACL SETUSER default resetpass >secret", "!set Options.Password"},
		"wrong password": {options(func(o *redis.Options) { o.Password = "wrong" }), "ACL SETUSER default resetpass >secret", "!Options.Username and Options.Password"},
		"no database":    {options(func(o *redis.Options) { o.DB = 99 }), "PING", "!see Options.DB"},
		"read-only":      {setup{options: well}, "REPLICAOF 127.0.0.1 1", "!connect to the master"},
		"no eval":        {setup{options: well}, "ACL SETUSER default -evalsha -eval", "!'evalsha'"},
		"no set":         {setup{options: well}, "ACL SETUSER default -set", "!may not run set)"},
		"no zadd, del":   {setup{options: well}, "ACL SETUSER default -zadd -del", "!may not run del, zadd)"},
		"no zcard":       {setup{options: well}, "ACL SETUSER default -zcard", "may not run zcard, which"},
		"no keys":        {setup{options: well}, "ACL SETUSER default resetkeys ~other:*", "!lacks a right"},
		"no info":        {setup{options: well}, "ACL SETUSER default -info -config", ""},
		"evicts":         {setup{options: well}, "CONFIG SET maxmemory 100mb maxmemory-policy allkeys-lru", "set noeviction"},
		"reads early":    {options(func(o *redis.Options) { o.ReadTimeout = 400 * time.Millisecond }), "PING", "ReadTimeout of the client's options is 400ms"},
		"writes early":   {options(func(o *redis.Options) { o.WriteTimeout = 400 * time.Millisecond }), "PING", "WriteTimeout of the client's options is 400ms"},
		"reads for ever": {options(func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = -2, time.Minute }), "PING", "go-redis then sets no deadline"},
		"as its context": {options(func(o *redis.Options) { o.ReadTimeout = -1 }), "PING", ""},
		"ends idle":      {setup{options: well}, "CONFIG SET timeout 60", "set Options.ConnMaxIdleTime below"},
		"ends idle late": {options(func(o *redis.Options) { o.ConnMaxIdleTime = 30 * time.Second }), "CONFIG SET timeout 60", ""},
		"no TLS":         {options(func(o *redis.Options) { o.TLSConfig = newTerminator(t, "").client }), "PING", "!does not speak TLS"},
		"nobody":         {options(func(o *redis.Options) { o.Addr = "127.0.0.1:1" }), "PING", "!see Options.Addr"},
		"no port":        {options(func(o *redis.Options) { o.Addr = "localhost" }), "PING", "!redis.ParseURL"},
		"speaks HTTP":    {options(func(o *redis.Options) { o.Addr = web }), "PING", "!another service"},
		"wants TLS":      {options(func(o *redis.Options) { o.Addr = newTerminator(t, o.Addr).addr }), "PING", "!set Options.TLSConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, c.setup)
			for command := range strings.SplitSeq(c.admin, "; ") {
				e.do(t, command)
			}
			lim := core.MustNew(e.rdb, "check", core.TokenBucket(core.PerMinute(10)), core.SlidingWindowLog(core.PerMinute(10)))
			wantCheck(t, lim, c.want)
			expiring(t, e.admin)
		})
	}
}

// TestMaxClients checks that Check and the log name maxclients if the server accepts no more connections, although go-redis
// drops the server's message about that.
func TestMaxClients(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	admin := server.Client(t)
	check.Need(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	lim, watch := watched(rdb, "check", core.TokenBucket(core.PerMinute(10)), core.FailClosed())
	if _, err := lim.Allow(t.Context(), "k"); err == nil || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Allow: got error %v, want one that names maxclients", err)
	}
	wantCheck(t, lim, "!maxclients")
	check.Eventually(t, "the log names maxclients", func() bool { return strings.Contains(strings.Join(watch.warnings(), "\n"), "maxclients") })
}

// TestCheckClock checks that Check reports a wrong clock of Redis if it is wrong by 5 minutes, and not if it is wrong by a
// second.
func TestCheckClock(t *testing.T) {
	t.Parallel()
	server := redistest.Server(t)
	for by, want := range map[time.Duration]string{
		-5 * time.Minute: "5m0s behind that of this process", 5 * time.Minute: "5m0s ahead of that of this process",
		-time.Second: "", time.Second: "",
	} {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = rdb.Close() })
		rdb.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
			err := send()
			if at, ok := cmds[0].(*redis.TimeCmd); ok {
				at.SetVal(at.Val().Add(by))
			}
			return err
		}))
		wantCheck(t, core.MustNew(rdb, "check", core.TokenBucket(core.PerMinute(10))), want)
	}
}

// TestCheckOfSlowServer checks that Check finds missing rights even if the server answers more slowly than a decision may
// take.
func TestCheckOfSlowServer(t *testing.T) {
	t.Parallel()
	e := newEnv(t, setup{options: func(o *redis.Options) { o.ContextTimeoutEnabled = true }})
	e.do(t, "ACL SETUSER default -zcard")
	const timeout = 50 * time.Millisecond
	e.rdb.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
		if cmds[0].Name() == "eval" {
			time.Sleep(2 * timeout)
		}
		return send()
	}))
	wantCheck(t, core.MustNew(e.rdb, "check", core.SlidingWindowLog(core.PerMinute(10)), core.Timeout(timeout)), "may not run zcard, which")
}

// wantCheck checks that Check returns nil if want is "", and otherwise one line that contains want. After the prefix "!"
// the error must be ErrUnavailable, and without it, it must not be.
func wantCheck(tb testing.TB, lim *core.Limiter, want string) {
	tb.Helper()
	err := lim.Check(tb.Context())
	want, cannot := strings.CutPrefix(want, "!")
	switch {
	case want == "" && err == nil:
	case err == nil || want == "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n"):
		tb.Errorf("Check returned %v, want one line that contains %q", err, want)
	case errors.Is(err, core.ErrUnavailable) != cannot:
		tb.Errorf("Check returned %v, which is ErrUnavailable: %v, want %v", err, !cannot, cannot)
	}
}

// TestCheckServers checks what Check says about a client of the wrong kind for its server, about Tair's proxy, and about a
// replica that accepts writes.
func TestCheckServers(t *testing.T) {
	t.Parallel()
	addrs := redistest.Cluster(t)
	cluster := redistest.ClusterClient(t, addrs)
	limit := core.FixedWindow(core.PerMinute(10))
	wantCheck(t, core.MustNew(cluster, "check", limit), "ContextTimeoutEnabled")

	plain := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{redistest.Server(t).Addr}, ContextTimeoutEnabled: true})
	defer func() { _ = plain.Close() }()
	wantCheck(t, core.MustNew(plain, "check", limit), "!one server, no Cluster: use redis.NewClient")

	moved := slices.IndexFunc(addrs, func(addr string) bool {
		node := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		defer func() { _ = node.Close() }()
		err := core.MustNew(node, "check", limit).Check(t.Context())
		return err != nil && errors.Is(err, core.ErrUnavailable) && strings.Contains(err.Error(), "use redis.NewClusterClient")
	})
	if moved < 0 {
		t.Error("for none of the nodes of a Cluster Check returned an error that names redis.NewClusterClient, want one: NewClient is wrong for a Cluster")
	}

	tair := redis.NewClient(&redis.Options{Addr: redistest.Server(t).Addr, ContextTimeoutEnabled: true})
	defer func() { _ = tair.Close() }()
	tair.AddHook(gate.Around(func(cmds []redis.Cmder, send func() error) error {
		if name := cmds[0].Name(); name == "eval" || name == "evalsha" {
			return tairError{}
		}
		return send()
	}))
	wantCheck(t, core.MustNew(tair, "check", limit), "!set its script_check_enable to 0")

	replica := redistest.Server(t, "--replicaof", "127.0.0.1", "1", "--replica-read-only", "no").Client(t)
	writable := redis.NewClient(&redis.Options{Addr: replica.Options().Addr, ContextTimeoutEnabled: true})
	defer func() { _ = writable.Close() }()
	wantCheck(t, core.MustNew(writable, "check", limit), "a replica that accepts writes")

	memory, _ := core.NewMemory("check", limit)
	wantCheck(t, memory, "")
}

// tairError is the reply of Tair's proxy to scripts if script_check_enable is 1.
type tairError struct{}

func (tairError) RedisError() {}
func (tairError) Error() string {
	return "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, and KEYS should not be in expression"
}
