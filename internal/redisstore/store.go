package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/batch"
	"github.com/redislimit/redislimit/internal/health"
)

// A Config says what a [Store] decides, and how.
type Config struct {
	Prefix, Limiter string           // what the Redis keys begin with
	Limits          *Limits          // each Call brings its own, of the same kinds; these are for scripts, batch sizes, probes and Others
	Timeout         time.Duration    // for which a caller waits at most, and each call is given
	MaxBatch        int              // decisions in one round trip; 1: none share
	Clock           func() time.Time // for limits that need this process's; nil: its own
	Hooks           *Hooks           // or nil. They tell limiters apart: Stores with the same are of one, and told once of a server
}

// Hooks notify a limiter of what happens to its calls and servers. Any of them may be nil. The goroutine
// that notices an event calls the hook. For ServerChanged this is the goroutine of package health that
// watches the server.
type Hooks struct {
	ScriptLoaded func(ctx context.Context) // Redis did not have a script
	// CallFailed is for each call that failed, and once for a batch that failed as a whole; for
	// keys of hash slots that are moving only after slotsStuckAfter. callAlone says that the error tells
	// nothing of the server.
	CallFailed func(ctx context.Context, err error, callAlone bool)
	// HookPanicked is for each call that a hook of the client ended by a panic.
	HookPanicked  func(ctx context.Context, err *batch.HookError)
	ServerChanged health.Listener
}

// A Store decides for the keys of one limiter. What it does is atomic for each key, and the
// server's clock decides. It is safe for concurrent use.
type Store struct {
	Config

	servers *Servers
	members []algorithm.Member // by which it decides: of one limiter, or of several
	form    algorithm.Form
	bans    int      // how many limiters with bans it decides for
	stores  []*Store // those of which it is Together, or itself alone

	script      script // for one call
	batchScript script // for several
	mixedScript script // for several by limits of different numbers
	perScript   int    // how many calls of one unit that are not plain one script makes at most

	deadlines    deadlines
	farDeadlines deadlines // of calls to a server that is far
	cleanups     cleanups
	single       *batcher                             // of one server
	byServer     atomic.Pointer[map[*Server]*batcher] // of a Cluster; copied when it changes
	mu           sync.Mutex                           // held where byServer or withOthers changes
	withOthers   atomic.Pointer[map[string]*Store]    // see Together; copied when it changes
	number       uint64                               // identifies the Store in the keys of withOthers
	timed        bool                                 // a constant depends on the time
	subscription *health.Subscription                 // nil for a Store of Together
	driven       bool                                 // see Drive; false for a Store of Together, which holds nothing

	head string // a Redis key up to the user's key: "rl:api:{"
}

// NewStore returns the Store of one limiter over client. It sends nothing.
func NewStore(client Client, c Config) *Store {
	s := &Store{
		Config: c, servers: serversOf(client, c.Timeout), head: c.Prefix + ":" + c.Limiter + ":{", number: storeNumber.Add(1),
		members: c.Limits.members, form: algorithm.Form{Bans: c.Limits.bans}, timed: c.Limits.timed,
	}
	if s.Clock == nil {
		s.Clock = time.Now
	}
	if s.Hooks == nil {
		s.Hooks = &Hooks{}
	}
	s.stores = []*Store{s}
	s.init()
	s.servers.add(s)
	return s
}

// Scripts returns the texts of the Store's scripts: for a call, for a batch, and for one by limits
// of different numbers.
func (s *Store) Scripts() (call, batch, mixed string) {
	return fmt.Sprint(s.script.source), fmt.Sprint(s.batchScript.source), fmt.Sprint(s.mixedScript.source)
}

// init makes what a Store of these members needs.
func (s *Store) init() {
	for _, part := range s.stores {
		if part.form.Bans != nil {
			s.bans++
		}
	}
	form := s.form
	s.script = newScript(algorithm.Script(s.members, form), false)
	form.Undeclared = s.servers.cluster != nil // of a Cluster, their keys are of several hash slots
	s.batchScript = newScript(algorithm.Script(s.members, form), form.Undeclared)
	form.Own = true
	s.mixedScript = newScript(algorithm.Script(s.members, form), form.Undeclared)
	work := int64(0)
	for _, l := range s.members {
		work += l.Work(1) * otherWork
	}
	s.perScript = max(1, min(s.MaxBatch, int(maxWork/work)))
	s.deadlines.timeout = s.Timeout
	s.farDeadlines.timeout = health.ConnectTimeout(s.Timeout)
	s.byServer.Store(&map[*Server]*batcher{})
	if _, ok := s.servers.client.(*redis.Client); ok {
		s.single = s.newBatcher(s.servers.whole)
	}
}

// Others reports whether another limiter over the client uses the same Redis keys with other
// numbers, and how many stores over the client are open.
func (s *Store) Others() (numbers bool, open int) {
	return slices.ContainsFunc(s.servers.openStores(), func(other *Store) bool {
		return other.head == s.head && other.Hooks != s.Hooks && other.Limits.differ(s.Limits)
	}), s.servers.listeners.Open()
}

// SharesKeys reports whether other is of a limiter of the same name over the same client.
func (s *Store) SharesKeys(other *Store) bool {
	return s.head == other.head && s.servers == other.servers
}

// Close ends what runs in the background for s, unless other limiters over its client need it. It
// waits until what was left behind is freed, for the timeout at most.
func (s *Store) Close() {
	s.cleanups.wait(s.Timeout)
	if s.subscription.Close() {
		s.servers.storeClosed()
	}
}

func (s *Store) closed() bool { return s.subscription != nil && s.subscription.Closed() }

// Drive is for a test that plays the network and wants calls in a fixed order. From then on the call that
// leaves something to be freed frees it before it returns, Later runs nothing, and Background calls that
// cannot share a script are made one after the other. Calls that outlive their callers, sharding checks and
// probes still have goroutines of their own.
func (s *Store) Drive() { s.driven = true }

// probe charges one unit to keys that nothing else uses, in the hash slot of k: it takes all that a
// decision takes, in one round trip. It returns nil if the server is well. The limits are so short
// that the keys expire soon.
func (s *Store) probe(ctx context.Context, client Client, k string) error {
	members, unique := slices.Clone(s.Limits.members), strconv.FormatUint(rand.Uint64(), 36)
	for i, m := range members {
		members[i].Evaluator = m.New(algorithm.Numbers{Count: 1, Period: algorithm.MinHold, Burst: 1})
		members[i].Hold = algorithm.MinHold
	}
	l := NewLimits(members, make([]string, len(members)), s.Limits.bans)
	for i, tail := range s.Limits.tails {
		l.tails[i] = tail + "~probe-" + unique
	}
	d := NewCall(l, k, algorithm.HoldCall{Op: algorithm.OpCharge, N: 1})
	script, args, keys := s.scriptOf(d.self[:])
	_, err := script.run(ctx, client, args, keys, s.Hooks.ScriptLoaded)
	if reply := redis.Error(nil); errors.As(err, &reply) { // it may have failed before it gave them a TTL
		ctx := context.WithoutCancel(ctx)
		go func() {
			_ = batch.Catch(func() error {
				return client.Process(ctx, redis.NewIntCmd(ctx, append([]any{"del"}, args[scriptArgs:scriptArgs+keys]...)...))
			})
		}()
	}
	return err
}
