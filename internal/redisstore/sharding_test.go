package redisstore

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/testkit/check"
)

// A shardingProxy stands for Redis, or for a proxy in front of several servers. Each command goes to the
// server of its first key.
type shardingProxy struct {
	mu     sync.Mutex
	shards []map[string]bool // the keys of each server
	trips  int
	fails  map[string]error // the errors of commands, by their names
	before func(cmd string) // called before each command, with the lock held
}

func (p *shardingProxy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *shardingProxy) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return p.trip(ctx, cmd) }
}

func (p *shardingProxy) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return p.trip(ctx, cmds...) }
}

// trip makes one round trip.
func (p *shardingProxy) trip(ctx context.Context, cmds ...redis.Cmder) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trips++
	time.Sleep(time.Millisecond)
	for _, cmd := range cmds {
		if p.before != nil {
			p.before(cmd.Name())
		}
		err := p.fails[cmd.Name()]
		if errors.Is(err, context.DeadlineExceeded) {
			<-ctx.Done()
			err = ctx.Err()
		}
		if err == nil {
			err = p.run(cmd)
		}
		cmd.SetErr(err)
	}
	i := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil })
	if i < 0 {
		return nil
	}
	return cmds[i].Err()
}

func (p *shardingProxy) run(cmd redis.Cmder) error {
	key := func(i int) string { return cmd.Args()[i].(string) }
	switch cmd := cmd.(type) {
	case *redis.StatusCmd: // SET
		p.shard(key(1))[key(1)] = true
	case *redis.StringCmd: // GET
		if !p.shard(key(1))[key(1)] {
			return redis.Nil
		}
	case *redis.IntCmd: // DEL
		delete(p.shard(key(1)), key(1))
	case *redis.Cmd: // EVAL
		seen := int64(0)
		for i := range cmd.Args()[2].(int) {
			if p.shard(key(3))[key(3+i)] {
				seen++
			}
		}
		cmd.SetVal(seen)
	}
	return nil
}

// shard returns the server of a key. It chooses by the upper bits of a hash, as twemproxy does, which
// hardly depend on the last characters of the key.
func (p *shardingProxy) shard(key string) map[string]bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return p.shards[h.Sum64()&0xffffffff*uint64(len(p.shards))>>32]
}

// newShardingProxy returns a proxy in front of the given number of servers, and a Store over it.
func newShardingProxy(t *testing.T, shards int) (*shardingProxy, *Store) {
	t.Helper()
	p := &shardingProxy{fails: map[string]error{}}
	for range shards {
		p.shards = append(p.shards, map[string]bool{})
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(p)
	return p, NewStore(client, testConfig(time.Second))
}

// wantTogether checks the result of awaitSharding, and how many round trips it takes.
func (p *shardingProxy) wantTogether(t *testing.T, s *Store, together bool, want error, trips int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.mu.Lock()
	p.trips = 0
	p.mu.Unlock()
	got, err := s.servers.whole.awaitSharding(ctx, s)
	p.mu.Lock() // an abandoned call may still be running
	defer p.mu.Unlock()
	if got != together || !errors.Is(err, want) || p.trips != trips {
		t.Errorf("together %v, %v, in %d round trips; want %v, %v, in %d", got, err, p.trips, together, want, trips)
	}
}

// errCrossSlot is the reply of a node of a Cluster to a script with keys of several hash slots.
const errCrossSlot = redisError("CROSSSLOT Keys in request don't hash to the same slot")

// For each client, one check finds out whether a script sees all its keys, however many callers
// need to know it at the same time. No keys are left behind.
func TestSharding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shards   int
		eval     error
		together bool
	}{
		"one server":               {1, nil, true},
		"two servers":              {2, nil, false},
		"a proxy before a Cluster": {1, errCrossSlot, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := newShardingProxy(t, c.shards)
				if c.eval != nil {
					p.fails["eval"] = c.eval
				}
				check.Together(16, func(int) {
					if together, err := s.servers.whole.awaitSharding(t.Context(), s); together != c.together || err != nil {
						t.Errorf("together %v, %v", together, err)
					}
				})
				if p.trips != 1 {
					t.Errorf("it took %d round trips, want one", p.trips)
				}
				p.wantTogether(t, s, c.together, nil, 0)
				if s.servers.whole.needsSeparateScripts() == c.together {
					t.Error("later decisions do not know it")
				}
				for _, shard := range p.shards {
					if len(shard) > 0 {
						t.Errorf("left behind: %v", shard)
					}
				}
			})
		})
	}
}

// TestNothingSent makes calls in one round trip when it is not known whether one script may have their keys,
// and no check may begin yet. Nothing is sent, so the server does not count as answering fast. Calls in the
// background are then sent alone.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	withFake(t, func(t *testing.T, f *fake) {
		s := f.store(time.Second)
		n, calls := s.servers.whole, make([]*Call, 2)
		for i := range calls {
			calls[i] = NewCall(s.Limits, "k", algorithm.Operation{Op: algorithm.OpCharge, N: 1})
		}
		n.sharding.check = &shardingCheck{done: make(chan struct{}), ended: time.Now()}
		close(n.sharding.check.done)
		if err := s.send(t.Context(), n, calls, batch.Place[*Call]{}, nil); !errors.Is(err, batch.ErrRetryAlone) || f.sent() != 0 || !n.health.SlowToConnect() {
			t.Errorf("%v; slow to connect: %v", err, n.health.SlowToConnect())
		}
		errs := []error{errReply, errReply}
		if s.sendCalls(t.Context(), n, calls, errs); errs[0] != nil || errs[1] != nil || f.sent() != 2 {
			t.Errorf("in the background: %v", errs)
		}
		n.sharding.state.Store(oneScript)
		s.SendAll(t.Context(), []Background{{
			Limits: s.Limits, Key: "k", Begin: func() (algorithm.Operation, bool) { return algorithm.Operation{}, false },
		}})
		if n := f.sent(); n != 0 {
			t.Errorf("%d scripts are sent although no call begins", n)
		}
	})
}

// If the sharding cannot be found out, decisions are sent alone, and the next check begins a second
// later.
func TestShardingUnknown(t *testing.T) {
	t.Parallel()
	noPermission := redisError("NOPERM this user has no permissions to run the 'set' command")
	for name, c := range map[string]struct {
		spoil func(p *shardingProxy)
		want  error
	}{
		"no permission to write": {func(p *shardingProxy) { p.fails["set"] = noPermission }, nil},
		"no permission to run":   {func(p *shardingProxy) { p.fails["eval"] = noPermission }, nil},
		"no reply":               {func(p *shardingProxy) { p.fails["set"] = context.DeadlineExceeded }, context.DeadlineExceeded},
		"a key is evicted": {func(p *shardingProxy) {
			p.before = func(cmd string) {
				for key := range p.shards[0] {
					if cmd == "eval" {
						delete(p.shards[0], key)
						return
					}
				}
			}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, s := newShardingProxy(t, 1)
				c.spoil(p)
				p.wantTogether(t, s, false, c.want, 1)
				p.wantTogether(t, s, false, nil, 0)
				if s.servers.whole.needsSeparateScripts() {
					t.Error("it counts as known")
				}
				p.mu.Lock()
				clear(p.fails)
				p.before = nil
				p.mu.Unlock()
				time.Sleep(shardingPause)
				p.wantTogether(t, s, true, nil, 1)
			})
		})
	}
}
