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

// A Config configures a [Store].
type Config struct {
	Prefix, Limiter string           // every Redis key begins with Prefix and Limiter
	Limits          *Limits          // for the scripts, batch sizes, probes and Others; a Call brings Limits of its own, of the same kinds
	Timeout         time.Duration    // how long a caller waits at most, and how long the server may take for a call
	MaxBatch        int              // the most decisions in one round trip; 1 means that none share
	Clock           func() time.Time // the clock of this process, for limits that need it; nil means time.Now
	Hooks           *Hooks           // may be nil. The pointer identifies the limiter: it is notified of an outage once for all its Stores

	// OnlyCallers is for tests that need a fixed order of calls. A call that leaves something to be
	// freed frees it before it returns, Later runs nothing, and SendAll makes the calls to one server one
	// after the other if they cannot share a script. Calls that outlive their callers, sharding checks
	// and probes still have goroutines of their own.
	OnlyCallers bool
}

// Hooks notify a limiter of what happens to its calls and servers. Any hook may be nil. A hook is called
// by the goroutine that notices the event. ServerChanged is called by a goroutine that package health makes
// for the call.
type Hooks struct {
	// ScriptLoaded is called when Redis does not know a script, before the whole script is sent.
	ScriptLoaded func(ctx context.Context)
	// CallFailed is called for each failure of a round trip, of one of its scripts or of a single call in
	// it, even if the call is sent again afterwards. The failure of a round trip or script that has several
	// calls is reported once for all of them. CallFailed is not called for calls that were not sent, as
	// with ErrQueue or [health.ErrDown], nor if a hook of the client has ended the round trip. It is called
	// for errors of hash slots that are being moved only after slotsStuckAfter. notServer says that the
	// error is no sign that the server is down.
	CallFailed func(ctx context.Context, err error, notServer bool)
	// HookPanicked is called for each round trip that a hook of the client has ended by a panic before the
	// timeout, and for some of those that a hook has ended by runtime.Goexit.
	HookPanicked func(ctx context.Context, err *batch.HookError)
	// ServerChanged is called when a server goes down, comes back or is replaced, and again while it stays
	// down: see [health.Event].
	ServerChanged health.Listener
}

// A Store decides for the keys of one limiter. A limiter has one Store for each list of algorithms that
// its limits have, and Together returns Stores for several limiters. Each call is atomic for its key, and
// takes its time from the clock of the server. Only the bounds of calendar windows come from the clock of
// this process: see Config.Clock. A Store is safe for concurrent use.
type Store struct {
	Config

	servers *Servers
	limits  []algorithm.Limit // the limits of the limiter, or of all limiters if Together made the Store
	form    algorithm.Form
	stores  []*Store // the Stores that decide together; otherwise only the Store itself

	limitersWithBans int // how many of these limiters have bans

	script      script // for one call
	batchScript script // for several calls
	mixedScript script // for several calls whose limits have different numbers
	perScript   int    // how many calls one script may make if none is plain (see Call.plain) and each costs one unit

	deadlines        deadlines
	connectDeadlines deadlines // of calls to a server that is slow to connect
	cleanups         cleanups
	single           *batcher                           // for a redis.Client; nil for other clients, such as a Ring
	byServer         atomic.Pointer[map[*node]*batcher] // for the nodes of a Cluster; copied when it changes
	mu               sync.Mutex                         // held while byServer or combined changes
	combined         atomic.Pointer[map[string]*Store]  // the results of Together; copied when it changes
	number           uint64                             // identifies the Store in the keys of combined
	timed            bool                               // whether a constant of the limits depends on the time
	subscription     *health.Subscription               // nil for a Store of Together

	head string // a Redis key up to the user's key: "rl:api:{"
}

// NewStore returns the Store of one limiter over client. It sends nothing.
func NewStore(client Client, c Config) *Store {
	s := &Store{
		Config: c, servers: serversOf(client, c.Timeout), head: c.Prefix + ":" + c.Limiter + ":{", number: storeNumber.Add(1),
		limits: c.Limits.limits, timed: c.Limits.timed,
		form: algorithm.Form{Groups: []algorithm.Group{{Limits: len(c.Limits.limits), Bans: c.Limits.bans}}},
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
	form.PerCallConstants = true // each call of a mixed batch brings its own constants
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

// Others reports whether another limiter over the client uses the same Redis keys with other numbers,
// which is a conflict. It also returns how many Stores over the client have not been closed. Both are only
// about Stores that share the Servers of s: those with the same timeout.
func (s *Store) Others() (conflict bool, unclosed int) {
	return slices.ContainsFunc(s.servers.openStores(), func(other *Store) bool {
		return other.head == s.head && other.Hooks != s.Hooks && other.Limits.differ(s.Limits)
	}), int(s.servers.unclosed.Load())
}

// SharesKeys reports whether other belongs to a limiter of the same prefix and name, over the same client and
// with the same timeout.
func (s *Store) SharesKeys(other *Store) bool {
	return s.head == other.head && s.servers == other.servers
}

// Close waits for the calls in the background, but no longer than the timeout: for calls in flight whose
// callers have left, for those that free what such calls hold, and for the calls of Later, End and Beside. It
// does not wait for a call that the server has not answered within the timeout. It then ends the probes of
// the servers, unless another open Store needs them. The Store can still be used after Close.
func (s *Store) Close() {
	s.cleanups.wait(s.Timeout)
	if s.subscription.Close() {
		s.servers.unclosed.Add(-1)
		s.servers.storeClosed()
	}
}

func (s *Store) closed() bool { return s.subscription != nil && s.subscription.Closed() }

// probe finds out whether a server can decide. It charges one unit to keys that nothing else uses, in
// the hash slot of k, and returns nil if the charge succeeds. It uses the script of decisions, in one
// round trip, so it fails if the server cannot run this script. The windows of its limits are short, so
// that its keys expire soon.
func (s *Store) probe(ctx context.Context, client Client, k string) error {
	limits, unique := slices.Clone(s.Limits.limits), strconv.FormatUint(rand.Uint64(), 36)
	for i, m := range limits {
		limits[i].Evaluator = m.New(algorithm.Numbers{Count: 1, Period: algorithm.MinHold, Burst: 1})
		limits[i].HoldDuration = algorithm.MinHold
	}
	l := NewLimits(limits, make([]string, len(limits)), s.Limits.bans)
	for i, tail := range s.Limits.tails {
		l.tails[i] = tail + "~probe-" + unique
	}
	d := NewCall(l, k, algorithm.Operation{Op: algorithm.OpCharge, N: 1})
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
