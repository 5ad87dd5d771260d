package server

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
	"github.com/redislimit/redislimit/internal/key"
)

// A Config says what a [Store] decides, and how.
type Config struct {
	Prefix, Limiter string        // what the Redis keys begin with
	Limits          *Limits       // of the kinds that the Store decides by
	Timeout         time.Duration // for one decision, all in all
	MaxBatch        int           // decisions in one round trip; 1: none share
	Hooks           Hooks
}

// Hooks are called when something happens, in the goroutine that noticed it. Any may
// be nil.
type Hooks struct {
	ScriptLoaded  func(ctx context.Context)            // Redis did not have a script
	CallFailed    func(ctx context.Context, err error) // Redis did not answer a call that was made
	BreakerChange func(ctx context.Context, c Change)
}

// A Change is that of the circuit breaker of one server.
type Change struct {
	Server   string // its address; empty for what is not known yet, or never
	From, To BreakerState
	Cause    error // why it opened
	Log      bool  // for one of the stores over a client only
}

// A Store decides for the keys of one limiter. What it does is atomic for each
// key, and the server's clock decides. It is safe for concurrent use.
type Store struct {
	servers *Servers
	limits  *Limits // those of probes
	decide  script
	hold    script // see algorithm.HoldScript
	several scripts
	held    heldKeys
	slots   bool // a limit has slots: all calls take the script hold
	timeout time.Duration
	hooks   Hooks

	deadlines deadlines // of calls that may take as long as the timeout
	maxBatch  int
	single    *batcher                             // of one server
	byServer  atomic.Pointer[map[*Server]*batcher] // of a Cluster; copied when it changes
	mu        sync.Mutex                           // held where byServer changes
	closed    atomic.Bool

	head string // a Redis key up to the user's key: "rl:api:{"
}

// NewStore returns the Store of one limiter over client. It sends nothing.
func NewStore(client Client, c Config) *Store {
	s := &Store{
		servers:  serversOf(client),
		limits:   c.Limits,
		hold:     newScript(algorithm.HoldScript(c.Limits.members, false), false),
		slots:    slices.ContainsFunc(c.Limits.members, func(l algorithm.Member) bool { return l.Slots }),
		timeout:  c.Timeout,
		maxBatch: c.MaxBatch,
		hooks:    c.Hooks,
		head:     c.Prefix + ":" + c.Limiter + ":{",
	}
	if !s.slots {
		s.decide = newScript(algorithm.DecideScript(c.Limits.members, algorithm.Form{}), false)
	}
	s.several = s.scriptsForSeveral()
	s.deadlines.timeout = c.Timeout
	s.held.init()
	s.byServer.Store(&map[*Server]*batcher{})
	if _, ok := client.(*redis.Client); ok {
		s.single = s.newBatcher(s.servers.whole)
	}
	s.servers.add(s)
	return s
}

// Close ends what runs in the background for s, unless other limiters over its
// client need it.
func (s *Store) Close() {
	if !s.closed.Swap(true) {
		s.servers.remove()
	}
}

// A decision is what one caller asks. Only some decide, but all are called so.
type decision struct {
	key    string
	limits *Limits
	algorithm.HoldCall
	answers  []algorithm.Answer // where the reply is written, of what decides
	holds    []algorithm.Ref    // where it is written by what units are held
	lease    *Lease             // what is done besides, or nil
	patience time.Duration      // how long the caller waits
	until    time.Time          // and until when; set for one in a batch
}

// Decide evaluates each of l for n units of the user's key k, and writes its answer
// to answers. If all limits admit n, it charges or holds n as op says; holds, if
// not nil, is where it writes by what each limit finds that.
// While the server is down the error is [ErrBreakerOpen].
//
// With lease the same run of the script settles one lease and takes another; else it is nil.
// Decisions on k that are made meanwhile take the script hold.
func (s *Store) Decide(
	ctx context.Context, l *Limits, k string, n int64, op algorithm.Op, answers []algorithm.Answer, holds []algorithm.Ref, lease *Lease,
) error {
	if lease != nil {
		s.held.add(k, lease.holds())
	}
	return s.run(ctx, decision{key: k, limits: l, HoldCall: algorithm.HoldCall{Op: op, N: n}, answers: answers, holds: holds, lease: lease})
}

// Settle charges actual units in place of n that are held by refs.
func (s *Store) Settle(ctx context.Context, l *Limits, k string, n, actual int64, refs []algorithm.Ref) error {
	return s.run(ctx, decision{key: k, limits: l, HoldCall: algorithm.HoldCall{Op: algorithm.OpSettle, N: n, M: actual, Refs: refs}})
}

// Release frees n slots that are held by refs.
func (s *Store) Release(ctx context.Context, l *Limits, k string, n int64, refs []algorithm.Ref) error {
	return s.run(ctx, decision{key: k, limits: l, HoldCall: algorithm.HoldCall{Op: algorithm.OpRelease, N: n, Refs: refs}})
}

// Refund takes back n units that were charged to k; ids are the ChargeIDs, one for
// each limit, or by what its slots are held.
func (s *Store) Refund(ctx context.Context, l *Limits, k string, n int64, ids []algorithm.Ref) error {
	return s.run(ctx, decision{key: k, limits: l, HoldCall: algorithm.HoldCall{Op: algorithm.OpRefund, N: n, Refs: ids}})
}

// Reset forgets what was charged to k, and keeps what is held.
func (s *Store) Reset(ctx context.Context, l *Limits, k string) error {
	return s.run(ctx, decision{key: k, limits: l, HoldCall: algorithm.HoldCall{Op: algorithm.OpReset}})
}

