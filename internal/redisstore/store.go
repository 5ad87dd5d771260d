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

// A Config says how a [Store] decides.
type Config struct {
	Prefix, Limiter string           // the Redis keys begin with both
	Limits          *Limits          // each Call brings its own, of the same kinds; these are for scripts, batch sizes, probes and Others
	Timeout         time.Duration    // bounds how long a caller waits, and how long the server may take
	MaxBatch        int              // the most decisions in one round trip; 1 means that none share
	Clock           func() time.Time // the clock of this process, for limits that need it; nil means time.Now
	Hooks           *Hooks           // or nil. The pointer identifies the limiter: Stores with the same one are notified once
}

// Hooks notify a limiter of what happens to its calls and servers. Any of them may be nil. The
// goroutine that notices an event calls the hook. For ServerChanged this is the goroutine of
// package health that watches the server.
type Hooks struct {
	// ScriptLoaded is called when Redis does not have a script, before it is sent as a whole.
	ScriptLoaded func(ctx context.Context)
	// CallFailed is called once for each call that failed, and once for a batch that failed as a
	// whole. Errors of hash slots that are being moved count only after slotsStuckAfter. notServer
	// says that the error is no sign that the server is down.
	CallFailed func(ctx context.Context, err error, notServer bool)
	// HookPanicked is called for each call that a hook of the client has ended by a panic.
	HookPanicked func(ctx context.Context, err *batch.HookError)
	// ServerChanged is called when a server goes down or comes back.
	ServerChanged health.Listener
}

// A Store decides for the keys of one limiter. Each call is atomic for its key and goes by the
// clock of the server. A Store is safe for concurrent use.
type Store struct {
	Config

	servers *Servers
	limits  []algorithm.Member // of the limiter, or of all limiters of a Store of Together
	form    algorithm.Form
	stores  []*Store // of the limiters that decide together; otherwise the Store itself

	limitersWithBans int // how many of these limiters have bans

	script      script // for one call
	batchScript script // for several calls
	mixedScript script // for several calls whose limits have different numbers
	perScript   int    // the most calls of one unit that are not plain in one script

	deadlines        deadlines
	connectDeadlines deadlines // of calls to a server that is slow to connect
	cleanups         cleanups
	single           *batcher                           // for a redis.Client; nil for other clients, such as a Ring
	byServer         atomic.Pointer[map[*node]*batcher] // for the nodes of a Cluster; copied when it changes
	mu               sync.Mutex                         // held where byServer or combined changes
	combined         atomic.Pointer[map[string]*Store]  // the results of Together; copied when it changes
	number           uint64                             // identifies the Store in the keys of combined
	timed            bool                               // a constant depends on the time
	subscription     *health.Subscription               // nil for a Store of Together
	driven           bool                               // see Drive; false for a Store of Together, which holds nothing

	head string // a Redis key up to the user's key: "rl:api:{"
}

