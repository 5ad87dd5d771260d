package core

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redislimit/redislimit/internal/algorithm"
	"github.com/redislimit/redislimit/internal/server"
)

// The bounds of Lease.
const (
	minLease = 10 * time.Millisecond
	maxLease = time.Second
)

// leaseShare is of which share of what remains a lease has one at most.
const leaseShare = 8

// Lease has this process decide on hot keys by itself, and never over the limit: it reserves
// units of a key that it asks for often, for d, and spends them without asking Redis. Those
// decisions have [SourceLease]. d is from 10 milliseconds to 1 second. Without Lease, the
// default, every decision is made by Redis.
//
// A key is hot when it was asked for 8 times within d. A lease is for as many units as were
// used in d, and at most an eighth of what remains: near the limit leases shrink to single
// units. What is not spent is given back when the lease ends, or is charged if this process
// dies before.
//
// No more is ever admitted than the limits allow, in any window and by any number of
// processes. Less may be: another process is denied the units that are out on leases, for d at
// most, and large costs may be denied for as long as leases keep small ones served. A Reset
// elsewhere, a Refund elsewhere and a lowered limit are noticed within d.
//
// Every process that uses the limiter must know holds; see [Limiter.Reserve]. A [LeakyBucket]
// cannot be leased. [Limiter.Close] gives back what is leased.
func Lease(d time.Duration) Option {
	return setting{
		"lease", fmt.Sprintf("Lease(%v)", d), d >= minLease && d <= maxLease,
		fmt.Sprintf("allowed is %v to %v", minLease, maxLease),
		func(c *config) { c.lease = d },
	}
}

// checkLeasable returns an error if one of the limits cannot be leased.
func checkLeasable(limits []Limit, d time.Duration) error {
	for _, l := range limits {
		if reason := l.kind.Unleasable; reason != "" && d > 0 {
			return fmt.Errorf("Lease(%v): limit %v cannot be leased: %s", d, l, reason)
		}
	}
	return nil
}

// An instant is what the clocks of this process say: the wall clock, which may be set, and
// the monotonic one, which may stand while the machine is suspended.
type instant struct{ wall, mono time.Duration }

// since returns how long ago an instant was, by the clock that says more.
func (t instant) since(before instant) time.Duration {
	return max(t.wall-before.wall, t.mono-before.mono)
}

// leases are those of a family.
type leases struct {
	d    time.Duration
	hot  *hotKeys
	now  func() instant
	send func([]*ended) // settles; it waits for the replies
	emit func(Event)

	mu      sync.Mutex
	open    map[*lease]struct{}
	running bool // the goroutine that closes them
	closed  bool // no more are taken
	manual  bool // of tests: there is no such goroutine
}

func newLeases(d time.Duration, owner uint64, send func([]*ended), emit func(Event)) *leases {
	begun := time.Now()
	return &leases{
		d: d, hot: newHotKeys(d, owner), send: send, emit: emit, open: make(map[*lease]struct{}),
		now: func() instant {
			now := time.Now()
			return instant{time.Duration(now.UnixNano()), now.Sub(begun)}
		},
	}
}

// spendable is for how long after a request was sent its lease is spent. Redis holds the units
// for d from when it decides, which is later. What is subtracted is for clocks that go at
// different rates.
func spendable(d time.Duration) time.Duration { return d - time.Millisecond - d/1000 }

// A lease is units that this process may spend.
type lease struct {
	hot     *hotKey
	lasts   time.Duration // until Redis charges it
	units   int64
	refs    []algorithm.Ref    // by what each limit holds them
	sent    instant            // the request for it
	granted instant            // the reply
	answers []algorithm.Answer // of the decision that it came with, after which units were held for it
	state   atomic.Uint64
}

// The state of a lease is one word: units that are left, units that are reserved (and settled
// by themselves), how often it was asked, up to maxAsks, and whether it is closed.
const (
	unitBits     = 28
	maxLeased    = 1<<unitBits - 1
	reservedUnit = 1 << unitBits
	ask          = 1 << (2 * unitBits)
	maxAsks      = 15
	leaseClosed  = 1 << 63
)

func leftIn(state uint64) int64     { return int64(state & maxLeased) }
func reservedIn(state uint64) int64 { return int64(state >> unitBits & maxLeased) }
func asksIn(state uint64) int64     { return int64(state >> (2 * unitBits) & maxAsks) }

// take takes n units, to spend or to reserve. It returns how many were taken before, and false
// if n are not left, or the lease is closed.
func (le *lease) take(n int64, reserve bool) (before int64, ok bool) {
	for {
		old := le.state.Load()
		left := leftIn(old)
		if old&leaseClosed != 0 || left < n {
			return 0, false
		}
		next := old - uint64(n)
		if reserve {
			next += uint64(n) * reservedUnit
		}
		if asksIn(old) < maxAsks {
			next += ask
		}
		if le.state.CompareAndSwap(old, next) {
			return le.units - left, true
		}
	}
}

