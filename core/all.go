package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/coreaccess"
	"github.com/redislimit/redislimit/internal/redisstore"
)

// AllowAll decides whether something that costs n units may happen now, by keys of several Limiters. If
// all of them admit it, each is charged. If one denies it, none is charged.
//
//	res, err := core.AllowAll(ctx, 1, perUser.On("user:alice"), perOrg.On("org:acme"))
//
// The Result is the tightest one, as [Result.Tighter] defines it. [Result.All] returns the Results of
// all limits that decided, in the order of the arguments. A denial has only the Results of the Limiter
// that denied, unless one script decided about all keys. If the same key of the same Limiter is given
// several times, its costs add up.
//
// One script decides about all keys if all Limiters have the same [Timeout] and the same client, and the
// client is a *redis.Client for a single server. (A proxy that spreads keys over several servers is no
// single server.) With a client for a Cluster or a Ring, one script decides only if all Limiters are
// asked about the same key. Redis needs as much time for this script as for the script of one Limiter
// that has all these limits. As with [Limiter.AllowN], it is possible that a caller was charged although
// its context ended before the reply.
//
// In all other cases AllowAll asks about one key after the other. It also does so if a Limiter has a
// [Lease], if a cost is 0, if the Limiters have too many limits together
// (more than 12, where the option [Ban] of a Limiter counts as a limit), or if two different
// Limiters with the same name and [Prefix], such as two made by [Limiter.With], are asked about the same
// key. The order of the arguments does not matter: the key with the smallest [Limit.Capacity] is first.
// Keys with the same Capacity are ordered by the names of their Limiters, and keys of Limiters with the
// same name alphabetically. So a caller who is over their own limit, if it is the smaller one, takes
// nothing of a larger limit that they share with others. The shared limit can also be the smaller one: in a
// login, for example, anyone can use up the small limit of an account, beside the larger limit of their
// address. Then call [Limiter.Reserve] for one key after the other instead: first for the caller's own key.
//
// When AllowAll asks about one key after the other, it holds the units, as [Limiter.Reserve] does, until
// all Limiters have admitted. If one of them denies, the Result is its denial, and AllowAll gives the
// held units back, perhaps in the background after it has returned. Until then, another call can be
// denied because of these units, with a RetryAfter of at most a second. Therefore, after a denial with a
// RetryAfter of at most a second, AllowAll pauses for at most 20 ms and asks about the key once more. It
// does not do so if the key is banned, if the denial comes from the [SourceDenyCache], if Redis has just
// failed to decide about all keys by one script, or if the deadline of ctx comes before the end of the
// pause. If the process dies while units are held, these units are charged when the [Hold] is over. If
// Redis does not answer, the decision about each key can take a whole [Timeout], until the outage is
// noticed.
//
// A Limiter counts nothing if all its limits are [Unlimited], or if one of its limits is 0. Such
// Limiters decide first. Their Results are left out, with three exceptions: one of them denies, all
// Limiters count nothing, or a limit of 0 admits a cost of 0.
//
// While Redis does not answer, each Limiter follows its own outage policy. If a Limiter with
// [FailClosed] cannot decide, the error is [ErrUnavailable], and what the other Limiters hold is given
// back. As with AllowN, it is possible after ErrUnavailable that units were charged, if a reply of Redis
// was lost. Other errors are the same as with AllowN. AllowAll refuses a Limiter with a [LeakyBucket],
// because a place in a queue cannot be given back exactly. It also refuses a Limiter with [InFlight]:
// use [AcquireAll].
func AllowAll(ctx context.Context, n int64, keys ...Keyed) (Result, error) {
	t, err := newMultiCall(ctx, n, keys)
	if err != nil {
		return Result{}, err
	}
	if slices.ContainsFunc(t.members, func(m member) bool { return m.limiter.set.Slots }) {
		return Result{}, errAllNeedsEnd
	}
	var res Result
	done, err := t.decideUncounted(ctx, &res)
	if !done && err == nil {
		done, err = t.decideJointly(ctx, &res)
	}
	if done || err != nil {
		if err == nil && res.Allowed {
			t.notifyAdmitted(ctx)
		}
		return res, err
	}
	r, err := t.reserve(ctx)
	if err != nil {
		return Result{}, err
	}
	// If this fails, the units are charged when the hold expires. No limit that counts admits more than maxActual.
	_ = r.settleLater(ctx, min(n, maxActual))
	return r.Result, nil
}

