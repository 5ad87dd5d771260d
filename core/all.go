package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/denials"
	"github.com/redislimit/redislimit/internal/hook"
)

// A Keyed is a key of a Limiter, as [Limiter.On] returns it for [All] and its kin.
type Keyed struct {
	limiter *Limiter
	key     string
	times   int   // it costs what the call says so often
	own     int64 // what it costs besides
}

// On returns key as one of those that [All], [AcquireAll] and [ReserveAll] decide about.
func (l *Limiter) On(key string) Keyed { return Keyed{l, key, 1, 0} }

// Cost returns k with a cost of its own, in place of that of the whole call.
func (k Keyed) Cost(n int64) Keyed { return Keyed{k.limiter, k.key, 0, n} }

// cost returns what k costs in a call with a cost of n.
func (k Keyed) cost(n int64) int64 {
	total := k.own
	for range k.times {
		total = add(total, n)
	}
	return total
}

// add returns a+b, or the largest cost there is.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// All decides whether something that costs n units may happen now, by keys of several Limiters: it is
// admitted if all of them admit it, and then charged in each. If one denies it, it is charged in none.
//
//	res, err := core.All(ctx, 1, perUser.On("user:alice"), perOrg.On("org:acme"))
//
// The Result is the tightest, as [Result.Tighter] says, and [Result.All] has those of all limits that were
// asked. Of one key twice the costs add up.
//
// Limiters over one client, whose server is one, and with one [Timeout] are asked by one script, which takes Redis
// as long as one Limiter of so many limits. So are those of a Cluster or a Ring about one and the same key. As
// with [Limiter.AllowN], a caller who leaves may be charged.
//
// Others are asked one after the other: the smallest [Limit.Capacity] first, then by name and key, whatever
// the order of the arguments. So who is over his own limit takes nothing of a larger one that he shares. Units
// are held as by [Limiter.Reserve] until all have admitted, and given back if one does
// not. A denial is then that of the first Limiter that denies. Such a hold may deny another call for a moment,
// with a RetryAfter of a second at most. So a denial that may be over within a second is asked for once more. A
// process that dies meanwhile leaves what it held, which is charged when it expires. So it is with a [Lease],
// with a cost of 0, and with more than 12 limits and bans in all.
//
// While Redis does not answer each goes by its own outage policy: with a [FailClosed] that cannot decide
// the error is [ErrUnavailable], and nothing is kept. Other errors are those of [Limiter.AllowN]. A Limiter
// with a [LeakyBucket] is refused, because a place in a queue cannot be given back exactly; for one with
// [InFlight] there is [AcquireAll].
func All(ctx context.Context, n int64, keys ...Keyed) (Result, error) {
	t, err := newTogether(ctx, n, keys)
	if err != nil {
		return Result{}, err
	}
	if slices.ContainsFunc(t.members, func(m member) bool { return m.limiter.by.Slots }) {
		return Result{}, errAllNeedsEnd
	}
	var res Result
	if done, err := t.decideJointly(ctx, &res); done || err != nil {
		return res, err
	}
	r, err := t.reserve(ctx)
	if err != nil {
		return Result{}, err
	}
	_ = r.settleLater(ctx, n) // what fails is charged when the hold expires
	return r.Result, nil
}

// AcquireAll is [All] with an end, as [Limiter.Acquire] has it: slots of [InFlight] are taken until then. The
// units of other limits are held until then, or until their [Hold] is over, and charged: Cancel takes
// them back exactly.
func AcquireAll(ctx context.Context, n int64, keys ...Keyed) (*Reservation, error) {
	t, err := newTogether(ctx, n, keys)
	if err != nil {
		return nil, err
	}
	t.fixed = true
	return t.reserve(ctx)
}

// ReserveAll is [All] for work whose true cost is known later, as [Limiter.Reserve] has it. What is done to
// the Reservation is done for each key. Settle charges a key with a cost of its own that cost, whatever
// the work really cost.
func ReserveAll(ctx context.Context, n int64, keys ...Keyed) (*Reservation, error) {
	t, err := newTogether(ctx, n, keys)
	if err != nil {
		return nil, err
	}
	return t.reserve(ctx)
}

var (
	errAllNeedsEnd = errors.New("redislimit: slots of InFlight are taken until the work ends: use AcquireAll")
	errNoKeys      = errors.New("redislimit: there is no key to decide about: give at least one, such as lim.On(key)")
	errNoLimiter   = errors.New("redislimit: a Keyed has no Limiter: make it with On")
)

// A together is what one call asks of several keys, and then what it has of them.
type together struct {
	n       int64
	fixed   bool // Settle takes 0 and n alone, as after Acquire
	members []member
	lost    error // of Redis, if it has failed to decide on all of them at once
}

// A member is one key of them.
type member struct {
	Keyed

	held  *Reservation  // nil until it is admitted
	stamp denials.Stamp // of a decision on all by one script
}