// give returns n units that were not spent. It reports false if the lease is closed.
func (le *lease) give(n int64) bool { return le.change(n, 0) }

// settle returns what of n reserved units was not spent. It reports false if the lease is
// closed.
func (le *lease) settle(n, actual int64) bool { return le.change(n-actual, n) }

// change adds to the units that are left, and takes off those that are reserved.
func (le *lease) change(left, reserved int64) bool {
	for {
		old := le.state.Load()
		if old&leaseClosed != 0 {
			return false
		}
		if le.state.CompareAndSwap(old, old+uint64(left)-uint64(reserved)*reservedUnit) {
			return true
		}
	}
}

// An ended is a lease that has ended, and is to be settled.
type ended struct {
	*lease

	held, spent int64 // what is to be settled
}

// end closes the lease: nothing is taken from it any more. It returns nil if that was done
// before.
func (ls *leases) end(le *lease, now instant) *ended {
	state := le.state.Swap(leaseClosed)
	if state&leaseClosed != 0 {
		return nil
	}
	ls.mu.Lock()
	delete(ls.open, le)
	ls.mu.Unlock()
	held := le.units - reservedIn(state)
	e := &ended{le, held, held - leftIn(state)}
	ls.emit(Event{Kind: EventLease, Cost: -le.units, Spent: le.units - leftIn(state)})
	le.hot.asked(now.mono, ls.d, asksIn(state), le.units-leftIn(state))
	return e
}

// decideLeased decides from a lease, or else by Redis, and then may take a lease.
func (l *Limiter) decideLeased(ctx context.Context, res *Result, key string, n int64, op algorithm.Op) error {
	ls := l.leases
	now, hash := ls.now(), ls.hot.hash(key)
	h := ls.hot.find(hash, key, l.limits)
	var seen *lease
	if h != nil {
		seen = h.lease.Load()
		if l.spend(res, seen, n, op, now) {
			return nil
		}
	}
	if l.denials.get(res, key, n, l.limits) {
		return nil
	}
	if h == nil {
		if h = ls.hot.count(hash, key, l.limits, now.mono); h == nil {
			return l.ask(ctx, res, key, n, op, nil)
		}
	}
	x := ls.begin(h, seen, now)
	if x == nil {
		if latest := h.lease.Load(); latest != seen && l.spend(res, latest, n, op, now) { // it was taken meanwhile
			return nil
		}
		err := l.ask(ctx, res, key, n, op, nil)
		ls.heard(h, res, n)
		return err
	}
	defer x.finish()
	err := l.ask(ctx, res, key, n, op, x)
	if err == nil && res.Source == SourceRedis { // else the exchange may still be written to
		ls.heard(h, res, n)
		ls.granted(h, x, res, n)
	}
	return err
}

// heard notes what a decision by Redis says of a hot key.
func (ls *leases) heard(h *hotKey, res *Result, n int64) {
	if res.Source != SourceRedis {
		return
	}
	if !res.Allowed {
		n = 0
	}
	h.asked(ls.now().mono, ls.d, 1, n)
	h.heard(res)
}

// spend decides on n units from a lease. It reports false if that cannot.
func (l *Limiter) spend(res *Result, le *lease, n int64, op algorithm.Op, now instant) bool {
	if le == nil || n > le.units {
		return false
	}
	age, lasts := now.since(le.sent), spendable(l.leases.d)
	if reserve := op == algorithm.OpReserve; reserve {
		lasts /= 2 // the hold is to last until it is renewed
	}
	if age < 0 || age >= lasts {
		return false
	}
	before, ok := le.take(n, op == algorithm.OpReserve)
	if !ok {
		return false
	}
	le.fill(res, n, before, now)
	if op == algorithm.OpReserve {
		held := newReservation(l.id, l.limits, SourceLease, op)
		copy(held.refs, le.refs)
		held.lease, held.begun = le, time.Now().Add(-age)
		res.receipt = held.receipt(le.hot.key, n)
		l.renewer.add(l.family, kept{held, le.hot.key, n})
	} else {
		res.receipt = receipt{limits: l.limits, claim: le.hot.claims.Next(), key: le.hot.key, n: n, lease: le}
	}
	return true
}

// fill fills res with the Result of n units that were taken after others.
func (le *lease) fill(res *Result, n, before int64, now instant) {
	var inline [1]algorithm.Answer
	answers := inline[:]
	if len(le.answers) > len(inline) {
		answers = make([]algorithm.Answer, len(le.answers))
	}
	copy(answers, le.answers)
	for i := range answers {
		answers[i].Held += before
	}
	le.hot.limits.fill(res, answers, n, true, SourceLease)
	res.age(max(0, now.since(le.granted)), SourceLease)
	if res.all != nil {
		for i := range *res.all {
			(*res.all)[i].age(max(0, now.since(le.granted)), SourceLease)
		}
	}
}