// AcquireAll is like [AllowAll], but returns a [Permit], which keeps slots of [InFlight] until the work
// ends, and can give back what was taken. It always asks about one key after the other. The units of
// limits with a rate are held until the Permit ends: Release charges them, and Cancel gives them back
// exactly. If neither is called before the [Hold] is over, the units are charged at that time, and
// Cancel gives nothing back any more.
func AcquireAll(ctx context.Context, n int64, keys ...Keyed) (*Permit, error) {
	t, err := newMultiCall(ctx, n, keys)
	if err != nil {
		return nil, err
	}
	a, err := t.reserve(ctx)
	return (*Permit)(a), err
}

// ReserveAll is like [AcquireAll], but for work whose true cost is known only later, as with
// [Limiter.Reserve]. Settle and Cancel end what is held for all keys, and Keep renews it. Settle
// charges each key what the work really cost, with one exception: a key that got a cost of its own, by
// [Keyed.Cost], is charged its own cost. So Settle(ctx, 0) still charges such a key, while Cancel
// charges nothing to any key.
func ReserveAll(ctx context.Context, n int64, keys ...Keyed) (*Reservation, error) {
	t, err := newMultiCall(ctx, n, keys)
	if err != nil {
		return nil, err
	}
	a, err := t.reserve(ctx)
	return (*Reservation)(a), err
}

var (
	errAllNeedsEnd = errors.New("redislimit: slots of InFlight are taken until the work ends: use AcquireAll")
	errNoKeys      = errors.New("redislimit: there is no key to decide about: give at least one, such as lim.On(key)")
	errNoLimiter   = errors.New("redislimit: a Keyed has no Limiter: make it with On")
)

// newMultiCall checks the arguments of a call, and sorts its keys into the order in which they are
// decided on. This order is the same for all callers, so two callers cannot each hold units that the
// other one waits for. The smallest capacity comes first, so that a caller who is over their own
// limit holds nothing of a larger limit that they share with others.
func newMultiCall(ctx context.Context, n int64, keys []Keyed) (*multiCall, error) {
	if len(keys) == 0 {
		return nil, errNoKeys
	}
	t := &multiCall{n: n, members: make([]member, 0, len(keys))}
	for position, k := range keys {
		if k.limiter == nil {
			return nil, errNoLimiter
		}
		if k.limiter.set.Queues {
			return nil, &coreaccess.WrongLimitError{Err: fmt.Errorf("redislimit: limiter %q: a LeakyBucket cannot decide together with others: "+
				"a place in its queue cannot be given back exactly", k.limiter.family.name)}
		}
		if err := checkCall(ctx, k.key, min(n, k.extra)); err != nil { // neither cost may be negative
			return nil, err
		}
		if i := slices.IndexFunc(t.members, k.isOf); i >= 0 {
			t.members[i].times += k.times
			t.members[i].extra = add(t.members[i].extra, k.extra)
			continue
		}
		t.members = append(t.members, member{Keyed: k, position: position})
	}
	slices.SortStableFunc(t.members, func(a, b member) int {
		capacity := cmp.Compare(a.capacity(), b.capacity())
		return cmp.Or(capacity, cmp.Compare(a.limiter.family.name, b.limiter.family.name), cmp.Compare(a.key, b.key))
	})
	return t, nil
}

// capacity returns the smallest capacity of the limits of m. It returns 0 if they count nothing:
// such members come first, because they hold nothing that would have to be given back.
func (m *member) capacity() int64 {
	if m.limiter.set.Uncounted {
		return 0
	}
	return slices.Min(m.limiter.set.Capacities)
}

// notifyAdmitted passes the events in t.admitted to the observers, after all keys have admitted.
func (t *multiCall) notifyAdmitted(ctx context.Context) {
	for _, a := range t.admitted {
		a.events.emit(ctx, a.key, a.event)
	}
}

// asGiven returns the indexes of the members in the order of the arguments.
func (t *multiCall) asGiven() []int {
	order := make([]int, len(t.members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(t.members[a].position, t.members[b].position) })
	return order
}

// isOf reports whether m has the same key and the same limits as k.
func (k Keyed) isOf(m member) bool { return k.limiter.set == m.limiter.set && k.key == m.key }

// reserve reserves the units of all keys, one key after the other. If a key denies, reserve returns the
// denial. If it returns a denial or an error, or does not return at all, it gives back what it has
// reserved; see cancelLater.
func (t *multiCall) reserve(ctx context.Context) (*admission, error) {
	r, kept := new(admission), false
	if t.remembersDenial(ctx, &r.Result) {
		return r, nil
	}
	r.multi = t
	defer func() {
		if !kept { // also if a hook of the client has ended this goroutine
			_ = r.cancelLater(ctx)
		}
	}()
	began := time.Now()
	for i := range t.members {
		m := &t.members[i]
		held, err := m.reserve(ctx, t, began)
		if err == nil && held.Allowed {
			m.held = held
			err = ctx.Err() // a caller whose context has ended is charged nothing
		}
		if err != nil {
			return nil, err
		}
		if m.held == nil {
			return held, nil
		}
	}
	r.Result = t.result()
	t.notifyAdmitted(ctx) // if an observer panics, everything is given back
	kept = true
	return r, nil
}

