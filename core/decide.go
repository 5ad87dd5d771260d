package core

import (
	"context"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/decision"
	"github.com/redislimit/redislimit/internal/limits"
)

// Allow is [Limiter.AllowN] with a cost of 1.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	req := l.newRequest(key, 1, algorithm.OpCharge)
	defer req.recycle()
	err = l.allow(ctx, req, &res)
	return res, err
}

// AllowN decides whether an action that costs n units may happen now for key, and if so, charges
// the units. A denial is a Result, not an error. If the key is not banned, a cost above the capacity is
// denied with a RetryAfter of [Never].
//
// The error is [ErrInvalidCost] for a negative n, [ErrInvalidKey] for an empty key, and the error of
// ctx if ctx has ended. With [FailClosed], it is [ErrUnavailable] if Redis did not answer. After
// ErrUnavailable and after the error of ctx, it is possible that n was charged. It is also possible
// if the outage policy has decided: Redis may have charged n although its reply was lost. (If ctx
// had already ended before the call, nothing was charged.) A Limiter with [InFlight] returns an
// error: use [Limiter.Acquire].
//
// The call to Redis is bounded by [Timeout], not by ctx. If ctx ends first, AllowN returns the error of
// ctx, and the call continues in the background; the outage policy does not apply. The documentation of
// [Timeout] says which callers can wait beyond the end of ctx and then get a Result.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	req := l.newRequest(key, n, algorithm.OpCharge)
	defer req.recycle()
	err = l.allow(ctx, req, &res)
	return res, err
}

// Peek returns the state of key without charging anything. Allowed, RetryAfter and Delay are what Redis
// would now decide about a request with a cost of 1. (A request can get another answer: with a [Lease]
// or the [DenyCache], its process can decide about it, and with [Ban], its denial can begin a ban.) All
// other fields describe the present state, from which
// nothing has been taken. Errors are the same as for [Limiter.AllowN], but Peek accepts a Limiter
// with [InFlight].
//
// While Redis does not answer, the outage policy answers Peek, too. With [FailLocal], the Result
// then has the source [SourceFallback] and shows only what this process has counted. With
// [FailOpen], it has the source [SourceNone] and shows no state. Check Result.Source before you
// show a customer how much they have used.
func (l *Limiter) Peek(ctx context.Context, key string) (res Result, err error) {
	req := l.newRequest(key, 1, algorithm.OpEvaluate)
	defer req.recycle()
	err = l.allow(ctx, req, &res)
	return res, err
}

// Reset forgets what was charged to key, so that its full limit is available again. Units held by
// [Limiter.Reserve] and slots of [InFlight] stay taken. Resetting a key that was never charged is
// no error, so be careful to pass the whole key. A middleware puts the kind of the key in front of it, as
// in "user:alice". Functions such as keyfunc.ForUser return this key. Errors are the same as for
// [Limiter.AllowN], but Reset accepts a Limiter with InFlight. While Redis does not answer, Reset
// forgets only what this process has counted, and returns ErrUnavailable.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.change(ctx, key, func(b backend, set *limits.Set) error { return b.Reset(ctx, set, key) })
}

// allow makes a decision that leaves nothing for the caller to end.
func (l *Limiter) allow(ctx context.Context, req *request, res *Result) error {
	if err := req.check(ctx); err != nil {
		return err
	}
	if l.set.Slots && req.call.Op == algorithm.OpCharge {
		return errNeedsEnd
	}
	req.call.Ends = false
	return l.decide(ctx, req, res)
}