// An exchange is what one request does besides its decision: it settles the last lease of its
// key, and takes another.
type exchange struct {
	server.Lease

	hot     *hotKey
	sent    instant
	answers []algorithm.Answer // of the decision
}

// begin ends the lease that was seen, and returns the exchange for another: nil if there is
// nothing to exchange, or another request is about to.
func (ls *leases) begin(h *hotKey, seen *lease, now instant) *exchange {
	if !h.renewing.CompareAndSwap(false, true) {
		return nil
	}
	x := &exchange{hot: h, sent: now}
	if h.lease.Load() != seen {
		x.finish()
		return nil
	}
	if seen != nil {
		if e := ls.end(seen, now); e != nil && e.held > 0 {
			x.Held, x.Spent, x.Refs = e.held, e.spent, e.refs
		}
	}
	if !ls.isClosed() {
		x.Units, x.Duration = h.wanted(now.mono, ls.hot), ls.d.Microseconds()
	}
	if x.Units == 0 && x.Held == 0 {
		x.finish()
		return nil
	}
	return x
}

// finish lets other requests exchange.
func (x *exchange) finish() { x.hot.renewing.Store(false) }

// granted makes a lease of what Redis holds. One that comes too late is given back at once.
func (ls *leases) granted(h *hotKey, x *exchange, res *Result, n int64) {
	if x.Grant == nil {
		return
	}
	now := ls.now()
	le := &lease{hot: h, lasts: ls.d, units: x.Units, refs: x.Grant, sent: x.sent, granted: now, answers: x.answers}
	le.state.Store(uint64(x.Units))
	for i := range le.answers {
		le.answers[i].Admits = true
		if res.Allowed {
			le.answers[i].Held += n
		}
	}
	ls.emit(Event{Kind: EventLease, Cost: le.units})
	if now.since(x.sent) >= spendable(ls.d) || !ls.add(le) {
		ls.sendEnded([]*lease{le}, now)
		return
	}
	h.lease.Store(le)
}

func (ls *leases) isClosed() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.closed
}

// add has the lease closed when its time comes. It reports false if no more leases are taken.
func (ls *leases) add(le *lease) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return false
	}
	ls.open[le] = struct{}{}
	if !ls.running && !ls.manual {
		ls.running = true
		go ls.run()
	}
	return true
}

// run closes leases that no request has closed, for as long as there are any.
func (ls *leases) run() {
	ticker := time.NewTicker(ls.d / 16)
	defer ticker.Stop()
	for range ticker.C {
		ls.closeOld(ls.now())
		ls.mu.Lock()
		ls.running = len(ls.open) > 0
		running := ls.running
		ls.mu.Unlock()
		if !running {
			return
		}
	}
}

// closeOld closes leases before their time, early enough for Redis to settle them before what
// is held has expired: then it would be charged whole.
func (ls *leases) closeOld(now instant) {
	ls.mu.Lock()
	var old []*lease
	for le := range ls.open {
		if now.since(le.sent) >= le.lasts-le.margin() {
			old = append(old, le)
		}
	}
	ls.mu.Unlock()
	ls.sendEnded(old, now)
}

// margin is how long before its time the lease is closed: a fourth of it, or more where Redis
// took long to answer.
func (le *lease) margin() time.Duration {
	return min(max(le.lasts/4, 3*le.granted.since(le.sent)), le.lasts/2)
}

func (ls *leases) sendEnded(all []*lease, now instant) {
	var settle []*ended
	for _, le := range all {
		if e := ls.end(le, now); e != nil && e.held > 0 {
			settle = append(settle, e)
		}
	}
	if len(settle) > 0 {
		ls.send(settle)
	}
}

// drop ends the leases of a key, and settles them.
func (ls *leases) drop(key string) {
	if ls == nil {
		return
	}
	var all []*lease
	for _, h := range ls.hot.all(key) {
		if le := h.lease.Load(); le != nil {
			all = append(all, le)
		}
	}
	ls.sendEnded(all, ls.now())
}

// close ends all leases, and settles them. No more are taken.
func (ls *leases) close() {
	if ls == nil {
		return
	}
	ls.mu.Lock()
	ls.closed = true
	all := make([]*lease, 0, len(ls.open))
	for le := range ls.open {
		all = append(all, le)
	}
	ls.mu.Unlock()
	ls.sendEnded(all, ls.now())
}

// settleLeases settles leases that have ended, within the Timeout.
func (f *family) settleLeases(all []*ended) {
	byStore := make(map[*server.Store][]*server.Settlement)
	for _, e := range all {
		store := f.storeOf(e.hot.limits)
		byStore[store] = append(byStore[store], &server.Settlement{
			Limits: e.hot.limits.server, Key: e.hot.key, Held: e.held, Spent: e.spent, Refs: e.refs,
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	var stores sync.WaitGroup
	for store, settlements := range byStore {
		stores.Go(func() { store.SettleAll(ctx, settlements) })
	}
	stores.Wait()
}