func (s *Store) run(ctx context.Context, d decision) error {
	sv := s.servers.of(ctx, s, d.key)
	d.patience = s.patience(ctx)
	if !sv.up(d.patience) {
		sv.want(s, d.key)
		return ErrBreakerOpen
	}
	batcher := s.batcher(sv)
	if batcher == nil {
		return s.decideAlone(ctx, sv, d)
	}
	d.until = time.Now().Add(d.patience)
	place, how := batcher.Acquire(ctx, d)
	switch how {
	case batch.Full:
		return ErrQueue
	case batch.Alone:
		defer batcher.Release()
		return s.decideAlone(ctx, sv, d)
	default:
		return s.decideInBatch(ctx, sv, d, place)
	}
}

func (s *Store) decideAlone(ctx context.Context, sv *Server, d decision) error {
	begun := time.Now()
	var err error
	if s.servers.ctxDeadlines && d.patience == s.timeout {
		err = s.evaluate(s.deadlines.with(ctx), d) // one allocation, where call takes several
	} else {
		err = s.call(ctx, d.patience, func(ctx context.Context) error { return s.evaluate(ctx, d) })
	}
	if err == nil && s.servers.cluster != nil {
		s.servers.topologyKnown.Store(true)
	}
	return s.finish(ctx, sv, d.key, err, d.patience, begun)
}

func (s *Store) decideInBatch(ctx context.Context, sv *Server, d decision, place batch.Place[decision]) error {
	sv.checkSharding(ctx, s)
	var hurry time.Duration // a batch ends in time for callers without a deadline of their own
	if d.patience < s.timeout {
		hurry = d.patience
	}
	err := place.Wait(ctx, hurry)
	switch {
	case errors.Is(err, batch.ErrRetryAlone):
		d.patience = time.Until(d.until)
		return s.decideAlone(ctx, sv, d)
	case errors.Is(err, batch.ErrHurry):
		inFlight := place.InFlightFor()
		if queued(inFlight, d.patience) {
			return ErrQueue
		}
		return s.finish(ctx, sv, d.key, context.DeadlineExceeded, inFlight, time.Now().Add(-inFlight))
	}
	return err
}

// evaluate runs the script for one decision. While a hash slot moves and has only
// some of the keys, the server says so, and is asked again.
func (s *Store) evaluate(ctx context.Context, d decision) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if d.lease != nil && d.lease.undone {
			d = s.withoutLease(ctx, d)
		}
		needsHold := s.needsHold(d)
		script := s.decide
		if needsHold {
			script = s.hold
		}
		reply, err := script.run(ctx, s.servers.client, s.args(d, needsHold), d.keys(), s.hooks.ScriptLoaded)
		switch {
		case err == nil && !needsHold && algorithm.IsHeld(reply):
			s.held.add(d.key, heldFor)
			continue
		case err == nil:
			if err = s.decodeOne(reply, d, needsHold); errors.Is(err, batch.ErrRetryAlone) {
				continue // without the lease
			}
			return err
		}
		if !hasCode(err, "TRYAGAIN") || !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep reports whether ctx lasted for as long as d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// probe decides on one unit of keys that nothing else uses, in the hash slot of k:
// it takes all that a decision takes. It returns nil if the server is well.
func (s *Store) probe(ctx context.Context, k string, patience time.Duration) *failure {
	keys := s.appendKeys(make([]any, scriptArgs, 16), k, s.limits)
	unique := strconv.FormatUint(rand.Uint64(), 36)
	for i := scriptArgs; i < len(keys); i++ {
		keys[i] = fmt.Sprint(keys[i], "~probe-", unique)
	}
	d := decision{limits: s.limits, HoldCall: algorithm.HoldCall{Op: algorithm.OpCharge, N: 1}}
	args, script := d.append(slices.Clone(keys), s.slots), s.decide
	if s.slots {
		script = s.hold
	}
	begun := time.Now()
	err := abandonable(ctx, func() error {
		return s.call(ctx, patience, func(ctx context.Context) error {
			_, err := script.run(ctx, s.servers.client, args, len(s.limits.tails), s.hooks.ScriptLoaded)
			if err == nil {
				del := redis.NewIntCmd(ctx, append([]any{"del"}, keys[scriptArgs:]...)...)
				_ = s.servers.client.Process(ctx, del) // they have a TTL
			}
			return err
		})
	})
	if err == nil {
		if s.servers.cluster != nil {
			s.servers.topologyKnown.Store(true)
		}
		return nil
	}
	return s.classify(s.explain(ctx, err), patience, begun)
}

// args returns the arguments of a script for one decision.
func (s *Store) args(d decision, needsHold bool) []any {
	return d.append(s.appendCallKeys(make([]any, scriptArgs, 16), d), needsHold)
}

// append appends what follows the keys.
func (d decision) append(args []any, needsHold bool) []any {
	if needsHold {
		return d.appendCalls(append(args, d.limits.durations...))
	}
	return d.limits.appendCost(append(args, d.limits.constants...), d.HoldCall)
}

// appendKeys appends the Redis key of each of l. They differ only outside the
// braces, so a Cluster keeps them in one hash slot.
func (s *Store) appendKeys(dst []any, k string, l *Limits) []any {
	k = s.head + key.Encode(k)
	for _, tail := range l.tails {
		dst = append(dst, k+tail)
	}
	return dst
}

// slotKey returns a text with the hash slot of k's Redis keys.
func (s *Store) slotKey(k string) string { return s.head + key.Encode(k) + "}" }