// newTogether checks a call, and puts its keys into the order in which all callers ask for them: if two
// wait for each other's units, one of them has all that it needs. Who is denied by his own limit is to hold nothing of
// what he shares meanwhile, and that has the larger capacity: else he may use it up anyway.
func newTogether(ctx context.Context, n int64, keys []Keyed) (*together, error) {
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	t := &together{n: n, members: make([]member, 0, len(keys))}
	for _, k := range keys {
		if k.limiter == nil {
			return nil, errNoLimiter
		}
		if k.limiter.by.Queues {
			return nil, &hook.WrongLimitError{Err: fmt.Errorf("redislimit: limiter %q: a LeakyBucket cannot decide together with others: "+
				"a place in its queue cannot be given back exactly", k.limiter.name)}
		}
		if err := (call{key: k.key, n: min(n, k.own)}).check(ctx); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(t.members, k.isOf); i >= 0 {
			t.members[i].times += k.times
			t.members[i].own = add(t.members[i].own, k.own)
			continue
		}
		t.members = append(t.members, member{Keyed: k})
	}
	slices.SortStableFunc(t.members, func(a, b member) int {
		capacity := cmp.Compare(slices.Min(a.limiter.by.Capacities), slices.Min(b.limiter.by.Capacities))
		return cmp.Or(capacity, cmp.Compare(a.limiter.name, b.limiter.name), cmp.Compare(a.key, b.key))
	})
	return t, nil
}

// isOf reports whether m is of the same key and limits as k.
func (k Keyed) isOf(m member) bool { return k.limiter.by == m.limiter.by && k.key == m.key }

// reserve reserves all, or nothing.
func (t *together) reserve(ctx context.Context) (*Reservation, error) {
	r, kept := new(Reservation), false
	if t.remembersDenial(ctx, &r.Result) {
		return r, nil
	}
	r.together = t
	defer func() {
		if !kept { // also after a panic of a client's hook
			_ = r.cancelLater(ctx)
		}
	}()
	began := time.Now()
	for i := range t.members {
		m := &t.members[i]
		held, err := m.reserve(ctx, t, began)
		if err == nil && held.Allowed {
			m.held = held
			err = ctx.Err() // who has left is charged nothing
		}
		if err != nil {
			return nil, err
		}
		if m.held == nil {
			return held, nil
		}
	}
	kept = true
	r.Result = t.result()
	return r, nil
}

// remembersDenial reports whether this process remembers that one of them denies. Else a client that repeats what is
// denied would have units of the others held again and again.
func (t *together) remembersDenial(ctx context.Context, res *Result) bool {
	for _, m := range t.members {
		l, c := m.limiter, m.call(t.n)
		if l.leases == nil && l.repeatDenial(c, target{Result: res}) {
			l.events.emit(ctx, c.key, Event{Kind: EventDecision, Result: *res, Cost: c.n})
			return true
		}
	}
	return false
}

// call returns the call that reserves the units of m.
func (m *member) call(n int64) call { return call{key: m.key, n: m.cost(n), op: algorithm.OpReserve} }

// maxPause bounds for how long what others hold for a moment is waited for.
const maxPause = 20 * time.Millisecond

// reserve reserves the units of m. What others hold may deny them until these have asked for all they
// need: so it waits about as long as that has taken here, and asks once more.
func (m *member) reserve(ctx context.Context, t *together, began time.Time) (*Reservation, error) {
	if t.lost != nil {
		return m.limiter.acquireWithout(ctx, m.call(t.n), t.lost)
	}
	r, err := m.limiter.acquire(ctx, m.call(t.n))
	if err != nil || r.Allowed || r.Banned || r.Source == SourceDenyCache || r.RetryAfter > micros(algorithm.HeldRetry) {
		return r, err
	}
	if sleep(ctx, min(2*time.Since(began), maxPause)) != nil {
		return r, ctx.Err()
	}
	return m.limiter.acquire(ctx, m.call(t.n))
}

// result returns the tightest Result of all that admitted.
func (t *together) result() Result {
	all := make([]Result, 0, len(t.members))
	for _, m := range t.members {
		for each := range m.held.All() {
			if each.Source != SourceNone { // of FailOpen
				all = append(all, each)
			}
		}
	}
	if len(t.members) == 1 || len(all) == 0 {
		return t.members[0].held.Result
	}
	return combine(all, true)
}

// settle ends each member by end: with its own cost, or with actual in place of n.
func (t *together) settle(ctx context.Context, actual int64, end func(r *Reservation, ctx context.Context, actual int64) error) error {
	switch {
	case actual < 0 || actual > maxActual:
		return fmt.Errorf("%w: it is %d, allowed is 0 to %d", ErrInvalidCost, actual, maxActual)
	case t.fixed && actual == 0:
		return each(t.members, func(m member) error { return end(m.held, ctx, 0) })
	case t.fixed && actual != t.n:
		return fmt.Errorf("%w: it is %d, and after AcquireAll allowed are 0 and %d", ErrInvalidCost, actual, t.n)
	}
	return each(t.members, func(m member) error { return end(m.held, ctx, min(m.cost(actual), maxActual)) })
}

// each calls f with each of the members, also after one has failed or panicked.
func each(members []member, f func(member) error) (err error) {
	if len(members) == 0 {
		return nil
	}
	defer func() { err = errors.Join(err, each(members[1:], f)) }()
	return f(members[0])
}

// contextOf is [Reservation.Context] of several.
func contextOf(ctx context.Context, members []member) (context.Context, context.CancelFunc) {
	if len(members) == 0 {
		return ctx, func() {}
	}
	ctx, cancel := members[0].held.Context(ctx)
	ctx, others := contextOf(ctx, members[1:])
	return ctx, func() {
		others()
		cancel()
	}
}