// remembersDenial sets res to a remembered denial of one of the keys. It returns false if there is none.
// Without remembered denials, a client that repeats a denied request would make AllowAll hold units of
// the other keys again and again.
func (t *multiCall) remembersDenial(ctx context.Context, res *Result) bool {
	for _, m := range t.members {
		if m.remembersDenial(ctx, t.n, res) {
			return true
		}
	}
	return false
}

// remembersDenial sets res to a remembered denial of m's key, and notifies the observers. It returns false
// if there is none. It also returns false if the Limiter has leases, because a lease may admit what Redis
// has denied.
func (m *member) remembersDenial(ctx context.Context, n int64, res *Result) bool {
	l, req := m.limiter, m.newRequest(n, algorithm.OpReserve)
	defer req.recycle()
	if l.family.leases != nil || !l.family.denials.Repeat(&req.call, &req.reply) {
		return false
	}
	res.fill(&req.call, &req.reply)
	l.family.events.emit(ctx, m.key, Event{Kind: EventDecision, Result: *res, Cost: req.call.N})
	return true
}

// newRequest returns a request about m's key, in a call whose cost is n.
func (m *member) newRequest(n int64, op algorithm.Op) *request {
	return m.limiter.newRequest(m.key, m.cost(n), op)
}

// maxPause bounds how long a member's reserve waits for units that other calls hold for a moment.
const maxPause = 20 * time.Millisecond

// reserve reserves the units of m. A denial with a short RetryAfter may be caused by another call of
// AllowAll, which holds units only until all of its keys have decided. So after such a denial,
// reserve pauses and decides once more, unless Redis has failed to decide on all keys at once, the key is
// banned, or the denial was remembered. The pause is twice as long as this call has taken so far, and at
// most maxPause. If ctx ends during the pause, reserve returns the error of ctx. If the deadline of ctx
// comes before the end of the pause, reserve does not pause, and returns the denial. Only the last denial
// is an event.
func (m *member) reserve(ctx context.Context, t *multiCall, began time.Time) (*admission, error) {
	r, err := m.reserveOnce(ctx, t)
	again := t.redisErr == nil && err == nil && !r.Allowed && !r.Banned && r.Source != SourceDenyCache && r.RetryAfter <= micros(algorithm.HeldRetry)
	if again {
		if sleep(ctx, min(2*time.Since(began), maxPause)) == nil {
			r, err = m.reserveOnce(ctx, t)
		} else {
			err = ctx.Err()
		}
	}
	if r != nil && !r.Allowed {
		m.limiter.family.events.emit(ctx, m.key, t.denied)
	}
	return r, err
}

func (m *member) reserveOnce(ctx context.Context, t *multiCall) (*admission, error) {
	req := m.newRequest(t.n, algorithm.OpReserve)
	defer req.recycle()
	req.redisErr, req.multi = t.redisErr, t
	return m.limiter.acquire(ctx, req)
}

// result returns the tightest Result of all keys. It is called when all keys have admitted.
func (t *multiCall) result() Result {
	all := make([]Result, 0, len(t.members))
	for _, i := range t.asGiven() {
		for each := range t.members[i].held.All() {
			if each.Source != SourceNone && !each.Unlimited() { // FailOpen admits with SourceNone
				all = append(all, each)
			}
		}
	}
	if len(t.members) == 1 || len(all) == 0 {
		return t.members[0].held.Result
	}
	return combine(all, true)
}

// A joint is a decision on all keys by one script on one server. The script charges all keys or none,
// at one instant. It holds no units in the meantime, so no other call is denied because of held units.
type joint struct {
	*multiCall

	store *redisstore.Store
	parts []redisstore.Part
}