// decide makes a decision, sets res to its Result, and notifies the observers, with these exceptions. Peek
// is no event. The denial of a caller that waits is no event either, because the caller tries again. In
// a call about several keys, an admission that leaves nothing to end becomes an event only after all keys
// have been admitted; see notifyAdmitted. A denial in such a call becomes an event only if member.reserve
// does not try again.
func (l *Limiter) decide(ctx context.Context, req *request, res *Result) error {
	l.catchUp()
	observed := len(l.family.events.observers) > 0 && req.call.Op != algorithm.OpEvaluate
	var start time.Time
	if observed {
		start = time.Now()
	}
	err := l.family.answer(ctx, req)
	if err == nil {
		res.fill(&req.call, &req.reply)
	}
	if !observed {
		return err
	}
	if err == nil {
		l.notifyBan(ctx, req, res)
	}
	if req.call.Waits && err == nil && !res.Allowed {
		return nil // the caller tries again
	}
	e := Event{Kind: EventDecision, Result: *res, Cost: req.call.N, Took: time.Since(start), Err: err}
	if req.multi != nil && err == nil && res.Allowed && (req.reply.Hold == nil || req.call.N == 0) {
		// This event waits until all keys have admitted. If another key denied, observers would otherwise
		// count an admission that has come to nothing: no EventCancel follows, because the admission has
		// nothing to give back.
		req.multi.admitted = append(req.multi.admitted, keyedEvent{l.family.events, req.call.Key, e})
		return nil
	}
	if req.multi != nil && req.call.Op == algorithm.OpReserve && err == nil && !res.Allowed {
		req.multi.denied = e
		return nil
	}
	l.family.events.emit(ctx, req.call.Key, e)
	return err
}

// answer fills the reply of req. It tries the ways to decide one after the other, until one of them
// can decide. If Redis fails, the outage policy decides.
func (f *family) answer(ctx context.Context, req *request) error {
	call, reply := &req.call, &req.reply
	switch {
	case call.Set.Uncounted && !f.decidesUncounted:
		f.decideUncounted(call, reply)
		return nil
	case !f.overRedis: // in memory, or a test's stub
		return f.backend.Decide(ctx, call, reply)
	case req.redisErr != nil: // Redis has failed already, in a decision on several keys at once
		return f.withoutRedis(ctx, req.redisErr, call, reply)
	case f.leasing.spend(call, reply):
		return nil
	case !call.Fresh && f.denials.Repeat(call, reply):
		return nil
	}
	stamp := f.denials.Stamp(call.Key)
	var err error
	if f.leasing != nil {
		err = f.leasing.decide(ctx, call, reply) // by a lease that has been taken in the meantime, or by Redis
	} else {
		err = f.backend.Decide(ctx, call, reply)
	}
	if err != nil {
		return f.withoutRedis(ctx, err, call, reply)
	}
	f.denials.Learn(call, reply, stamp)
	return nil
}

// decideUncounted decides by limits that count nothing. It does not check whether the key is banned.
func (f *family) decideUncounted(c *decision.Call, r *decision.Reply) {
	r.Set, r.N, r.Source = c.Set, c.N, decision.Memory
	if f.overRedis {
		r.Source = decision.Uncounted
	}
	r.Room()[0].At = f.now().UnixMicro()
	r.Conclude()
}

// notifyBan notifies the observers if the decision on req has begun a ban of its key.
func (l *Limiter) notifyBan(ctx context.Context, req *request, res *Result) {
	if req.reply.Ban.Began {
		l.family.events.emitContained(ctx, req.call.Key, Event{Kind: EventBan, Result: *res, Took: res.RetryAfter})
	}
}

// change changes what is stored about key, by calling do for the backend and for the memory of FailLocal. It
// first closes the leases of the key, and waits until Redis has settled them or has failed, or ctx has ended. At
// the end, even if Redis has failed, it drops the remembered denials of the key, which the change makes invalid,
// and wakes a caller that waits for the key.
func (l *Limiter) change(ctx context.Context, key string, do func(b backend, set *limits.Set) error) error {
	if err := checkCall(ctx, key, 0); err != nil {
		return err
	}
	l.catchUp()
	defer l.family.denials.Forget(key, l.set)
	defer l.family.lines.Forget(key)
	if l.family.leases != nil {
		settled, cancel := context.WithTimeout(ctx, 2*l.set.Store.Timeout) // each settlement ends within one Timeout
		l.family.leases.Drop(settled, key)
		cancel()
	}
	if l.family.fallback != nil {
		_ = do(l.family.fallback, l.set.Fallback) // memory never fails
	}
	return l.family.failure(ctx, do(l.family.backend, l.set))
}