// NewStore returns the Store of one limiter over client. It sends nothing.
func NewStore(client Client, c Config) *Store {
	s := &Store{
		Config: c, servers: serversOf(client, c.Timeout), head: c.Prefix + ":" + c.Limiter + ":{", number: storeNumber.Add(1),
		limits: c.Limits.limits, form: algorithm.Form{Groups: []algorithm.Group{{Limits: len(c.Limits.limits), Bans: c.Limits.bans}}}, timed: c.Limits.timed,
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

// Scripts returns the texts of the Store's scripts: for one call, for a batch, and for a batch of
// calls whose limits have different numbers.
func (s *Store) Scripts() (call, batch, mixed string) {
	return fmt.Sprint(s.script.source), fmt.Sprint(s.batchScript.source), fmt.Sprint(s.mixedScript.source)
}

// init makes the scripts, deadlines and batcher of a Store whose limits are known.
func (s *Store) init() {
	for _, g := range s.form.Groups {
		if g.Bans != nil {
			s.limitersWithBans++
		}
	}
	form := s.form
	s.script = newScript(algorithm.Script(s.limits, form), false)
	form.Undeclared = s.servers.cluster != nil // the keys of a batch have several hash slots
	s.batchScript = newScript(algorithm.Script(s.limits, form), form.Undeclared)
	form.Own = true // each call of a mixed batch brings its own constants
	s.mixedScript = newScript(algorithm.Script(s.limits, form), form.Undeclared)
	work := int64(0) // never 0: a limiter has a limit, and the Work of each is positive
	for _, l := range s.limits {
		work += l.Work(1) * nonPlainFactor
	}
	s.perScript = max(1, min(s.MaxBatch, int(maxWork/work)))
	s.deadlines.timeout = s.Timeout
	s.connectDeadlines.timeout = health.ConnectTimeout(s.Timeout)
	s.byServer.Store(&map[*node]*batcher{})
	if _, ok := s.servers.client.(*redis.Client); ok {
		s.single = s.newBatcher(s.servers.whole)
	}
}

// Others reports whether another limiter over the client uses the same Redis keys with other
// numbers, which is a conflict, and how many Stores over the client were not closed.
func (s *Store) Others() (conflict bool, unclosed int) {
	return slices.ContainsFunc(s.servers.openStores(), func(other *Store) bool {
		return other.head == s.head && other.Hooks != s.Hooks && other.Limits.differ(s.Limits)
	}), int(s.servers.unclosed.Load())
}

// SharesKeys reports whether other belongs to a limiter of the same name over the same client.
func (s *Store) SharesKeys(other *Store) bool {
	return s.head == other.head && s.servers == other.servers
}

// Close waits, at most for the timeout, until everything is freed that s holds for callers that
// have left. It then ends what runs in the background, unless another limiter over the client needs
// it.
func (s *Store) Close() {
	s.cleanups.wait(s.Timeout)
	if s.subscription.Close() {
		s.servers.unclosed.Add(-1)
		s.servers.storeClosed()
	}
}

func (s *Store) closed() bool { return s.subscription != nil && s.subscription.Closed() }

// Drive is for a test that plays the network and wants calls in a fixed order. From then on the
// call that leaves something to be freed frees it before it returns, Later runs nothing, and
// Background calls that cannot share a script are made one after the other. Calls that outlive
// their callers, sharding checks and probes still have goroutines of their own.
func (s *Store) Drive() { s.driven = true }

// probe charges one unit to keys that nothing else uses, in the hash slot of k, and returns nil if
// that works. It needs everything that a decision needs, in one round trip. The windows of its
// limits are so short that the keys expire soon.
func (s *Store) probe(ctx context.Context, client Client, k string) error {
	limits, unique := slices.Clone(s.Limits.limits), strconv.FormatUint(rand.Uint64(), 36)
	for i, m := range limits {
		limits[i].Evaluator = m.New(algorithm.Numbers{Count: 1, Period: algorithm.MinHold, Burst: 1})
		limits[i].Hold = algorithm.MinHold
	}
	l := NewLimits(limits, make([]string, len(limits)), s.Limits.bans)
	for i, tail := range s.Limits.tails {
		l.tails[i] = tail + "~probe-" + unique
	}
	d := NewCall(l, k, algorithm.HoldCall{Op: algorithm.OpCharge, N: 1})
	script, args, keys := s.scriptOf(d.self[:])
	_, err := script.eval(ctx, client, args, keys, s.Hooks.ScriptLoaded)
	if reply := redis.Error(nil); errors.As(err, &reply) { // the script may have failed before it gave the keys a TTL
		ctx := context.WithoutCancel(ctx)
		go func() {
			_ = batch.Catch(func() error {
				return client.Process(ctx, redis.NewIntCmd(ctx, append([]any{"del"}, args[scriptArgs:scriptArgs+keys]...)...))
			})
		}()
	}
	return err
}