// joint returns the decision by which one script charges all keys or none. The error is
// redisstore.ErrApart if one script cannot do so, for example in these cases:
//
//   - The keys are on several servers, or in memory.
//   - A limiter has leases, because their units are in this process.
//   - A cost is 0: a cost of 0 must be admitted even by a limit that is overdrawn.
//
// Any other error says that Redis or a hook of the client failed, or that ctx has ended.
func (t *multiCall) joint(ctx context.Context) (*joint, error) {
	j := &joint{multiCall: t, parts: make([]redisstore.Part, len(t.members))}
	for i := range t.members {
		m := &t.members[i]
		l := m.limiter
		if l.set.Store == nil || l.family.leases != nil || m.cost(t.n) == 0 {
			return nil, redisstore.ErrApart
		}
		req := m.newRequest(t.n, algorithm.OpCharge)
		j.parts[i] = redisstore.Part{Store: l.set.Store, Call: redisstore.NewCall(l.set.Redis, m.key, req.call.Request(l.set, nil))}
		req.recycle()
		m.stamp = l.family.denials.Stamp(m.key)
	}
	var err error
	j.store, err = redisstore.Together(ctx, j.parts)
	return j, err
}

// decide sets res to the tightest Result of all limits, and notifies the observers. It returns an error if
// Redis fails to decide.
func (j *joint) decide(ctx context.Context, res *Result) error {
	began := time.Now()
	if err := j.store.DecideAll(ctx, j.parts); err != nil {
		return err
	}
	took, admitted, barred, limits := time.Since(began), true, false, 0
	for _, p := range j.parts {
		limits += len(p.Answers)
		admitted = admitted && p.Admitted()
		ban := p.Ban()
		barred = barred || ban.Until > 0 && !ban.Began
	}
	all := make([]Result, 0, limits)
	for _, i := range j.asGiven() {
		if barred && j.parts[i].Ban().Until == 0 {
			continue // its limits did not decide, because another key is banned
		}
		one := j.answer(ctx, i, admitted)
		for each := range one.All() {
			all = append(all, each)
		}
		if admitted || !one.Allowed {
			m := &j.members[i]
			m.limiter.family.events.emit(ctx, m.key, Event{Kind: EventDecision, Result: one, Cost: m.cost(j.n), Took: took})
		}
	}
	*res = combine(all, admitted)
	return nil
}

// answer returns the Result of the i-th member's key. If that key denies, the denial may be remembered from
// now on; see package denials. If the denial has begun a ban, answer notifies the observers of the ban.
// admitted says whether all keys admit.
func (j *joint) answer(ctx context.Context, i int, admitted bool) (res Result) {
	m := &j.members[i]
	req := m.newRequest(j.n, algorithm.OpReserve)
	defer req.recycle()
	takeReply(&req.reply, m.limiter.set, j.parts[i].Call)
	m.limiter.family.denials.Learn(&req.call, &req.reply, m.stamp)
	if !admitted {
		req.call.Op = algorithm.OpEvaluate // one of the keys denies, so none is charged
	}
	res.fill(&req.call, &req.reply)
	m.limiter.notifyBan(ctx, req, &res)
	return res
}

// decideUncounted decides by the Limiters whose limits count nothing, and removes them from t. They
// decide before the other Limiters, because they have nothing to give back if another Limiter
// denies. done is true if the call is decided: one of them has denied, or t has no Limiter left. A
// Limiter whose cost is 0 stays in t, whatever its limits are.
func (t *multiCall) decideUncounted(ctx context.Context, res *Result) (done bool, err error) {
	counted := t.members[:0]
	for i := range t.members {
		m := t.members[i]
		if !m.limiter.set.Uncounted || m.cost(t.n) == 0 {
			counted = append(counted, m)
			continue
		}
		req := m.newRequest(t.n, algorithm.OpCharge)
		req.multi, *res = t, Result{}
		err := m.limiter.allow(ctx, req, res)
		if req.recycle(); err != nil || !res.Allowed {
			return true, err
		}
	}
	if t.members = counted; len(counted) > 0 {
		*res = Result{} // the others decide
	}
	return len(counted) == 0, nil
}

// decideJointly decides on all keys by one script, or makes an ordinary decision if there is only one
// key. With several keys, done is false if one script cannot decide on all of them, or if Redis fails to
// decide. If Redis fails, t.redisErr is set, so that each limiter follows its own outage policy.
func (t *multiCall) decideJointly(ctx context.Context, res *Result) (done bool, err error) {
	if len(t.members) == 1 {
		req := t.members[0].newRequest(t.n, algorithm.OpCharge)
		defer req.recycle()
		return true, t.members[0].limiter.allow(ctx, req, res)
	}
	j, redisErr := t.joint(ctx)
	if redisErr == nil {
		if t.remembersDenial(ctx, res) {
			return true, nil
		}
		redisErr = j.decide(ctx, res)
	}
	if !errors.Is(redisErr, redisstore.ErrApart) {
		t.redisErr = redisErr
	}
	return redisErr == nil, nil
}
